"""bradbury acls: against a cluster with an authorizer, and Admin's calls beneath."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bradbury
from bradbury import AclBinding, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from bradbury.protocol.errors import InvalidRequest, SecurityDisabled
from bradbury.tests.support.command_line import Command

Rows = Callable[..., list[tuple[str, ...]]]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with bradbury.local(config=config) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(autouse=True)
def bootstrap(servers: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("BRADBURY_BOOTSTRAP", servers)
    yield
    with bradbury.Admin(servers) as admin:
        admin.delete_acls([AclFilter()])


@pytest.fixture
def rows(command: Command) -> Rows:
    """What a command says with --json, without the host."""

    def call(*arguments: str) -> list[tuple[str, ...]]:
        outcome = command("acls", *arguments, "--json")
        assert outcome.code == 0, outcome.err
        return sorted(
            (
                each["resource_type"],
                each["name"],
                each["pattern_type"],
                each["principal"],
                each["operation"],
                each["permission"],
            )
            for each in json.loads(outcome.out)
        )

    return call


ALICE = ("--allow-principal", "User:alice")


def test_what_is_added_is_listed_and_removed(rows: Rows) -> None:
    rule = ("TOPIC", "flights", "LITERAL", "User:alice", "READ", "ALLOW")
    words = (*ALICE, "--operation", "Read", "--topic", "flights")
    assert rows("add", *words) == [rule]
    assert rows("list") == [rule]
    assert rows("list", "--principal", "User:alice") == [rule]
    assert rows("list", "--principal", "User:bob") == []
    assert rows("remove", *words) == [rule]
    assert rows("remove", *words) == []
    assert rows("list") == []


def test_a_producer_and_a_consumer_get_what_they_need(rows: Rows) -> None:
    found = rows(
        "add", *ALICE, "--producer", "--idempotent", "--topic", "t", "--transactional-id", "x",
    )  # fmt: skip
    assert [(kind, operation) for kind, *_, operation, _ in found] == [
        ("CLUSTER", "IDEMPOTENT_WRITE"),
        ("TOPIC", "CREATE"),
        ("TOPIC", "DESCRIBE"),
        ("TOPIC", "WRITE"),
        ("TRANSACTIONAL_ID", "DESCRIBE"),
        ("TRANSACTIONAL_ID", "WRITE"),
    ]
    assert rows("list") == found
    found = rows("add", *ALICE, "--consumer", "--topic", "t", "--group", "g")
    assert [(kind, operation) for kind, *_, operation, _ in found] == [
        ("GROUP", "READ"),
        ("TOPIC", "DESCRIBE"),
        ("TOPIC", "READ"),
    ]


def test_rules_about_a_name_are_found_by_prefix_and_wildcard_too(rows: Rows) -> None:
    rows("add", *ALICE, "--topic", "fli", "--resource-pattern-type", "prefixed")
    rows("add", "--deny-principal", "User:bob", "--topic", "*", "--operation", "write")
    rows("add", *ALICE, "--topic", "other")
    assert [name for _, name, *_ in rows("list", "--topic", "flights")] == ["*", "fli"]
    assert rows("list", "--topic", "flights", "--resource-pattern-type", "literal") == []
    removed = rows("remove", "--topic", "fli", "--resource-pattern-type", "prefixed", "--yes")
    assert [name for _, name, *_ in removed] == ["fli"]


def test_a_table_for_people(command: Command) -> None:
    added = command("acls", "add", *ALICE, "--cluster", "--operation", "alter-configs")
    assert added.code == 0
    table = command("acls", "list").out
    assert "kafka-cluster" in table
    assert "ALTER_CONFIGS" in table
    assert command("acls", "remove", "--cluster", "--yes").code == 0
    assert command("acls", "list").err == "no ACL matches\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", *ALICE), "--topic"),
        (("add", "--topic", "t"), "--allow-principal"),
        (("add", "--topic", "t", "--allow-principal", "alice"), "use User:alice"),
        (("add", *ALICE, "--topic", "t", "--operation", "fly"), "ALTER_CONFIGS"),
        (
            ("add", *ALICE, "--topic", "t", "--operation", "cluster-action"),
            "does not apply to a topic",
        ),
        (("add", *ALICE, "--consumer", "--topic", "t"), "--group"),
        (("add", *ALICE, "--producer"), "--topic"),
        (("add", *ALICE, "--idempotent", "--topic", "t"), "--producer"),
        (("add", "--allow-host", "10.0.0.1", "--topic", "t"), "--allow-principal"),
        (("remove", "--topic", "t", "--operation", "read"), "--allow-principal"),
    ],
)
def test_a_command_line_that_makes_no_sense(
    command: Command, words: tuple[str, ...], said: str
) -> None:
    assert said in command("acls", *words).usage


def test_admin_raises_what_is_wrong_with_a_rule(servers: str) -> None:
    rule = AclBinding(
        ResourceType.CLUSTER,
        "mine",
        PatternType.LITERAL,
        "User:a",
        "*",
        AclOperation.ALL,
        AclPermission.ALLOW,
    )
    with bradbury.Admin(servers) as admin:
        with pytest.raises(InvalidRequest, match="kafka-cluster"):
            admin.create_acls([rule])
        good = rule._replace(name="kafka-cluster")
        admin.create_acls([good, good])
        assert admin.describe_acls() == [good]
        assert admin.delete_acls([AclFilter(principal="User:a")]) == [good]


def test_without_an_authorizer_there_is_nothing_to_say(
    command: Command, bradbury_cluster: bradbury.LocalCluster
) -> None:
    servers = bradbury_cluster.bootstrap_servers
    with bradbury.Admin(servers) as admin, pytest.raises(SecurityDisabled):
        admin.describe_acls()
    refused = command("acls", "list", "-b", servers).error
    assert refused.startswith("No Authorizer is configured: this cluster has no ACLs; start it")
    assert "`bradbury up --secure`" in refused
    assert "authorizer.class.name=" in refused


GATES: Any = {
    "resource_type": ResourceType.TOPIC,
    "name": "gates",
    "pattern": PatternType.LITERAL,
    "host": "*",
    "operation": AclOperation.DESCRIBE,
    "permission": AclPermission.ALLOW,
}


@pytest.fixture
def as_alice(tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """The options of a user who may see a topic, and do nothing else."""
    jaas = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="admin" password="a" user_admin="a" user_alice="b";'
    )
    config = {
        "listeners": "SASL_PLAINTEXT://:0",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    file = tmp_path / "alice.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="b";\n'
    )
    with bradbury.local(config=config) as cluster:
        security = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_username": "admin",
            "sasl_password": "a",
        }
        with cluster.admin(**security) as admin:  # type: ignore[arg-type]
            admin.create_topic("gates")
            admin.create_acls([AclBinding(principal="User:alice", **GATES)])
        yield "--client-config", str(file), cluster.bootstrap_servers


def test_a_missing_right_is_named_with_the_user_and_the_remedy(
    process: Command, as_alice: tuple[str, ...]
) -> None:
    option, file, servers = as_alice
    refused = process(option, file, "produce", "gates", "-b", servers, stdin=b"x\n").error
    assert "user 'alice' lacks a right on the " in refused
    assert "`bradbury acls add --allow-principal User:alice --" in refused
    refused = process(option, file, "groups", "describe", "readers", "-b", servers).error
    assert "roup authorization failed: user 'alice' lacks a right on the group; an " in refused
    assert "User:alice --group NAME --operation OPERATION`" in refused
    refused = process(option, file, "acls", "list", "-b", servers).error
    assert refused.startswith("Cluster authorization failed: user 'alice' lacks a right")
