"""TLS on a non-blocking socket, with the few methods that a connection uses of a plain one.

OpenSSL works on memory buffers here, not on the socket, so that reading never waits for writing or
the other way round. Encrypted bytes that the socket has not accepted yet are kept: at most
MAX_ENCRYPTED bytes and handshake messages. Nothing more is encrypted until they are sent.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

READ_BYTES: Final = 64 * 1024
MAX_ENCRYPTED: Final = 64 * 1024
RECORD_HEADER: Final = 5
"""Bytes of a TLS record header: type, version, and length (RFC 8446, 5.1)."""
MOST_WITHOUT_DATA: Final = 1024 * 1024
"""Maximum bytes of TLS messages without data in a row; each may cost a change of keys."""
# RFC 2253, as Java's X500Principal writes a name.
_SHORT: Final = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}


class ConnectedSocket(Protocol):
    """The methods of a socket, plain or behind TLS, that a connection uses."""

    def fileno(self) -> int: ...
    def close(self) -> None: ...
    def recv_into(self, view: memoryview, /) -> int: ...
    def send(self, data: bytes | bytearray | memoryview, /) -> int: ...
    def sendmsg(
        self,
        buffers: Iterable[bytes | bytearray | memoryview],
        ancillary: tuple[()],
        flags: int,
        /,
    ) -> int: ...


class RecordBoundaries:
    """Finder of the incomplete TLS record at the end of received bytes: the last `begun` ones."""

    __slots__ = ("_awaited", "_header", "begun")

    def __init__(self) -> None:
        self.begun = 0
        self._header = b""
        self._awaited = 0  # bytes that have still to come; known once the header is

    def follow(self, received: bytes) -> None:
        """Take more received bytes into account."""
        at, end = 0, len(received)
        if self.begun:
            at = RECORD_HEADER - len(self._header)
            if at:
                self._header += received[:at]
                if len(self._header) < RECORD_HEADER:
                    self.begun += end
                    return
                self._awaited = int.from_bytes(self._header[3:])
            if end - at < self._awaited:
                self._awaited -= end - at
                self.begun += end
                return
            at += self._awaited
        following = at
        while end - at >= RECORD_HEADER:
            following = at + RECORD_HEADER + (received[at + 3] << 8 | received[at + 4])
            if following > end:
                break
            at = following
        self.begun = end - at
        self._header = received[at : at + RECORD_HEADER]
        self._awaited = following - end


class TlsSocket:
    """TLS on a socket that it owns. Raises BlockingIOError, like a plain socket, when it must wait.

    server_name: on a client's side, the name that the certificate must have; None: server's side.
    sends_files: whether sendfile works; not without the kernel's TLS.
    """

    sends_files = False

    def __init__(
        self, sock: socket.socket, context: ssl.SSLContext, server_name: str | None = None
    ) -> None:
        self._socket = sock
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_name is None,
            server_hostname=server_name,
        )
        self._encrypted = memoryview(b"")
        self._without_data = 0
        self._has_ended = False
        self._records = RecordBoundaries()

    @property
    def has_received(self) -> bool:
        """Whether data may be read without the socket becoming readable."""
        return (
            self._incoming.pending > self._records.begun
            or self._tls.pending() > 0
            or self._has_ended
        )

    @property
    def has_unsent(self) -> bool:
        return len(self._encrypted) > 0 or self._outgoing.pending > 0

    @property
    def subject(self) -> str | None:
        """Subject of the peer's certificate; None if the peer sent none."""
        return subject_of(self._tls.getpeercert())

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def do_handshake(self) -> bool:
        """Do one step of the handshake. True: the connection is secured; False: the peer's turn.

        Raises:
            ssl.SSLError: the peer does not speak TLS, or not one that we accept.
            ConnectionResetError: the peer has closed the connection.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                try:
                    self.flush()
                    self._take()
                except BlockingIOError:
                    return False
            except ssl.SSLError:
                self._flush_alert()
                raise
            else:
                if not self._incoming.pending:
                    self._records = RecordBoundaries()  # it may have begun with an SSL 2.0 hello
                return True

    def recv_into(self, view: memoryview) -> int:
        """Read decrypted bytes, as many as are there and fit; 0: the peer has ended the connection.

        The socket is read once at most, so that a peer that sends only TLS messages without data
        gets no more of the event loop than others; the loop reports the rest as readable again.
        """
        filled, has_taken = 0, False
        while filled < len(view):
            # A read without received data raises an exception in OpenSSL, which costs 3 us.
            if not self.has_received:
                if filled:
                    break
                if has_taken:
                    self._flush_own()
                    raise BlockingIOError
                has_taken = True
                try:
                    self._take()
                except ConnectionResetError:
                    return 0
                continue
            try:
                count = int(self._tls.read(len(view) - filled, view[filled:]))
            except ssl.SSLWantReadError:  # it was a TLS message without data
                continue
            except ssl.SSLZeroReturnError:
                count = 0
            if not count:  # the peer has said that it ends; that is the next read's answer, too
                self._has_ended = True
                break
            filled += count
        self._without_data = 0
        return filled

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """Encrypt and send a part of `data`; bytes that the socket refuses are kept for `flush`."""
        self.flush()
        count = self._tls.write(memoryview(data)[:MAX_ENCRYPTED])
        try:
            self.flush()
        except BlockingIOError:
            pass
        return count

    def sendmsg(
        self,
        buffers: Iterable[bytes | bytearray | memoryview],
        _ancillary: tuple[()] = (),
        _flags: int = 0,
    ) -> int:
        """Send small buffers in one TLS record, as each record has its own cost."""
        joined = bytearray()
        for buffer in buffers:
            joined += memoryview(buffer)[: MAX_ENCRYPTED - len(joined)]
            if len(joined) == MAX_ENCRYPTED:
                break
        return self.send(joined)

    def flush(self) -> None:
        """Send the encrypted bytes that are left. Raises BlockingIOError if the socket is full."""
        while True:
            if not self._encrypted:
                if not self._outgoing.pending:
                    return
                self._encrypted = memoryview(self._outgoing.read())
            self._encrypted = self._encrypted[self._socket.send(self._encrypted) :]

    def _take(self) -> None:
        received = self._socket.recv(READ_BYTES)
        if not received:
            raise ConnectionResetError("the peer has closed the connection")
        self._without_data += len(received)
        if self._without_data > MOST_WITHOUT_DATA:
            raise ConnectionResetError("the peer sends only TLS messages without data")
        self._incoming.write(received)
        self._records.follow(received)

    def _flush_own(self) -> None:
        """Send TLS's own answer to a message without data, such as a refused renegotiation.

        What the socket does not take now goes with the next write.
        """
        if self._outgoing.pending:
            with suppress(BlockingIOError):
                self.flush()

    def _flush_alert(self) -> None:
        """Send the alert that tells the peer why it is refused; socket errors are ignored."""
        try:
            self.flush()
        except OSError:
            pass


def subject_of(certificate: Mapping[str, Any] | None) -> str | None:
    """Subject of a certificate as `getpeercert` returns it; None if there is no certificate."""
    return distinguished_name(certificate.get("subject", ())) if certificate else None


def distinguished_name(subject: Iterable[Iterable[tuple[str, str]]]) -> str:
    """Format a subject like `CN=alice,OU=etl,O=Example`: the last part first, see RFC 2253."""
    parts = [
        "+".join(f"{_SHORT.get(kind, kind)}={_escape(value)}" for kind, value in part)
        for part in subject
    ]
    return ",".join(reversed(parts))


def _escape(value: str) -> str:
    escaped = "".join(f"\\{letter}" if letter in ',+"\\<>;' else letter for letter in value)
    if escaped[:1] in ("#", " "):
        escaped = "\\" + escaped
    if len(value) > 1 and value.endswith(" "):
        escaped = escaped[:-1] + "\\ "
    return escaped
