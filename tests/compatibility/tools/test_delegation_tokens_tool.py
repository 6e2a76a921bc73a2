"""Apache Kafka's own kafka-delegation-tokens.sh, and a Java client that logs in with what it made."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bradbury
from bradbury.clients.admin.users_admin import UserScramCredentialUpsertion
from bradbury.tests.compatibility.support.compatibility import Ran, Tool

pytestmark = [pytest.mark.slow, pytest.mark.java]

TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
CONFIG = {
    "listeners": "INSIDE://:0,CLIENT://:0",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,CLIENT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "delegation.token.secret.key": "between us brokers",
}


@pytest.fixture
def client() -> Iterator[str]:
    with bradbury.local(config=CONFIG) as cluster:
        with cluster.admin() as admin:
            admin.alter_user_scram_credentials(
                [
                    UserScramCredentialUpsertion(user, "secret", "SCRAM-SHA-256")
                    for user in ("alice", "bob")
                ]
            )
        yield cluster.bootstrap_servers_of("CLIENT")


def login(path: Path, name: str, password: str, *, is_token: bool = False) -> str:
    token = ' tokenauth="true"' if is_token else ""
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={LOGIN} required username="{name}" password="{password}"{token};\n'
    )
    return str(path)


def test_a_token_is_made_used_renewed_and_ended(
    java: Callable[..., Ran], kafka_tools: Tool, client: str, tmp_path: Path
) -> None:
    alice = login(tmp_path / "alice", "alice", "secret")
    bob = login(tmp_path / "bob", "bob", "secret")

    def tokens(config: str, *arguments: str) -> str:
        ran = java(TOKENS, "--bootstrap-server", client, "--command-config", config, *arguments)
        assert ran.code == 0, ran
        return ran.out

    with kafka_tools.call("kafka-delegation-tokens --create"):
        words = ("--max-life-time-period", "-1", "--renewer-principal", "User:bob")
        out = tokens(alice, "--create", *words)
        found = re.search(r"^(\S{22,36})\s+(\S{86,88})\s+User:alice", out, re.MULTILINE)
        assert found, out
    token_id, hmac = found.groups()
    with kafka_tools.call("kafka-delegation-tokens --describe"):
        assert token_id in tokens(alice, "--describe", "--owner-principal", "User:alice")
    with kafka_tools.call("kafka-delegation-tokens --renew"):
        tokens(bob, "--renew", "--renew-time-period", "-1", "--hmac", hmac)
    by_token = login(tmp_path / "token", token_id, hmac, is_token=True)
    with kafka_tools.call("a client with a delegation token"):
        ran = java(TOPICS, "--bootstrap-server", client, "--command-config", by_token, "--list")
        assert ran.code == 0, ran
    with kafka_tools.call("kafka-delegation-tokens --expire"):
        tokens(alice, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    ran = java(TOPICS, "--bootstrap-server", client, "--command-config", by_token, "--list")
    assert ran.code != 0
