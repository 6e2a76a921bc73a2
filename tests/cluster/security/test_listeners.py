"""What makes a listener: a name of its own, and for TLS a key?"""

from __future__ import annotations

import pytest

from bradbury.cluster.security.security_config import SecurityConfig
from bradbury.protocol.errors import InvalidConfig

KEY = {"ssl.keystore.key": "a key"}
CHAIN = {"ssl.keystore.certificate.chain": "a chain"}
FILE = {"ssl.keystore.location": "/node.pem"}
PEM = {"listeners": "SSL://:0", "ssl.keystore.type": "PEM"}


def listener_of(settings: dict[str, str]) -> object:
    (listener,) = SecurityConfig.from_kafka(PEM | settings).listener_configs()
    return listener.tls


@pytest.mark.parametrize("settings", [FILE, KEY | CHAIN])
def test_a_file_or_a_key_with_its_chain(settings: dict[str, str]) -> None:
    assert listener_of(settings)


@pytest.mark.parametrize("settings", [{}, KEY, CHAIN, FILE | CHAIN | {"ssl.keystore.type": "JKS"}])
def test_neither_alone_nor_nothing_nor_another_format(settings: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig, match=r"needs ssl\.keystore\.type=PEM"):
        listener_of(settings)


def test_not_two_keys() -> None:
    with pytest.raises(InvalidConfig, match="are two keys"):
        listener_of(FILE | KEY)


@pytest.mark.parametrize("second", ["PLAINTEXT", "plaintext"])
def test_not_two_of_one_name(second: str) -> None:
    settings = {"listeners": f"PLAINTEXT://:0,{second}://:9093"}
    with pytest.raises(InvalidConfig, match="two of the name PLAINTEXT"):
        SecurityConfig.from_kafka(settings).listener_configs()


def test_a_setting_of_a_listener_is_its_own_and_nobody_elses() -> None:
    protocols = "ONE:SASL_PLAINTEXT,OTHER:SASL_PLAINTEXT"
    one, other = SecurityConfig.from_kafka(
        {
            "listeners": "ONE://:0,OTHER://:0",
            "inter.broker.listener.name": "ONE",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.security.protocol.map": protocols,
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "connections.max.reauth.ms": "1000",
            "listener.name.other.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.other.connections.max.reauth.ms": "2000",
            "listener.name.other.scram-sha-256.connections.max.reauth.ms": "3000",
        }
    ).listener_configs()
    assert one.mechanisms == ("SCRAM-SHA-512",)
    assert one.max_reauth_ms == {"SCRAM-SHA-512": 1000}
    assert other.mechanisms == ("PLAIN", "SCRAM-SHA-256")
    assert other.max_reauth_ms == {"PLAIN": 2000, "SCRAM-SHA-256": 3000}


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("listener.name.one.oauthbearer.connections.max.reauth.ms", "1", "mechanisms of listener"),
        ("listener.name.two.plain.connections.max.reauth.ms", "1", "the listener is PLAINTEXT"),
        ("listener.name.one.gssapi.connections.max.reauth.ms", "1", "no such setting"),
        ("listener.name.one.plain.connections.max.reauth.ms", "-1", "one.plain.conn.* at least 0"),
        ("listener.name.no.plain.connections.max.reauth.ms", "1", "NO; there are ONE, TWO"),
    ],
)
def test_a_lifetime_that_no_session_has_is_refused(setting: str, value: str, said: str) -> None:
    settings = {
        "listeners": "ONE://:0,TWO://:0",
        "inter.broker.listener.name": "TWO",
        "listener.security.protocol.map": "ONE:SASL_PLAINTEXT,TWO:PLAINTEXT",
        "listener.name.one.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    }
    assert SecurityConfig.from_kafka(settings)
    with pytest.raises(InvalidConfig, match=said):
        SecurityConfig.from_kafka(settings | {setting: value})
