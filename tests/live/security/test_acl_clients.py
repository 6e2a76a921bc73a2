"""Clients of others make ACLs, and are met by them, known by their certificates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AclBinding as ConfluentBinding,
    AclBindingFilter,
    AclOperation as ConfluentOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType as ConfluentType,
)
from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType as PythonType,
)

import bradbury
from bradbury.tests.support.certificates import CertificateAuthority
from tests.live.security.access_scene import AUTHORIZER

PATIENCE = 60


@pytest.fixture(scope="module")
def secured(authority: CertificateAuthority, tls: Callable[..., dict[str, str]]) -> Iterator[Any]:
    config = tls(
        ssl_client_auth="required",
        ssl_truststore_type="PEM",
        ssl_truststore_location=authority.certificate,
    )
    config |= {"authorizer.class.name": AUTHORIZER, "super.users": "User:CN=root,O=Example"}
    with bradbury.local(config=config) as cluster:
        yield cluster


@pytest.fixture
def settings(secured: Any, authority: CertificateAuthority) -> Callable[[str], dict[str, Any]]:
    def of(name: str) -> dict[str, Any]:
        own = authority.sign(name)
        return {
            "bootstrap.servers": secured.bootstrap_servers,
            "security.protocol": "ssl",
            "ssl.ca.location": authority.certificate,
            "ssl.certificate.location": own,
            "ssl.key.location": own,
        }

    return of


def test_confluent_kafka_makes_shows_and_removes_rules_and_goes_by_them(
    settings: Callable[[str], dict[str, Any]],
) -> None:
    root = AdminClient(settings("root"))
    root.create_topics([NewTopic("flights", 1, 1)])["flights"].result(PATIENCE)

    def rule(operation: ConfluentOperation, kind: ConfluentType, name: str) -> ConfluentBinding:
        return ConfluentBinding(
            kind,
            name,
            ResourcePatternType.PREFIXED,
            "User:CN=alice,O=Example",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )

    def produced() -> Any:
        outcome: list[Any] = []
        producer = confluent_kafka.Producer(settings("alice") | {"enable.idempotence": True})
        producer.produce("flights", b"v", callback=lambda error, _: outcome.append(error))
        producer.flush(PATIENCE)
        return outcome[0]

    refused = produced()
    assert refused is not None
    assert "uthorization" in str(refused)
    rules = [
        rule(ConfluentOperation.WRITE, ConfluentType.TOPIC, "fli"),
        rule(ConfluentOperation.READ, ConfluentType.TOPIC, "fli"),
        rule(ConfluentOperation.READ, ConfluentType.GROUP, "team"),
    ]
    for future in root.create_acls(rules).values():
        future.result(PATIENCE)
    assert produced() is None
    consumer = confluent_kafka.Consumer(
        settings("alice") | {"group.id": "team-1", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["flights"])
    message = consumer.poll(PATIENCE)
    assert message.error() is None
    assert message.value() == b"v"
    consumer.close()
    every = AclBindingFilter(
        ConfluentType.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        ConfluentOperation.ANY,
        AclPermissionType.ANY,
    )
    assert set(root.describe_acls(every).result(PATIENCE)) == set(rules)
    alice = AdminClient(settings("alice"))
    with pytest.raises(confluent_kafka.KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
        alice.create_acls([rules[0]])[rules[0]].result(PATIENCE)
    assert alice.describe_acls(every).result(PATIENCE) == []  # librdkafka shows no error of it
    (deleted,) = root.delete_acls([every]).values()
    assert set(deleted.result(PATIENCE)) == set(rules)
    assert "uthorization" in str(produced())


def test_kafka_python_makes_shows_and_removes_rules(
    secured: Any, authority: CertificateAuthority
) -> None:
    own = authority.sign("root")
    admin = KafkaAdminClient(
        bootstrap_servers=secured.bootstrap_servers,
        security_protocol="SSL",
        ssl_cafile=authority.certificate,
        ssl_certfile=own,
        ssl_keyfile=own,
    )
    rule = ACL(
        principal="User:bob",
        host="10.0.0.1",
        operation=ACLOperation.READ,
        permission_type=ACLPermissionType.DENY,
        resource_pattern=ResourcePattern(PythonType.GROUP, "python"),
    )
    assert admin.create_acls([rule])["succeeded"] == [rule]
    wanted = ACLFilter(
        principal="User:bob",
        host=None,
        operation=ACLOperation.ANY,
        permission_type=ACLPermissionType.ANY,
        resource_pattern=ResourcePatternFilter(PythonType.ANY, None, ACLResourcePatternType.ANY),
    )
    found, _ = admin.describe_acls(wanted)
    assert found == [rule]
    ((_, deleted, error),) = admin.delete_acls([wanted])
    assert error.errno == 0
    assert deleted == [rule]
    admin.close()
