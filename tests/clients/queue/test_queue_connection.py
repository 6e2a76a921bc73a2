"""A process's connection to the actor of a queue, with a peer on a socket in the actor's place."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from bradbury.clients.queue.frames.item_codec import encode_items
from bradbury.clients.queue.frames.queue_frames import (
    HEADER,
    PUT_BODY,
    VALUE,
    FrameKind,
    ItemPiece,
    frame,
    pack_items,
)
from bradbury.clients.queue.queue import _replay_start
from bradbury.clients.queue.queue_connection import QueueAddress, QueueConnection
from bradbury.protocol.errors import ConnectionFailed

LARGE = b"x" * 20_000_000
"""More than the sockets of a connection have room for."""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server


def address_of(listener: socket.socket) -> QueueAddress:
    host, port = listener.getsockname()[:2]
    settings = {"lease_s": 30.0, "max_deliveries": 5, "retention_s": 0.0}
    return QueueAddress(host, port, bytes(32), maxsize=9, **settings)


def connection_to(listener: socket.socket) -> QueueConnection:
    return QueueConnection(lambda: address_of(listener))


def read_frame(peer: socket.socket) -> tuple[int, int, bytes]:
    length, kind, number = HEADER.unpack(read(peer, HEADER.size))
    return kind, number, read(peer, length - (HEADER.size - 4))


def read(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = peer.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return bytes(data)


def test_a_large_put_leaves_while_the_actor_only_writes(listener: socket.socket) -> None:
    """Both sides have more to say than fits: the actor reads when its items have been read."""
    connection = connection_to(listener)
    put_comes = threading.Event()

    def act() -> None:
        peer, _ = listener.accept()
        with closing(peer):
            assert read_frame(peer)[0] == FrameKind.HELLO
            takes = [read_frame(peer)[1] for _ in range(3)]
            put_comes.wait(30)
            _, value = encode_items([LARGE])
            for number in takes:
                piece = ItemPiece(number, 0, 1, 1, True, value)
                peer.sendall(frame(FrameKind.ITEMS, number, *pack_items([piece])))
            while True:
                kind, number, body = read_frame(peer)
                if kind == FrameKind.PUT:
                    assert len(body) == PUT_BODY.size + len(LARGE)
                    peer.sendall(frame(FrameKind.DONE, number, VALUE.pack(7)))
                    with suppress(EOFError):
                        while True:
                            read_frame(peer)
                    return

    actor = threading.Thread(target=act, daemon=True)
    actor.start()
    received = [connection.receive(1, 1, 30.0) for _ in range(3)]
    put = threading.Thread(
        target=lambda: done.append(connection.ask(FrameKind.PUT, LARGE, count=1).result(30)),
        daemon=True,
    )
    done: list[int] = []
    put.start()
    put_comes.set()
    assert [answer.result(30)[0].item for answer in received] == [LARGE] * 3
    put.join(30)
    assert done == [7]
    connection.close(30)
    actor.join(30)
    assert not actor.is_alive()


def test_a_call_that_begins_while_the_queue_ends_does_not_wait(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread has seen the connection, and is stopped before it takes the lock."""
    connection = connection_to(listener)
    address = connection.connect()
    connection.close()
    monkeypatch.setattr(connection, "connect", lambda: address)
    for call in (
        lambda: connection.fetch(1, None),
        lambda: connection.receive(1, 1, None),
        lambda: connection.ask(FrameKind.PUT, b"", count=1),
        lambda: connection.ask(FrameKind.SIZE),
    ):
        with pytest.raises(ConnectionFailed, match="the queue is closed"):
            call()


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (datetime(2026, 1, 1), "time:1767225600000"),
        (datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), "time:1767225600000"),
        (datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC), "time:1767225600001"),
        (17, "offset:17"),
        ("latest", "latest"),
    ],
)
def test_a_replay_starts_where_it_is_told(
    start: str | int | datetime, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time without a zone is UTC, as everywhere else, and not that of the machine."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert _replay_start(start) == said
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("start", [True, "yesterday", 1.5])
def test_a_replay_from_nowhere_is_refused(start: Any) -> None:
    with pytest.raises(ValueError, match="use an offset, a datetime, 'earliest' or 'latest'"):
        _replay_start(start)
