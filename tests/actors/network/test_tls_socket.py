"""A TLS socket, whose peer's bytes come in pieces that a test chooses."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from bradbury.actors.network.tls_socket import RecordBoundaries, TlsSocket
from bradbury.tests.support.certificates import CertificateAuthority


class Peer:
    """A client of OpenSSL's in memory: what it says is in `says`, and sent by hand."""

    def __init__(self, authority: CertificateAuthority, end: socket.socket) -> None:
        context = ssl.create_default_context(cafile=authority.certificate)
        self._end = end
        self._heard, self._says = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._heard, self._says, server_hostname="localhost")

    def shake_hands(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self.send(self._says.read())
            return False
        self.send(self._says.read())
        return True

    def hear(self) -> None:
        self._heard.write(self._end.recv(64 * 1024))

    def record(self, data: bytes) -> bytes:
        """One TLS record."""
        self._tls.write(data)
        return self._says.read()

    def leave(self) -> None:
        self._end.shutdown(socket.SHUT_WR)

    def send(self, encrypted: bytes) -> None:
        self._end.sendall(encrypted)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[TlsSocket, Peer]]:
    """Both know each other; nothing is on its way."""
    authority = CertificateAuthority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0
    context.load_cert_chain(authority.sign("broker"))
    here, there = socket.socketpair()
    here.setblocking(False)
    served, peer = TlsSocket(here, context), Peer(authority, there)
    assert not peer.shake_hands()
    assert not served.shake_hands()
    peer.hear()
    assert peer.shake_hands()
    assert served.shake_hands()
    yield served, peer
    served.close()
    there.close()


def received(served: TlsSocket, size: int) -> bytes:
    view = memoryview(bytearray(size))
    return bytes(view[: served.recv_into(view)])


def test_what_is_decrypted_or_could_be_is_said_to_be_there(pair: tuple[TlsSocket, Peer]) -> None:
    served, peer = pair
    assert not served.has_received
    peer.send(peer.record(b"abcdef") + peer.record(b"ghi"))
    assert received(served, 2) == b"ab"
    assert served.has_received  # cdef is decrypted, ghi is not
    assert received(served, 4) == b"cdef"
    assert served.has_received
    assert received(served, 10) == b"ghi"
    assert not served.has_received
    with pytest.raises(BlockingIOError):
        served.recv_into(memoryview(bytearray(1)))


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_the_beginning_of_a_record_is_nothing_that_could_be_read(
    pair: tuple[TlsSocket, Peer], cut: int
) -> None:
    """Nobody is to look again before the socket has more."""
    served, peer = pair
    record = peer.record(b"b" * 100)
    peer.send(record[:cut])
    with pytest.raises(BlockingIOError):
        received(served, 1_000)
    assert not served.has_received
    peer.send(record[cut:])
    assert received(served, 50) == b"b" * 50
    assert served.has_received
    assert received(served, 1_000) == b"b" * 50
    assert not served.has_received


def test_a_record_and_a_half_are_one_record_and_then_nothing(
    pair: tuple[TlsSocket, Peer],
) -> None:
    served, peer = pair
    first, second = peer.record(b"first"), peer.record(b"second")
    peer.send(first + second[:7])
    assert received(served, 1_000) == b"first"
    assert not served.has_received
    peer.send(second[7:])
    assert received(served, 1_000) == b"second"


def test_the_end_of_the_peer_is_an_empty_read(pair: tuple[TlsSocket, Peer]) -> None:
    served, peer = pair
    peer.send(peer.record(b"last"))
    peer.leave()
    assert received(served, 1_000) == b"last"
    assert received(served, 1_000) == b""


@given(st.lists(st.integers(0, 40), max_size=8), st.lists(st.integers(1, 30)))
def test_the_bytes_of_a_record_that_is_not_whole_are_counted_however_they_come(
    sizes: list[int], pieces: list[int]
) -> None:
    stream, whole_to = b"", [0]
    for size in sizes:
        stream += b"\x17\x03\x03" + size.to_bytes(2) + bytes(size)
        whole_to.append(len(stream))
    boundaries, at = RecordBoundaries(), 0
    for piece in [*pieces, len(stream)]:
        received = stream[at : at + piece]
        at += len(received)
        boundaries.follow(received)
        assert boundaries.begun == at - max(end for end in whole_to if end <= at)


def test_openssl_is_not_asked_for_a_record_that_is_not_whole(pair: tuple[TlsSocket, Peer]) -> None:
    served, peer = pair
    first, second = peer.record(b"first"), peer.record(b"second")
    peer.send(first + second[:9])
    assert received(served, 100) == b"first"
    assert not served.has_received, "or the loop would try again and again"
    with pytest.raises(BlockingIOError):
        received(served, 100)
    peer.send(second[9:])
    assert received(served, 100) == b"second"
