"""Bradbury's own clients against Apache Kafka's listeners with TLS and SASL."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bradbury
from bradbury.benchmarks.support.kafka_broker import KafkaBroker
from bradbury.protocol.errors import (
    AuthenticationFailed,
    DelegationTokenNotFound,
    DelegationTokenRequestNotAllowed,
)
from bradbury.tests.compatibility.support.kafka_jars import require_kafka, run_java
from bradbury.tests.support.certificates import CertificateAuthority

pytestmark = [pytest.mark.java, pytest.mark.deep]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD = 'se"cret=,\\'
SESSION_MS = 2_000
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class SecuredKafka:
    def __init__(self, folder: Path) -> None:
        self.authority = CertificateAuthority(folder)
        keystore = self.authority.sign("broker")
        self.broker = KafkaBroker(folder / "kafka", heap="256m")
        self.port = int(self.broker.bootstrap_servers.rpartition(":")[2])
        # A properties file reads a backslash as the beginning of an escape.
        jaas = f"{PLAIN_LOGIN} required user_alice={quoted(PASSWORD)};".replace("\\", "\\\\")
        prefix = "listener.name.sasl_ssl"
        plain = self.plain_port = self.broker.controller_port + 1
        self.broker.config |= {
            "listeners": f"SASL_SSL://127.0.0.1:{self.port},PLAINTEXT://127.0.0.1:{plain},"
            f"CONTROLLER://127.0.0.1:{self.broker.controller_port}",
            "advertised.listeners": f"SASL_SSL://127.0.0.1:{self.port},"
            f"PLAINTEXT://127.0.0.1:{plain}",
            "listener.security.protocol.map": "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": keystore,
            "connections.max.reauth.ms": str(SESSION_MS),
            "delegation.token.secret.key": "between brokers",
            f"{prefix}.plain.sasl.jaas.config": jaas,
            f"{prefix}.scram-sha-256.sasl.jaas.config": f"{SCRAM_LOGIN} required;",
            f"{prefix}.scram-sha-512.sasl.jaas.config": f"{SCRAM_LOGIN} required;",
        }

    def add_scram_users(self) -> None:
        for mechanism in MECHANISMS[1:]:
            run_java(
                "kafka.admin.ConfigCommand",
                *("--bootstrap-server", f"127.0.0.1:{self.plain_port}", "--alter"),
                *("--entity-type", "users", "--entity-name", "alice"),
                *("--add-config", f"{mechanism}=[iterations=4096,password=scrampw]"),
            )

    def security(self, mechanism: str) -> dict[str, Any]:
        return {
            "security_protocol": "SASL_SSL",
            "ssl_truststore_location": self.authority.certificate,
            "sasl_mechanism": mechanism,
            "sasl_username": "alice",
            "sasl_password": PASSWORD if mechanism == "PLAIN" else "scrampw",
        }


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    require_kafka()
    secured = SecuredKafka(tmp_path_factory.mktemp("secured"))
    with secured.broker:
        secured.add_scram_users()
        yield secured


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_records_go_there_and_back_across_several_sessions(
    kafka: SecuredKafka, mechanism: str
) -> None:
    servers, security = kafka.broker.bootstrap_servers, kafka.security(mechanism)
    topic = f"t-{mechanism}"
    with bradbury.Admin(servers, **security) as admin:
        admin.create_topic(topic)
    count = 0
    found: list[bytes] = []
    with (
        bradbury.Producer(servers, **security) as producer,
        bradbury.Consumer(
            topic, bootstrap=servers, group=topic, auto_offset_reset="earliest", **security
        ) as consumer,
    ):
        # The broker closes a connection whose session has ended; each answer of a poll that waits
        # takes up to half a second, so this takes three sessions.
        while count < 12 * SESSION_MS // 2_000 + 6:
            producer.send(topic, f"{count}".encode()).result(30)
            count += 1
            found += consumer.poll(500).column("value").to_pylist()
            found += consumer.poll(500).column("value").to_pylist()
        while len(found) < count:
            found += consumer.poll(5_000).column("value").to_pylist()
        closed = producer.metrics()["producer-metrics"]["connection-close-total"]
    assert found == [f"{number}".encode() for number in range(count)]
    assert closed == 0, "they authenticate again in time"


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("wrong", [{"sasl_password": "wrong"}, {"sasl_username": "nobody"}])
def test_who_it_is_not_is_told_at_once(
    kafka: SecuredKafka, mechanism: str, wrong: dict[str, str]
) -> None:
    security = kafka.security(mechanism) | wrong
    with bradbury.Admin(kafka.broker.bootstrap_servers, **security) as admin:
        with pytest.raises(AuthenticationFailed, match="not authenticated: Authentication failed"):
            admin.list_topics()


def test_kafkas_own_way_to_say_who_one_is(kafka: SecuredKafka) -> None:
    security = kafka.security("PLAIN")
    jaas = f'{PLAIN_LOGIN} required username="alice" password={quoted(PASSWORD)};'
    del security["sasl_username"], security["sasl_password"]
    with bradbury.Admin(kafka.broker.bootstrap_servers, **security, sasl_jaas_config=jaas) as admin:
        assert isinstance(admin.list_topics(), list)


def test_delegation_tokens_are_made_used_and_ended(kafka: SecuredKafka) -> None:
    servers, security = kafka.broker.bootstrap_servers, kafka.security("SCRAM-SHA-256")
    with bradbury.Admin(servers, **security) as admin:
        made = admin.create_delegation_token(renewers=["User:bob"], max_lifetime_ms=3_600_000)
        information = made.token_info
        assert (information.owner, information.renewers) == ("User:alice", ("User:bob",))
        until = time.monotonic() + 30
        while admin.describe_delegation_token(["User:alice"]) != [made]:
            assert time.monotonic() < until  # Kafka answers before its broker knows
            time.sleep(0.1)
        jaas = (
            f'{SCRAM_LOGIN} required username="{information.token_id}" '
            f'password="{made.hmac_as_base64_string}" tokenauth="true";'
        )
        by_token = {**security, "sasl_jaas_config": jaas}
        del by_token["sasl_username"], by_token["sasl_password"]
        with bradbury.Admin(servers, **by_token) as guest:
            assert isinstance(guest.list_topics(), list)
            with pytest.raises(DelegationTokenRequestNotAllowed):
                guest.create_delegation_token()
        renewed = admin.renew_delegation_token(made.hmac, renew_time_period_ms=60_000)
        assert renewed < information.expiry_timestamp
        admin.expire_delegation_token(made.hmac)
        until = time.monotonic() + 30
        while admin.describe_delegation_token(["User:alice"]):
            assert time.monotonic() < until
            time.sleep(0.1)
        with pytest.raises(DelegationTokenNotFound):
            admin.expire_delegation_token(b"none of its own")
