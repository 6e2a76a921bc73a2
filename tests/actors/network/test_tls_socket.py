"""A TLS socket, whose peer's bytes come in pieces that a test chooses.

With OpenSSL apart from the socket, and on it; where this machine's kernel has TLS, with that.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from bradbury.actors.network.kernel_tls import OP_ENABLE_KTLS, KernelTlsSocket, is_available
from bradbury.actors.network.tls_socket import RecordBoundaries, TlsSocket
from bradbury.tests.support.certificates import CertificateAuthority


class Peer:
    """A client of OpenSSL's in memory: what it says is in `says`, and sent by hand."""

    def __init__(self, authority: CertificateAuthority, end: socket.socket) -> None:
        context = ssl.create_default_context(cafile=authority.certificate)
        self._end = end
        self._heard, self._says = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._heard, self._says, server_hostname="localhost")

    def do_handshake(self) -> bool:
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

    def read(self) -> bytes:
        """Blocks until something has come; what is decrypted of it."""
        self.hear()
        found = bytearray()
        with suppress(ssl.SSLWantReadError):
            while True:
                found += self._tls.read(64 * 1024)
        return bytes(found)

    def farewell(self) -> bytes:
        """TLS's own message of the end."""
        with suppress(ssl.SSLWantReadError):
            self._tls.unwrap()
        return self._says.read()

    def leave(self) -> None:
        self._end.shutdown(socket.SHUT_WR)

    def send(self, encrypted: bytes) -> None:
        self._end.sendall(encrypted)


Served = TlsSocket | KernelTlsSocket
VERSIONS = {"TLS 1.2": ssl.TLSVersion.TLSv1_2, "TLS 1.3": ssl.TLSVersion.TLSv1_3}


@pytest.fixture(params=["apart", "on the socket"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Without the kernel's TLS OpenSSL decrypts on the socket, which no listener would do."""
    monkeypatch.setattr(KernelTlsSocket, "must_decrypt", is_available())
    return str(request.param)


@pytest.fixture(params=list(VERSIONS))
def pair(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[Served, Peer]]:
    """Both know each other; nothing is on its way."""
    authority = CertificateAuthority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0
    context.minimum_version = context.maximum_version = VERSIONS[request.param]
    context.load_cert_chain(authority.sign("broker"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        there = socket.create_connection(listener.getsockname())
        here = listener.accept()[0]
    for end in (here, there):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    here.setblocking(False)
    served: Served
    if kind == "apart":
        served = TlsSocket(here, context)
    else:
        context.options |= OP_ENABLE_KTLS
        served = KernelTlsSocket(here, context)
    peer, is_secured, knows = Peer(authority, there), False, False
    while not (is_secured and knows):
        knows = knows or peer.do_handshake()
        if not is_secured:
            wait(served)
            is_secured = served.do_handshake()
            served.flush()
        if not knows:
            peer.hear()
    yield served, peer
    served.close()
    there.close()


def is_readable(served: Served, seconds: float) -> bool:
    poll = select.poll()  # not select(), which takes no descriptor above 1023
    poll.register(served.fileno(), select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def wait(served: Served) -> None:
    """Until the socket is readable."""
    assert is_readable(served, 30)


def received(served: Served, size: int) -> bytes:
    view = memoryview(bytearray(size))
    return bytes(view[: served.recv_into(view)])


def is_due(served: Served) -> bool:
    """Whether an event loop reads again: it is told so, or the socket is readable."""
    return served.has_received or is_readable(served, 0)


def test_what_is_decrypted_or_could_be_is_said_to_be_there(pair: tuple[Served, Peer]) -> None:
    served, peer = pair
    assert not is_due(served)
    peer.send(peer.record(b"abcdef") + peer.record(b"ghi"))
    wait(served)
    assert received(served, 2) == b"ab"
    assert is_due(served)  # cdef is decrypted, ghi is not
    assert received(served, 4) == b"cdef"
    assert is_due(served)
    assert received(served, 10) == b"ghi"
    assert not is_due(served)
    with pytest.raises(BlockingIOError):
        served.recv_into(memoryview(bytearray(1)))


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_the_beginning_of_a_record_is_nothing_that_could_be_read(
    pair: tuple[Served, Peer], cut: int
) -> None:
    """Nobody is to look again before the socket has more."""
    served, peer = pair
    record = peer.record(b"b" * 100)
    peer.send(record[:cut])
    wait(served)
    with pytest.raises(BlockingIOError):
        received(served, 1_000)
    assert not served.has_received
    peer.send(record[cut:])
    wait(served)
    assert received(served, 50) == b"b" * 50
    assert is_due(served)
    assert received(served, 1_000) == b"b" * 50
    assert not served.has_received


def test_a_record_and_a_half_are_one_record_and_then_nothing(
    pair: tuple[Served, Peer],
) -> None:
    served, peer = pair
    first, second = peer.record(b"first"), peer.record(b"second")
    peer.send(first + second[:7])
    wait(served)
    assert received(served, 1_000) == b"first"
    assert not served.has_received
    peer.send(second[7:])
    wait(served)
    assert received(served, 1_000) == b"second"


def test_the_end_of_the_peer_is_an_empty_read(pair: tuple[Served, Peer]) -> None:
    served, peer = pair
    peer.send(peer.record(b"last"))
    wait(served)
    assert received(served, 1_000) == b"last"
    peer.leave()
    wait(served)
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


def test_openssl_is_not_asked_for_a_record_that_is_not_whole(pair: tuple[Served, Peer]) -> None:
    served, peer = pair
    first, second = peer.record(b"first"), peer.record(b"second")
    peer.send(first + second[:9])
    wait(served)
    assert received(served, 100) == b"first"
    assert not served.has_received, "or the loop would try again and again"
    with pytest.raises(BlockingIOError):
        received(served, 100)
    peer.send(second[9:])
    wait(served)
    assert received(served, 100) == b"second"


def test_answers_and_files_arrive_whole_though_the_peer_is_slow(
    pair: tuple[Served, Peer], tmp_path: Path
) -> None:
    """What a socket does not take is given to it again, as a connection does."""
    served, peer = pair
    content = os.urandom(3_000_000)
    path = tmp_path / "segment"
    path.write_bytes(content)
    got = bytearray()

    def give(send: Callable[[int], int], size: int) -> None:
        sent = 0
        while sent < size or served.has_unsent:
            try:
                if sent < size:
                    sent += send(sent)
                else:
                    served.flush()
            except BlockingIOError:
                got.extend(peer.read())

    give(lambda at: served.send(memoryview(content)[at:]), len(content))
    small = [b"head", content[:20], b"tail"]
    assert served.sendmsg(small) == sum(map(len, small))
    with path.open("rb") as file:
        if served.sends_files:
            give(
                lambda at: os.sendfile(served.fileno(), file.fileno(), at, len(content) - at),
                len(content),
            )
        else:
            give(lambda at: served.send(os.pread(file.fileno(), 100_000, at)), len(content))
    expected = content + b"".join(small) + content
    while len(got) < len(expected):
        got.extend(peer.read())
    assert got == expected


def test_the_kernel_encrypts_where_it_can(kind: str, pair: tuple[Served, Peer]) -> None:
    assert pair[0].sends_files == (kind == "on the socket" and is_available())


@pytest.mark.skipif(is_available(), reason="this machine's kernel decrypts")
def test_a_connection_that_the_kernel_does_not_decrypt_is_refused(tmp_path: Path) -> None:
    """Or one that sends nothing but key updates would hold up all others."""
    authority = CertificateAuthority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.sign("broker"))
    here, there = socket.socketpair()
    here.setblocking(False)
    served, peer = KernelTlsSocket(here, context), Peer(authority, there)
    assert not peer.do_handshake()
    assert not served.do_handshake()
    peer.hear()
    assert peer.do_handshake()
    with pytest.raises(ssl.SSLError, match="does not decrypt"):
        served.do_handshake()
    served.close()
    there.close()


def test_a_peer_that_says_that_it_ends_is_an_empty_read(pair: tuple[Served, Peer]) -> None:
    """An alert is a record that the kernel does not understand."""
    served, peer = pair
    peer.send(peer.record(b"last") + peer.farewell())
    wait(served)
    assert received(served, 100) == b"last"
    assert received(served, 100) == b""


def test_garbage_ends_the_connection(pair: tuple[Served, Peer]) -> None:
    served, peer = pair
    record = bytearray(peer.record(b"a" * 100))
    record[30] ^= 1
    peer.send(record)
    wait(served)
    with pytest.raises(OSError) as raised:
        received(served, 1_000)
    assert not isinstance(raised.value, BlockingIOError)
