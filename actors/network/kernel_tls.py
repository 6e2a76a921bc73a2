"""TLS in the kernel (Linux' CONFIG_TLS, OpenSSL's KTLS), for sockets of a listener.

OpenSSL does the handshake on the socket itself and hands the keys of each direction to the kernel,
if both support the cipher. From then on the kernel encrypts what is written, so that files are sent
with sendfile as on a plain connection, and decrypts what is read, many records at a time.
See `SSL_OP_ENABLE_KTLS` in OpenSSL's SSL_CTX_set_options.

Only if the kernel decrypts, too: OpenSSL reads from a socket for as long as TLS messages without
data come (key updates, one after the other), so a peer could keep a call from ever returning.
OpenSSL hands over the read keys of TLS 1.3 from 3.2 on. The kernel does not support key updates: a
connection ends at the first one.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from .tls_socket import MAX_ENCRYPTED, subject_of

OP_ENABLE_KTLS: Final = 1 << 3
"""Option that enables kernel TLS; `ssl.OP_ENABLE_KTLS` from Python 3.12 on."""
# linux/tcp.h, linux/tls.h
_TCP_ULP: Final = 31
_SOL_TLS: Final = 282
_TLS_TX: Final = 1
_TLS_RX: Final = 2
_CRYPTO_INFO_BYTES: Final = 56
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Ciphers of TLS 1.2 that the kernel supports (and RFC 9325 allows); of TLS 1.3 it has all."""


def is_available() -> bool:
    """Whether this kernel has TLS, and this OpenSSL hands both directions over to it."""
    if ssl.OPENSSL_VERSION_INFO < (3, 2):
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as unconnected:
        try:
            unconnected.setsockopt(socket.IPPROTO_TCP, _TCP_ULP, b"tls")
        except OSError as error:
            return error.errno == errno.ENOTCONN  # TLS is supported, but on connected sockets only
    return True


class KernelTlsSocket:
    """Server's side of TLS in the kernel; owns `sock`. Raises BlockingIOError like a plain one.

    Where the kernel has not been given the keys, OpenSSL encrypts and decrypts; then unsent data
    has to be passed to `send` again, as with any socket.

    sends_files: whether the kernel encrypts, so that sendfile works. Known after the handshake.
    """

    must_decrypt = True
    """Whether a connection that the kernel does not decrypt is refused; see the module."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self.sends_files = False
        self._decrypts = False
        self._awaits_room = False
        self._tls = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)

    @property
    def has_received(self) -> bool:
        """Whether data may be read without the socket becoming readable."""
        return not self._decrypts and self._tls.pending() > 0

    @property
    def has_unsent(self) -> bool:
        """Whether a part of the handshake waits until the socket is writable."""
        return self._awaits_room

    @property
    def subject(self) -> str | None:
        """Subject of the peer's certificate; None if the peer sent none."""
        return subject_of(self._tls.getpeercert())

    def fileno(self) -> int:
        return self._tls.fileno()

    def close(self) -> None:
        self._tls.close()

    def do_handshake(self) -> bool:
        """Do one step of the handshake; True once the connection is secured.

        False: the socket has to become readable (or writable, see `has_unsent`).

        Raises:
            ssl.SSLError: the peer does not speak TLS, or no version or cipher that we accept.
            ConnectionResetError: the peer has closed the connection.
        """
        self._awaits_room = False
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLWantWriteError:
            self._awaits_room = True
            return False
        except ssl.SSLEOFError:
            raise ConnectionResetError("the peer has closed the connection") from None
        except ssl.SSLError:
            # Closing a socket with unread data resets it: the peer would not see OpenSSL's alert.
            with suppress(OSError):
                socket.socket.recv(self._tls, MAX_ENCRYPTED)
            raise
        self.sends_files = self._has_keys(_TLS_TX)
        # Data that OpenSSL decrypted before the kernel took over is read from OpenSSL.
        self._decrypts = self._has_keys(_TLS_RX) and not self._tls.pending()
        if self.must_decrypt and not self._decrypts:
            raise ssl.SSLError(f"the kernel's TLS does not decrypt cipher {self._tls.cipher()}")
        return True

    def flush(self) -> None:
        """Check for unsent data. Raises BlockingIOError while a part of the handshake is unsent."""
        if self._awaits_room:
            raise BlockingIOError

    def recv_into(self, view: memoryview) -> int:
        """Read the decrypted bytes that are there and fit; 0: the peer closed the connection."""
        if self._decrypts:
            try:
                return socket.socket.recv_into(self._tls, view)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                # The next TLS record has no application data; OpenSSL handles it.
        filled = 0
        try:
            while filled < len(view):
                count = self._tls.recv_into(view[filled:])
                if not count:
                    break
                filled += count
        except ssl.SSLWantReadError:
            if not filled:
                raise BlockingIOError from None
        return filled

    def send(self, data: bytes | bytearray | memoryview) -> int:
        if self.sends_files:
            return socket.socket.send(self._tls, data)
        try:
            return self._tls.send(memoryview(data)[:MAX_ENCRYPTED])
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None

    def sendmsg(
        self,
        buffers: Iterable[bytes | bytearray | memoryview],
        ancillary: tuple[()] = (),
        flags: int = 0,
    ) -> int:
        """Send small buffers in one TLS record, as each record has its own cost."""
        if self.sends_files:
            return socket.socket.sendmsg(self._tls, buffers, ancillary, flags)
        joined = bytearray()
        for buffer in buffers:
            joined += memoryview(buffer)[: MAX_ENCRYPTED - len(joined)]
        return self.send(joined)

    def _has_keys(self, direction: int) -> bool:
        """Whether the kernel has been given the keys of the direction."""
        try:
            self._tls.getsockopt(_SOL_TLS, direction, _CRYPTO_INFO_BYTES)
        except OSError:
            return False
        return True
