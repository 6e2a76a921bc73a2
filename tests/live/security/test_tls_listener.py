"""A listener that speaks TLS, asked by clients of others and by peers that mean no good.

Once as where no kernel has TLS, and once as where it has: OpenSSL works on the socket then, and the
kernel encrypts if this machine's really can.
"""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import bradbury
from bradbury.actors.network import kernel_tls
from bradbury.protocol.errors import InvalidConfig
from bradbury.tests.support.certificates import CertificateAuthority

PATIENCE = 60
BrokerConfig = Callable[..., dict[str, str]]
# ApiVersions 0, correlation id 7, no client id.
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)


@pytest.fixture(scope="module", params=["without the kernel", "with the kernel"])
def is_in_kernel(request: pytest.FixtureRequest) -> Iterator[bool]:
    with pytest.MonkeyPatch.context() as patch:
        is_in_kernel = request.param == "with the kernel"
        patch.setattr(kernel_tls.KernelTlsSocket, "must_decrypt", kernel_tls.is_available())
        patch.setattr(kernel_tls, "is_available", lambda: is_in_kernel)
        yield is_in_kernel


def settings(cluster: Any, authority: CertificateAuthority) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "ssl",
        "ssl.ca.location": authority.certificate,
    }


def trusting(authority: CertificateAuthority, certificate: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.certificate)
    if certificate:
        context.load_cert_chain(certificate)
    return context


def connect(cluster: Any) -> socket.socket:
    host, port = cluster.bootstrap_servers.split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def ask_versions(sock: socket.socket) -> int:
    """The correlation id of the answer."""
    sock.sendall(API_VERSIONS)
    answer = b""
    while len(answer) < 8:
        part = sock.recv(4096)
        if not part:
            raise ConnectionResetError("the broker has closed the connection")
        answer += part
    return int(struct.unpack_from(">i", answer, 4)[0])


def create(cluster: Any, authority: CertificateAuthority, topic: str) -> None:
    admin = AdminClient(settings(cluster, authority))
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE)


def test_what_is_produced_with_confluent_kafka_is_consumed_whole(
    cluster: Any, authority: CertificateAuthority
) -> None:
    create(cluster, authority, "large")
    values = [os.urandom(100_000) for _ in range(60)]
    producer = confluent_kafka.Producer(settings(cluster, authority))
    for value in values:
        producer.produce("large", value)
    assert producer.flush(PATIENCE) == 0
    consumer = confluent_kafka.Consumer(
        settings(cluster, authority) | {"group.id": "tls", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["large"])
    got: list[bytes] = []
    while len(got) < len(values):
        message = consumer.poll(PATIENCE)
        assert message is not None and message.error() is None
        got.append(message.value())
    consumer.close()
    assert got == values


def test_kafka_python_produces_and_consumes(cluster: Any, authority: CertificateAuthority) -> None:
    create(cluster, authority, "python")
    how = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "security_protocol": "SSL",
        "ssl_cafile": authority.certificate,
    }
    producer = kafka.KafkaProducer(**how)
    producer.send("python", b"a record").get(PATIENCE)
    producer.close()
    consumer = kafka.KafkaConsumer("python", auto_offset_reset="earliest", **how)
    assert next(consumer).value == b"a record"
    consumer.close()


def test_who_does_not_trust_the_authority_does_not_connect(cluster: Any, tmp_path: Path) -> None:
    other = CertificateAuthority(tmp_path, "other CA")
    with connect(cluster) as sock, pytest.raises(ssl.SSLCertVerificationError):
        trusting(other).wrap_socket(sock, server_hostname="localhost")


@pytest.mark.parametrize(
    "said",
    [API_VERSIONS, b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 4096],
    ids=["kafka", "http", "noise"],
)
def test_what_is_not_tls_costs_its_connection(cluster: Any, said: bytes) -> None:
    with connect(cluster) as sock:
        try:
            sock.sendall(said)
            while True:
                part = sock.recv(4096)
                if not part:
                    break
                assert part[0] == 0x15  # a TLS alert
        except ConnectionResetError:
            pass


def test_the_log_says_who_speaks_what_where(
    cluster: Any, authority: CertificateAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    with connect(cluster) as sock:
        sock.sendall(API_VERSIONS)
        while sock.recv(4096):
            pass
    with bradbury.local() as plain, connect(plain) as sock, pytest.raises(OSError):
        trusting(authority).wrap_socket(sock, server_hostname="localhost")
    said = [record.getMessage() for record in caplog.records]
    (wrong_version,) = [line for line in said if "failed its TLS handshake" in line]
    assert wrong_version.endswith("; this listener is SSL")
    (not_kafka,) = [line for line in said if "announced a request" in line]
    assert not_kafka.endswith("(it seems to speak TLS, not Kafka)")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl here")
def test_keys_are_not_made_again_because_a_client_says_so(
    cluster: Any, authority: CertificateAuthority
) -> None:
    """Each time would cost the broker more than the client."""
    command = ["openssl", "s_client", "-connect", cluster.bootstrap_servers, "-tls1_2"]
    done = subprocess.run(
        [*command, "-CAfile", authority.certificate],
        input=b"R\n",
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert b"RENEGOTIATING" in done.stdout + done.stderr
    assert b"no renegotiation" in done.stderr
    with (
        connect(cluster) as sock,
        trusting(authority).wrap_socket(sock, server_hostname="localhost") as secured,
    ):
        assert ask_versions(secured) == 7


def test_handshakes_that_stop_halfway_hold_up_nobody(
    cluster: Any, authority: CertificateAuthority
) -> None:
    half_open = [connect(cluster) for _ in range(1_000)]
    try:
        for sock in half_open:
            sock.sendall(b"\x16\x03\x01\x02\x00")
        with (
            connect(cluster) as sock,
            trusting(authority).wrap_socket(sock, server_hostname="localhost") as secured,
        ):
            assert ask_versions(secured) == 7
    finally:
        for sock in half_open:
            sock.close()


def test_a_client_with_a_certificate_is_known_by_its_subject(
    mutual: Any, authority: CertificateAuthority
) -> None:
    with (
        connect(mutual) as sock,
        trusting(authority, authority.sign("alice")).wrap_socket(
            sock, server_hostname="localhost"
        ) as secured,
    ):
        assert ask_versions(secured) == 7
        connections = mutual.nodes[0].socket_server._connections
        assert "User:CN=alice,O=Example" in {str(each.session.principal) for each in connections}


@pytest.mark.parametrize("certificate", ["none", "expired", "of another authority"])
def test_a_client_without_a_good_certificate_is_not_served(
    mutual: Any, authority: CertificateAuthority, tmp_path: Path, certificate: str
) -> None:
    path = {
        "none": lambda: None,
        "expired": lambda: authority.sign("late", expired=True),
        "of another authority": lambda: CertificateAuthority(tmp_path, "other CA").sign("mallory"),
    }[certificate]()
    with connect(mutual) as sock, pytest.raises((ssl.SSLError, ConnectionResetError)):
        with trusting(authority, path).wrap_socket(sock, server_hostname="localhost") as secured:
            ask_versions(secured)


def test_only_protocols_that_are_enabled_are_spoken(
    tls: BrokerConfig, authority: CertificateAuthority
) -> None:
    config = tls(ssl_enabled_protocols="TLSv1.3")
    with bradbury.local(config=config) as cluster, connect(cluster) as sock:
        context = trusting(authority)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            context.wrap_socket(sock, server_hostname="localhost")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ssl.keystore.type": "JKS"}, "needs ssl.keystore.type=PEM"),
        ({"ssl.keystore.location": "/nowhere.pem"}, "/nowhere.pem cannot be used"),
        ({"ssl.client.auth": "required"}, "needs ssl.truststore.location"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "is a list of TLSv1.2 and TLSv1.3"),
        ({"listeners": "PLAINTEXT://:0"}, "has no effect: no listener is SSL"),
        ({"listeners": "SASL_SSL://:0"}, "set sasl.enabled.mechanisms"),
        ({"listeners": "SSL://0.0.0.0:0"}, "names a host"),
        ({"listeners": "SSL://:9092"}, "is given by --port"),
        ({"listeners": "SSL://:0,SSL://:0"}, "two of the name"),
        ({"listeners": "CLIENT://:0"}, "CLIENT has no protocol"),
        ({"listeners": "SSL"}, "is not NAME://:port"),
        ({"ssl.cipher.suites": "x"}, "not available"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "has no effect: no listener is SASL"),
        ({"listener.name.ssl.ssl.client.auth": "sometimes"}, "must be one of"),
        ({"listener.name.other.ssl.client.auth": "none"}, "there is no listener OTHER"),
        ({"listener.name.ssl.num.partitions": "3"}, "no such setting of a single listener"),
        ({"ssl.principal.mapping.rules": "RULE:(/x/"}, "is not a regular expression"),
        ({"ssl.principal.mapping.rules": "CN=x"}, "is not a rule"),
        ({"ssl.keystore.key": "${env:NOT_THERE}"}, "are two keys"),
    ],
)
def test_settings_that_would_not_do_what_they_say_are_refused(
    tls: BrokerConfig, change: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidConfig, match=said):
        bradbury.local(config=tls() | change).close()


def test_a_key_with_a_password_is_refused(
    tls: BrokerConfig, authority: CertificateAuthority
) -> None:
    path = authority.sign("locked", password=b"secret")
    with pytest.raises(InvalidConfig, match=r"locked\.pem is encrypted, .*; set it"):
        bradbury.local(config=tls() | {"ssl.keystore.location": path}).close()


def test_several_nodes_that_trust_nobody_are_refused(tls: BrokerConfig) -> None:
    with pytest.raises(InvalidConfig, match="to the certificates that they trust"):
        bradbury.local(nodes=2, config=tls()).close()


def test_its_admin_is_to_be_told_whom_to_trust(
    cluster: Any, authority: CertificateAuthority
) -> None:
    with pytest.raises(InvalidConfig, match="ssl_truststore_location"):
        cluster.admin()
    with cluster.admin(
        security_protocol="SSL", ssl_truststore_location=authority.certificate
    ) as admin:
        assert isinstance(admin.list_topics(), list)
