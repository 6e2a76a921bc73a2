"""TLS on a connected, non-blocking socket, with the socket methods that Connection uses."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from typing import Final

RECORD_BYTES: Final = 16 * 1024
"""Size of a TLS record: smaller buffers are joined, as each record has its own cost."""


class TlsTransport:
    """Owns `sock`. Raises BlockingIOError where a plain socket would."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, host: str) -> None:
        """host: from the client's settings or metadata; verified if `context` checks host names."""
        self._socket = context.wrap_socket(
            sock, server_hostname=host, do_handshake_on_connect=False
        )

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def do_handshake(self) -> None:
        """Do one step of the handshake.

        Raises:
            ssl.SSLWantReadError, ssl.SSLWantWriteError: call again when the socket is ready.
            ssl.SSLError, OSError: it has failed.
        """
        self._socket.do_handshake()

    @property
    def has_received(self) -> bool:
        """Whether data can be read without the socket becoming readable."""
        return self._socket.pending() > 0

    def recv_into(self, view: memoryview) -> int:
        try:
            return self._socket.recv_into(view)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except ssl.SSLEOFError:
            return 0

    def sendmsg(self, buffers: Sequence[memoryview]) -> int:
        """Send part of the buffers; return the bytes sent."""
        data: memoryview | bytearray = buffers[0]
        if len(data) < RECORD_BYTES and len(buffers) > 1:
            joined = bytearray()
            for buffer in buffers:
                joined += buffer[: RECORD_BYTES - len(joined)]
                if len(joined) == RECORD_BYTES:
                    break
            data = joined
        try:
            return self._socket.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
