"""What reaches a SASL listener and is no honest log-in: it lets nobody in, and costs nobody else."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

import bradbury
from bradbury.clients.admin.users_admin import UserScramCredentialUpsertion
from bradbury.protocol.security.sasl_client import SaslExchange

PATIENCE = 60
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
CONFIG = {
    "listeners": "INSIDE://:0,CLIENT://:0",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,CLIENT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.client.plain.sasl.jaas.config": f'{MODULE} required user_alice="a-secret";',
    # Who fails is not to hold up the test.
    "connection.failed.authentication.delay.ms": "0",
}
FRAMES = 400
SASL_AUTHENTICATE, SASL_HANDSHAKE = 36, 17


@pytest.fixture(scope="module")
def cluster() -> Iterator[bradbury.LocalCluster]:
    with bradbury.local(config=CONFIG) as cluster:
        with cluster.admin() as admin:
            admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion("bob", "b-secret", "SCRAM-SHA-256")]
            )
        yield cluster


def connect(cluster: bradbury.LocalCluster) -> socket.socket:
    host, port = cluster.bootstrap_servers_of("CLIENT").split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def frame(api_key: int, version: int, body: bytes) -> bytes:
    content = struct.pack(">hhih", api_key, version, 7, -1) + body
    return struct.pack(">i", len(content)) + content


def text(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


def token(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def receive(sock: socket.socket) -> bytes:
    """The next frame without its length; nothing once the connection is closed."""
    got = b""
    while len(got) < 4 or len(got) < 4 + int.from_bytes(got[:4], "big"):
        try:
            part = sock.recv(4096)
        except ConnectionResetError:
            return b""
        if not part:
            return b""
        got += part
    return got[4:]


def sessions(cluster: bradbury.LocalCluster) -> list[Any]:
    return [each.session for each in list(cluster.nodes[0].socket_server._connections)]


def is_served(cluster: bradbury.LocalCluster) -> bool:
    how: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256"}
    with bradbury.Admin(
        cluster.bootstrap_servers_of("CLIENT"), sasl_username="bob", sasl_password="b-secret", **how
    ) as admin:
        return admin.list_topics() == []


def changed(content: bytes, dice: random.Random) -> bytes:
    """Some bytes are others, are gone, or are there twice; the length says what it is then."""
    body = bytearray(content[4:])
    for _ in range(dice.randint(1, 4)):
        place = dice.randrange(len(body))
        match dice.randrange(4):
            case 0:
                body[place] = dice.randrange(256)
            case 1:
                body[place] ^= 1 << dice.randrange(8)
            case 2 if len(body) > 12:
                del body[place : place + dice.randint(1, 8)]
            case _:
                body[place:place] = body[place : place + dice.randint(1, 40)]
    return struct.pack(">i", len(body)) + bytes(body)


# From some refusals on, this address waits a second for each.
@pytest.mark.parametrize("frames", [FRAMES // 2, pytest.param(2 * FRAMES, marks=pytest.mark.deep)])
def test_frames_that_were_changed_let_nobody_in(
    cluster: bradbury.LocalCluster, frames: int
) -> None:
    dice = random.Random(18)
    said = b"\0alice\0a-secret"
    honest = frame(SASL_AUTHENTICATE, 1, token(said))
    for _ in range(frames):
        sent = changed(honest, dice)
        with connect(cluster) as sock:
            sock.sendall(frame(SASL_HANDSHAKE, 1, text(b"PLAIN")))
            assert receive(sock)
            sock.sendall(sent)
            sock.shutdown(socket.SHUT_WR)
            answer = receive(sock)
            asked = int.from_bytes(sent[4:6], "big")
            is_let_in = asked == SASL_AUTHENTICATE and answer[4:6] == b"\0\0"
            assert not is_let_in or token(said) in sent, sent
    assert cluster.nodes[0].metrics.unexpected_errors == 0
    assert is_served(cluster)


def test_what_follows_a_refusal_does_not_make_it_come_sooner(
    cluster: bradbury.LocalCluster,
) -> None:
    with connect(cluster) as sock:
        sock.sendall(frame(SASL_HANDSHAKE, 1, text(b"PLAIN")))
        assert receive(sock)
        refused = frame(SASL_AUTHENTICATE, 0, token(b"\0alice\0wrong"))
        sock.sendall(refused + frame(3, 1, struct.pack(">i", -1)))
        assert receive(sock)[4:6] == struct.pack(">h", 58)
        assert receive(sock) == b""


def test_scram_messages_that_were_changed_let_nobody_in(cluster: bradbury.LocalCluster) -> None:
    dice = random.Random(19)
    for number in range(FRAMES // 4):
        exchange = SaslExchange("SCRAM-SHA-256", "bob", "b-secret", nonce=f"nonce{number}")
        with connect(cluster) as sock:
            sock.sendall(frame(SASL_HANDSHAKE, 1, text(b"SCRAM-SHA-256")))
            assert receive(sock)
            sock.sendall(frame(SASL_AUTHENTICATE, 0, token(exchange.first())))
            challenge = receive(sock)
            assert challenge[4:6] == b"\0\0"
            final = exchange.on_challenge(challenge[12:])
            assert final is not None
            body = bytearray(final)
            body[dice.randrange(len(body))] ^= 1 << dice.randrange(8)
            sock.sendall(frame(SASL_AUTHENTICATE, 0, token(bytes(body))))
            assert receive(sock)[4:6] == struct.pack(">h", 58)
            assert receive(sock) == b""
    assert is_served(cluster)


def test_a_thousand_clients_that_never_log_in_hold_up_nobody(
    cluster: bradbury.LocalCluster,
) -> None:
    idle = []
    try:
        for _ in range(1_000):
            sock = connect(cluster)
            sock.sendall(frame(SASL_HANDSHAKE, 1, text(b"PLAIN")))
            idle.append(sock)
        assert is_served(cluster)
        assert {str(each.principal) for each in sessions(cluster)} <= {
            "User:ANONYMOUS",
            "User:bob",
        }
        assert cluster.nodes[0].socket_server.memory.used < 2**20
    finally:
        for sock in idle:
            sock.close()


@pytest.mark.parametrize(
    "said", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\1\0"]
)
def test_what_is_not_kafka_costs_its_connection(
    cluster: bradbury.LocalCluster, said: bytes
) -> None:
    with connect(cluster) as sock:
        sock.sendall(said)
        assert receive(sock) == b""
