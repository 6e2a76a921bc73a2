"""SASL OAUTHBEARER: tokens of an issuer let its subjects in, with clients of others."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.net.sasl.oauth import AbstractTokenProvider

import bradbury
from bradbury.protocol.errors import InvalidConfig
from tests.live.security.token_issuer import Issuer, config

PATIENCE = 60


def settings(servers: str, token: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": servers,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, time.time() + 600),
        "log_level": 0,
    }


@pytest.mark.long  # five clients
def test_subjects_of_tokens_are_served_and_others_are_not(tmp_path: Path) -> None:
    issuer, stranger = Issuer(tmp_path, "ours"), Issuer(tmp_path, "strangers")
    with bradbury.local(config=config(issuer)) as cluster:
        servers = cluster.bootstrap_servers_of("CLIENT")
        admin = AdminClient(settings(servers, issuer.token("alice")))
        admin.poll(0)
        admin.create_topics([NewTopic("tokens", 1, 1)])["tokens"].result(PATIENCE)
        producer = confluent_kafka.Producer(settings(servers, issuer.token("alice")))
        producer.produce("tokens", b"a record")
        assert producer.flush(PATIENCE) == 0

        class Provider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
            def token(self) -> str:
                return issuer.token("bob")

        consumer = kafka.KafkaConsumer(
            "tokens",
            bootstrap_servers=servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(),
            auto_offset_reset="earliest",
            consumer_timeout_ms=PATIENCE * 1000,
        )
        assert next(consumer).value == b"a record"
        node = cluster.nodes[0]
        names = {str(each.session.principal) for each in node.socket_server._connections}
        assert {"User:alice", "User:bob"} <= names
        consumer.close()

        past = int(time.time()) - 3600
        for refused in (
            stranger.token("alice"),
            issuer.token("alice", exp=past, iat=past - 600),
            issuer.token("alice", aud="somebody else"),
            issuer.token("alice", iss="https://other.example"),
        ):
            failed = AdminClient(settings(servers, refused))
            with pytest.raises(confluent_kafka.KafkaException):
                failed.list_topics(timeout=3)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sasl.oauthbearer.jwks.endpoint.url": ""}, "set sasl.oauthbearer.jwks.endpoint.url"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file:/nowhere.json"}, "cannot be used"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "keys.json"}, "use a file:, http: or https: URL"),
        ({"sasl.mechanism.inter.broker.protocol": "OAUTHBEARER"}, "must be one of"),
    ],
)
def test_settings_that_would_let_nobody_in_are_refused(
    tmp_path: Path, change: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidConfig, match=said):
        bradbury.local(config=config(Issuer(tmp_path, "ours")) | change).close()
