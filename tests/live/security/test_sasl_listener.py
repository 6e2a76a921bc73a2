"""Listeners that ask who somebody is by SASL, several listeners of a node, and nodes among each other."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import kafka.errors
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import bradbury
from bradbury.clients.admin.users_admin import (
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from bradbury.protocol.errors import AuthenticationFailed, InvalidConfig
from bradbury.tests.support.certificates import CertificateAuthority

PATIENCE = 60
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USERS = (
    f'{PLAIN_MODULE} required username="node" password="n-secret" '
    'user_node="n-secret" user_alice="a-secret" user_bob="b-secret";'
)
PLAIN = {
    "listeners": "SASL_PLAINTEXT://:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS,
}
ALICE: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": "a-secret",
}


def secured(authority: CertificateAuthority) -> dict[str, str]:
    """CLIENT for everybody who has a password, INTERNAL for nodes, which have certificates."""
    return {
        "listeners": "CLIENT://:0,INTERNAL://:0",
        "listener.security.protocol.map": "CLIENT:SASL_SSL,INTERNAL:SSL",
        "inter.broker.listener.name": "INTERNAL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.sign("broker"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.certificate,
        "listener.name.internal.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": USERS,
    }


@pytest.fixture(scope="module")
def plain() -> Iterator[bradbury.LocalCluster]:
    with bradbury.local(nodes=2, config=PLAIN) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def several(authority: CertificateAuthority) -> Iterator[bradbury.LocalCluster]:
    """Three nodes with two listeners each."""
    with bradbury.local(nodes=3, config=secured(authority)) as cluster:
        yield cluster


def confluent(servers: str, **more: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": servers,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "a-secret",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def principals(cluster: bradbury.LocalCluster) -> set[str]:
    return {
        str(each.session.principal)
        for node in cluster.nodes
        for each in list(node.socket_server._connections)
    }


def connect(servers: str) -> socket.socket:
    host, port = servers.split(",")[0].split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def send(sock: socket.socket, api_key: int, version: int, body: bytes) -> None:
    frame = struct.pack(">hhih", api_key, version, 7, -1) + body
    sock.sendall(struct.pack(">i", len(frame)) + frame)


def receive(sock: socket.socket) -> bytes:
    """The next frame; nothing once the broker has closed the connection."""
    got = b""
    while len(got) < 4 or len(got) < 4 + int.from_bytes(got[:4], "big"):
        try:
            part = sock.recv(4096)
        except ConnectionResetError:
            part = b""
        if not part:
            return b""
        got += part
    return got[4:]


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


HANDSHAKE = struct.pack(">h5s", 5, b"PLAIN")


def token(name: str, password: str) -> bytes:
    said = f"\0{name}\0{password}".encode()
    return struct.pack(">i", len(said)) + said


def test_two_nodes_replicate_over_sasl_and_clients_of_others_are_served(plain: Any) -> None:
    admin = AdminClient(confluent(plain.bootstrap_servers))
    admin.create_topics([NewTopic("replicated", 2, 2)])["replicated"].result(PATIENCE)
    producer = confluent_kafka.Producer(confluent(plain.bootstrap_servers, acks="all"))
    for number in range(50):
        producer.produce("replicated", str(number).encode())
    assert producer.flush(PATIENCE) == 0
    consumer = kafka.KafkaConsumer(
        "replicated",
        bootstrap_servers=plain.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="bob",
        sasl_plain_password="b-secret",
        auto_offset_reset="earliest",
        consumer_timeout_ms=PATIENCE * 1000,
    )
    got = {next(consumer).value for _ in range(50)}
    assert {"User:alice", "User:bob", "User:node"} <= principals(plain)
    consumer.close()
    assert got == {str(number).encode() for number in range(50)}


def test_our_own_clients_are_who_they_say(plain: Any) -> None:
    with plain.admin(**ALICE) as admin:
        admin.create_topic("own", partitions=1)
    with bradbury.Producer(plain.bootstrap_servers, **ALICE) as producer:
        producer.send("own", b"a record").result(PATIENCE)


SCRAM = {
    "listeners": "INSIDE://:0,CLIENT://:0",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,CLIENT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
}


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_users_of_scram_come_and_go_with_the_metadata(mechanism: str) -> None:
    with bradbury.local(nodes=2, config=SCRAM) as cluster:
        servers = cluster.bootstrap_servers_of("CLIENT")
        with cluster.admin() as admin:
            admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion("alice", "a-secret", mechanism)]
            )
            how = ALICE | {"sasl_mechanism": mechanism}
            with bradbury.Admin(servers, **how) as as_alice:
                as_alice.create_topic("scram", partitions=1)
            wrong = how | {"sasl_password": "wrong"}
            with pytest.raises(AuthenticationFailed, match="invalid credentials"):
                bradbury.Admin(servers, **wrong).list_topics()
            produced = confluent_kafka.Producer(
                confluent(servers, sasl_mechanism=mechanism) | {"log_level": 0}
            )
            produced.produce("scram", b"a record")
            assert produced.flush(PATIENCE) == 0
            consumer = kafka.KafkaConsumer(
                "scram",
                bootstrap_servers=servers,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism=mechanism,
                sasl_plain_username="alice",
                sasl_plain_password="a-secret",
                auto_offset_reset="earliest",
                consumer_timeout_ms=PATIENCE * 1000,
            )
            assert next(consumer).value == b"a record"
            consumer.close()
            admin.alter_user_scram_credentials([UserScramCredentialDeletion("alice", mechanism)])
            wait_until(lambda: not any(node.image.scram_credentials for node in cluster.nodes))
            with pytest.raises(AuthenticationFailed, match="invalid credentials"):
                bradbury.Admin(servers, **how).list_topics()


def test_a_wrong_password_is_said_and_ends_the_connection(plain: Any) -> None:
    with pytest.raises(AuthenticationFailed, match="Invalid username or password"):
        plain.admin(**(ALICE | {"sasl_password": "wrong"})).list_topics()
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaAdminClient(
            bootstrap_servers=plain.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username="mallory",
            sasl_plain_password="a-secret",
            bootstrap_timeout_ms=3_000,
        )
    with connect(plain.bootstrap_servers) as sock:
        send(sock, 17, 1, HANDSHAKE)
        assert receive(sock)[4:6] == b"\0\0"
        send(sock, 36, 0, token("alice", "wrong"))
        assert receive(sock)[4:6] == struct.pack(">h", 58)
        assert receive(sock) == b""


@pytest.mark.parametrize("after_handshake", [False, True])
def test_nothing_is_answered_before_the_client_is_known(plain: Any, after_handshake: bool) -> None:
    with connect(plain.bootstrap_servers) as sock:
        if after_handshake:
            send(sock, 17, 1, HANDSHAKE)
            assert receive(sock)
        send(sock, 18, 0, b"")
        assert receive(sock)[4:6] == b"\0\0"
        send(sock, 3, 1, struct.pack(">i", -1))
        assert receive(sock) == b""


def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are(plain: Any) -> None:
    with connect(plain.bootstrap_servers) as sock:
        send(sock, 17, 1, struct.pack(">h6s", 6, b"GSSAPI"))
        answer = receive(sock)
        assert answer[4:6] == struct.pack(">h", 33)
        assert b"PLAIN" in answer
        assert receive(sock) == b""


def test_tokens_without_headers_are_taken_after_the_first_handshake(plain: Any) -> None:
    with connect(plain.bootstrap_servers) as sock:
        send(sock, 17, 0, HANDSHAKE)
        assert receive(sock)[4:6] == b"\0\0"
        sock.sendall(token("alice", "a-secret"))
        assert sock.recv(4) == b"\0\0\0\0"
        send(sock, 3, 1, struct.pack(">i", -1))
        assert receive(sock)
    with connect(plain.bootstrap_servers) as sock:
        send(sock, 17, 0, HANDSHAKE)
        assert receive(sock)
        sock.sendall(token("alice", "wrong"))
        assert receive(sock) == b""


def test_a_token_without_a_header_may_come_in_pieces(plain: Any) -> None:
    def received() -> set[int]:
        """Bytes of the incomplete requests of this client, by connection."""
        return {
            connection._incoming.filled
            for node in plain.nodes
            for connection in node.socket_server._connections
            if connection.peer.endswith(f":{port}") and connection._incoming.size
        }

    with connect(plain.bootstrap_servers) as sock:
        port = sock.getsockname()[1]
        send(sock, 17, 0, HANDSHAKE)
        assert receive(sock)[4:6] == b"\0\0"
        whole = token("alice", "a-secret")
        for first, last in ((0, 4), (4, 6), (6, 9)):
            sock.sendall(whole[first:last])
            wait_until(lambda: received() == {last - 4})  # noqa: B023 -- called at once
        sock.sendall(whole[9:])
        assert sock.recv(4) == b"\0\0\0\0"
        send(sock, 3, 1, struct.pack(">i", -1))
        assert receive(sock)


def test_a_token_of_a_megabyte_is_not_read(plain: Any) -> None:
    with connect(plain.bootstrap_servers) as sock:
        send(sock, 17, 1, HANDSHAKE)
        assert receive(sock)
        try:
            send(sock, 36, 0, struct.pack(">i", 2**20) + bytes(2**20))
        except (ConnectionResetError, BrokenPipeError):
            return
        assert receive(sock) == b""


def test_a_session_ends_when_it_is_not_prolonged_and_our_clients_prolong_it() -> None:
    config = PLAIN | {"connections.max.reauth.ms": "1500"}
    with bradbury.local(config=config) as cluster:
        with connect(cluster.bootstrap_servers) as sock:
            send(sock, 17, 1, HANDSHAKE)
            assert receive(sock)
            send(sock, 36, 1, token("alice", "a-secret"))
            answer = receive(sock)
            assert answer[4:6] == b"\0\0"
            assert 0 < int.from_bytes(answer[-8:], "big") <= 1500
            own = cluster.nodes[0]
            (connection,) = own.socket_server._connections
            wait_until(lambda: connection.session.sasl.refusal(3, own.now_ms()) is not None)
            send(sock, 3, 1, struct.pack(">i", -1))
            assert receive(sock) == b""
        with bradbury.Producer(cluster.bootstrap_servers, **ALICE) as producer:
            with cluster.admin(**ALICE) as admin:
                admin.create_topic("long", partitions=1)
            began = own.now_ms()
            while own.now_ms() - began < 4000:
                producer.send("long", b"x").result(PATIENCE)
            closed = own.metrics.connections_closed
            assert closed["authentication"] == 1
            found = producer.metrics()["producer-metrics"]
            assert found["successful-authentication-total"] == found["connection-count"]
            assert found["successful-reauthentication-total"] >= 2
            assert found["failed-reauthentication-total"] == 0


def test_a_client_counts_when_it_is_not_let_in(plain: Any) -> None:
    with bradbury.Producer(
        plain.bootstrap_servers, **ALICE | {"sasl_password": "wrong"}
    ) as producer:
        with pytest.raises(AuthenticationFailed):
            producer.send("any", b"x").result(PATIENCE)
        found = producer.metrics()["producer-metrics"]
    assert found["failed-authentication-total"] >= 1
    assert found["successful-authentication-total"] == found["failed-reauthentication-total"] == 0


def test_a_mechanism_of_a_listener_has_a_lifetime_of_its_own() -> None:
    config = PLAIN | {
        "connections.max.reauth.ms": "1000",
        "listener.name.sasl_plaintext.connections.max.reauth.ms": "2000",
        "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "3000000",
    }
    with bradbury.local(config=config) as cluster, connect(cluster.bootstrap_servers) as sock:
        send(sock, 17, 1, HANDSHAKE)
        assert receive(sock)
        send(sock, 36, 1, token("alice", "a-secret"))
        assert int.from_bytes(receive(sock)[-8:], "big") == 3_000_000


def test_nobody_becomes_somebody_else_on_a_connection(plain: Any) -> None:
    with connect(plain.bootstrap_servers) as sock:
        send(sock, 17, 1, HANDSHAKE)
        assert receive(sock)
        send(sock, 36, 1, token("alice", "a-secret"))
        assert receive(sock)[4:6] == b"\0\0"
        send(sock, 17, 1, HANDSHAKE)
        assert receive(sock)[4:6] == struct.pack(">h", 34)  # within a second of the last one
        node = plain.nodes[0]
        began = node.now_ms()
        wait_until(lambda: node.now_ms() - began > 1000)
        send(sock, 17, 1, HANDSHAKE)
        assert receive(sock)[4:6] == b"\0\0"
        send(sock, 36, 1, token("bob", "b-secret"))
        answer = receive(sock)
        assert answer[4:6] == struct.pack(">h", 58)
        assert b"Cannot change principals" in answer
        assert receive(sock) == b""


def test_clients_and_nodes_have_listeners_of_their_own(
    several: Any, authority: CertificateAuthority
) -> None:
    trusting = {
        **ALICE,
        "security_protocol": "SASL_SSL",
        "ssl_truststore_location": authority.certificate,
    }
    with several.admin(**trusting) as admin:
        admin.create_topic("three", partitions=3, replication_factor=3)
        told = {f"{node.host}:{node.port}" for node in admin.describe_cluster().brokers}
    assert told == set(several.bootstrap_servers_of("CLIENT").split(","))
    assert told == set(several.bootstrap_servers.split(","))
    with bradbury.Producer(several.bootstrap_servers, acks="all", **trusting) as producer:
        for number in range(100):
            producer.send("three", str(number).encode())
    assert {"User:CN=broker,O=Example"} <= principals(several)

    inside = kafka.KafkaConsumer(
        "three",
        bootstrap_servers=several.bootstrap_servers_of("INTERNAL"),
        security_protocol="SSL",
        ssl_cafile=authority.certificate,
        ssl_certfile=authority.sign("monitor"),
        auto_offset_reset="earliest",
        consumer_timeout_ms=PATIENCE * 1000,
    )
    assert len({next(inside).value for _ in range(100)}) == 100
    addresses = {f"{each.host}:{each.port}" for each in inside._client.cluster.brokers()}
    assert addresses == set(several.bootstrap_servers_of("INTERNAL").split(","))
    inside.close()


def test_without_a_certificate_nobody_is_served_where_nodes_are(
    several: Any, authority: CertificateAuthority
) -> None:
    context = ssl.create_default_context(cafile=authority.certificate)
    with (
        connect(several.bootstrap_servers_of("INTERNAL")) as sock,
        pytest.raises((ssl.SSLError, ConnectionResetError)),
        context.wrap_socket(sock, server_hostname="localhost") as secured_socket,
    ):
        send(secured_socket, 18, 0, b"")
        secured_socket.recv(1)


def test_a_node_that_stops_is_copied_up_again_over_tls(
    several: Any, authority: CertificateAuthority
) -> None:
    trusting = {
        **ALICE,
        "security_protocol": "SASL_SSL",
        "ssl_truststore_location": authority.certificate,
    }
    with several.admin(**trusting) as admin:
        admin.create_topic("copied", partitions=1, replication_factor=3)
        several.stop_node(2)
        with bradbury.Producer(several.bootstrap_servers, acks="all", **trusting) as producer:
            for _ in range(50):
                producer.send("copied", bytes(50_000))
        several.start_node(2)
        node = several.nodes[0]
        wait_until(lambda: len(node.image.partition("copied", 0).isr) == 3)


@pytest.mark.long  # files are looked at every ten seconds
def test_a_certificate_is_replaced_while_the_node_runs(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    path = tmp_path / "broker.pem"
    path.write_text(Path(authority.sign("first")).read_text())
    config = {
        "listeners": "SSL://:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(path),
    }
    context = ssl.create_default_context(cafile=authority.certificate)

    def name() -> str:
        with (
            connect(cluster.bootstrap_servers) as sock,
            context.wrap_socket(sock, server_hostname="localhost") as secured_socket,
        ):
            subject: Any = secured_socket.getpeercert()["subject"]  # type: ignore[index]
            return str(dict(part[0] for part in subject)["commonName"])

    with bradbury.local(config=config) as cluster:
        assert name() == "first"
        path.write_text("no certificate")
        cluster.nodes[0].socket_server._reload_certificates()
        assert name() == "first"
        path.write_text(Path(authority.sign("second")).read_text())
        wait_until(lambda: name() == "second")


def test_a_subject_becomes_a_name_by_the_rules(authority: CertificateAuthority) -> None:
    config = {
        "listeners": "SSL://:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.sign("broker"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.certificate,
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(S[a-z]*),.*$/$1/L,RULE:^CN=node-.*$/nodes/",
    }
    with bradbury.local(config=config) as cluster:

        def asks(name: str) -> bytes:
            context = ssl.create_default_context(cafile=authority.certificate)
            context.load_cert_chain(authority.sign(name))
            with (
                connect(cluster.bootstrap_servers) as sock,
                context.wrap_socket(sock, server_hostname="localhost") as secured_socket,
            ):
                send(secured_socket, 18, 0, b"")
                answer = receive(secured_socket)
                names.update(principals(cluster))
                return answer

        names: set[str] = set()
        assert asks("Sally")
        assert asks("node-7")
        assert names >= {"User:sally", "User:nodes"}
        assert asks("eve") == b""


def test_secrets_are_read_where_they_stand_and_shown_to_nobody(tmp_path: Path) -> None:
    (tmp_path / "users").write_text(f"jaas={USERS}\n")
    config = PLAIN | {
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"${{file:{tmp_path}/users:jaas}}"
    }
    with bradbury.local(config=config) as cluster, cluster.admin(**ALICE) as admin:
        assert "secret" not in repr(cluster.nodes[0].server_config)
        shown = AdminClient(confluent(cluster.bootstrap_servers))
        resource = confluent_kafka.admin.ConfigResource(
            confluent_kafka.admin.ConfigResource.Type.BROKER, str(cluster.nodes[0].node_id)
        )
        entries = shown.describe_configs([resource])[resource].result(PATIENCE)
        assert entries["ssl.key.password"].is_sensitive
        assert entries["ssl.key.password"].value is None
        assert not [each for each in entries.values() if "secret" in str(each.value)]
        assert admin.list_topics() == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sasl.enabled.mechanisms": ""}, "set sasl.enabled.mechanisms"),
        ({"sasl.enabled.mechanisms": "OTHER"}, "is a list of"),
        ({"sasl.enabled.mechanisms": "PLAIN,GSSAPI"}, "GSSAPI \\(Kerberos\\) is not there; SCRAM"),
        ({"listener.name.sasl_plaintext.sasl.enabled.mechanisms": "GSSAPI"}, "is not there"),
        ({"sasl.mechanism.inter.broker.protocol": "GSSAPI"}, "is not there"),
        ({"sasl.kerberos.service.name": "kafka"}, "is not there"),
        ({"listener.name.sasl_plaintext.gssapi.sasl.jaas.config": "secret"}, "is not there"),
        ({"sasl.mechanism.inter.broker.protocol": ""}, "must be one of the mechanisms"),
        ({"listener.name.sasl_plaintext.plain.sasl.jaas.config": ""}, "no user is defined"),
        (
            {"listener.name.sasl_plaintext.plain.sasl.jaas.config": "secret"},
            "`required` after the login module is missing",
        ),
        (
            {"listener.name.sasl_plaintext.plain.sasl.jaas.config": "${file:/nowhere:jaas}"},
            "cannot be read",
        ),
        ({"inter.broker.listener.name": "OTHER"}, "must be one of SASL_PLAINTEXT"),
        ({"ssl.client.auth": "required"}, "has no effect: no listener is SSL"),
        ({"sasl.oauthbearer.expected.issuer": "x"}, "has no effect: no listener has OAUTHBEARER"),
        ({"delegation.token.max.lifetime.ms": "1"}, "has no effect: delegation.token.secret.key"),
        (
            {"listener.name.SASL_PLAINTEXT.connections.max.reauth.ms": "1"},
            "written in lower case",
        ),
    ],
)
def test_settings_that_would_not_do_what_they_say_are_refused(
    change: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidConfig, match=said) as refused:
        bradbury.local(config=PLAIN | change).close()
    assert "-secret" not in str(refused.value)


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_nodes_log_in_to_each_other_by_scram(
    authority: CertificateAuthority, protocol: str
) -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    config = {
        "listeners": "ROOT://:0,INTERNAL://:0",
        "listener.security.protocol.map": f"ROOT:PLAINTEXT,INTERNAL:{protocol}",
        "inter.broker.listener.name": "INTERNAL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.internal.scram-sha-512.sasl.jaas.config": (
            f'{module} required username="node" password="n-secret";'
        ),
    }
    if protocol == "SASL_SSL":
        config |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": authority.sign("broker"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": authority.certificate,
        }
    with bradbury.local(nodes=2, config=config) as cluster, cluster.admin() as admin:
        admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("node", "n-secret", "SCRAM-SHA-512")]
        )
        admin.create_topic("replicated", 2, 2)
        with bradbury.Producer(cluster.bootstrap_servers, acks="all") as producer:
            for number in range(50):
                producer.send("replicated", b"%d" % number)
        image = cluster.nodes[0].image
        for partition in range(2):
            found = image.partition("replicated", partition)
            assert found is not None
            assert len(found.isr) == 2, "the other node has what was acknowledged"
        assert "User:node" in principals(cluster)
