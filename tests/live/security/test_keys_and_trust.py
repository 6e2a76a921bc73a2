"""A listener's key, certificates and trust: as text, with a password, replaced while a node runs."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

import bradbury
from bradbury.protocol.errors import AuthenticationFailed, InvalidConfig
from bradbury.tests.support.certificates import CertificateAuthority
from tests.live.security.test_sasl_listener import connect, principals, receive, send

PATIENCE = 60
PASSWORD = "of the key"


def texts(path: str) -> dict[str, str]:
    """The key and the certificate of a file, as settings."""
    text = Path(path).read_text()
    start = text.index("-----BEGIN CERTIFICATE-----")
    return {"ssl.keystore.key": text[:start], "ssl.keystore.certificate.chain": text[start:]}


def mutual(authority: CertificateAuthority) -> dict[str, str]:
    """A listener that asks for certificates of this authority, given as text."""
    return {
        "listeners": "SSL://:0",
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": Path(authority.certificate).read_text(),
        "ssl.client.auth": "required",
    }


def client(authority: CertificateAuthority, certificate: str) -> Any:
    return {
        "security_protocol": "SSL",
        "ssl_truststore_location": authority.certificate,
        "ssl_keystore_location": certificate,
    }


@pytest.mark.parametrize("password", [None, PASSWORD])
def test_two_nodes_serve_clients_and_each_other_with_keys_given_as_text(
    authority: CertificateAuthority, tmp_path: Path, password: str | None
) -> None:
    own = authority.sign("broker", password=password.encode() if password else None)
    config = mutual(authority) | texts(own)
    if password:
        config["ssl.key.password"] = password
    with bradbury.local(nodes=2, config=config) as cluster:
        alice = authority.sign("alice")
        with cluster.admin(**client(authority, alice)) as admin:
            admin.create_topic("replicated", 2, 2)
        sent: list[Any] = []
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "security.protocol": "ssl",
                "ssl.ca.location": authority.certificate,
                "ssl.certificate.location": alice,
                "ssl.key.location": alice,
                "acks": "all",
                "log_level": 0,
            }
        )
        for number in range(50):
            producer.produce(
                "replicated", b"%d" % number, on_delivery=lambda error, _: sent.append(error)
            )
        assert producer.flush(PATIENCE) == 0
        assert sent == [None] * 50
        assert {"User:CN=alice,O=Example", "User:CN=broker,O=Example"} <= principals(cluster)
        stranger = CertificateAuthority(tmp_path, "other CA").sign("alice")
        with cluster.admin(**client(authority, stranger)) as refused:
            with pytest.raises(AuthenticationFailed):
                refused.list_topics()
        shown = repr(cluster.nodes[0].server_config)
        assert "PRIVATE KEY" not in shown
        assert PASSWORD not in shown


def test_texts_may_stand_elsewhere(
    authority: CertificateAuthority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = texts(authority.sign("broker", password=PASSWORD.encode()))
    (tmp_path / "key.pem").write_text(own["ssl.keystore.key"])
    (tmp_path / "ca.pem").write_text(Path(authority.certificate).read_text())
    monkeypatch.setenv("KEY_PASSWORD", PASSWORD)
    config = mutual(authority) | {
        "ssl.keystore.key": f"${{dir:{tmp_path}:key.pem}}",
        "ssl.keystore.certificate.chain": own["ssl.keystore.certificate.chain"],
        "ssl.key.password": "${env:KEY_PASSWORD}",
        "ssl.truststore.certificates": f"${{dir:{tmp_path}:ca.pem}}",
    }
    with (
        bradbury.local(config=config) as cluster,
        cluster.admin(**client(authority, authority.sign("alice"))) as admin,
    ):
        assert admin.list_topics() == []


def test_a_file_with_a_locked_key_is_opened_by_its_password_alone(
    authority: CertificateAuthority,
) -> None:
    locked = {
        "listeners": "SSL://:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.sign("locked", password=PASSWORD.encode()),
    }
    trusting: Any = {
        "security_protocol": "SSL",
        "ssl_truststore_location": authority.certificate,
    }
    with (
        bradbury.local(config=locked | {"ssl.key.password": PASSWORD}) as cluster,
        cluster.admin(**trusting) as admin,
    ):
        assert admin.list_topics() == []
    with pytest.raises(InvalidConfig, match=r"locked\.pem cannot be used") as refused:
        bradbury.local(config=locked | {"ssl.key.password": "of another key"}).close()
    assert "of another key" not in str(refused.value)


@pytest.mark.parametrize("password", [None, "of another key"])
def test_a_locked_key_given_as_text_is_refused_without_its_password(
    authority: CertificateAuthority, password: str | None
) -> None:
    config = mutual(authority) | texts(authority.sign("locked", password=PASSWORD.encode()))
    if password:
        config["ssl.key.password"] = password
    with pytest.raises(InvalidConfig, match=r"ssl\.keystore\.key: ") as refused:
        bradbury.local(config=config).close()
    assert "PRIVATE KEY" not in str(refused.value)


def test_a_truststore_that_is_replaced_lets_in_clients_of_the_new_authority(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    other = CertificateAuthority(tmp_path, "new CA")
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(Path(authority.certificate).read_text())
    config = mutual(authority) | {
        "ssl.keystore.location": authority.sign("broker"),
        "ssl.truststore.location": str(trusted),
    }
    del config["ssl.truststore.certificates"]
    old = ssl.create_default_context(cafile=authority.certificate)
    old.load_cert_chain(authority.sign("alice"))
    with bradbury.local(config=config) as cluster:

        def is_let_in(certificate: str) -> bool:
            with cluster.admin(**client(authority, certificate)) as admin:
                try:
                    admin.list_topics()
                except AuthenticationFailed:
                    return False
            return True

        # What the node's timer does every ten seconds.
        look = cluster.nodes[0].socket_server._reload_certificates
        former, new = authority.sign("alice"), other.sign("bob")
        assert is_let_in(former)
        assert not is_let_in(new)
        with (
            connect(cluster.bootstrap_servers) as sock,
            old.wrap_socket(sock, server_hostname="localhost") as connected,
        ):
            send(connected, 18, 0, b"")
            assert receive(connected)

            trusted.write_text("no certificates")
            look()
            assert is_let_in(former), "what cannot be used changes nothing"

            trusted.write_text(Path(other.certificate).read_text())
            look()
            assert is_let_in(new)
            assert not is_let_in(former)
            send(connected, 18, 0, b"")
            assert receive(connected), "who is connected stays"
