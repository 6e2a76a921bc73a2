"""A client connection behind TLS. Kafka's SslTransportLayer.

The same frames, slots and bounds as of a plain connection. What is different: a handshake comes
first, within HANDSHAKE_SECONDS; files are read and encrypted in pieces instead of passed to
sendfile, unless the kernel does the encryption (kernel_tls); and decrypted bytes may be buffered
while the socket itself is not readable.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from typing import Final

from ...cluster.security.principal_mapping import NoRuleApplies, PrincipalMapping
from ...handlers.ports.client_session import ClientSession
from ...protocol.principal import Principal
from ...protocol.records.fetch_response import FileSlice
from ..loop.line_limit import LineLimit
from .client_connection import ClientConnection
from .kernel_tls import OP_ENABLE_KTLS, KernelTlsSocket
from .page_cache import is_resident
from .response_queue import ResponseQueue
from .shared import Shared
from .tls_socket import MAX_ENCRYPTED, TlsSocket

HANDSHAKE_SECONDS: Final = 30.0


class TlsResponseQueue(ResponseQueue):
    """Responses that TLS encrypts. Encrypted bytes that the socket has not taken are sent first."""

    def __init__(
        self,
        tls: KernelTlsSocket | TlsSocket,
        peer: str,
        lines: LineLimit,
        on_writable: Callable[[], None],
        close: Callable[[str | None, str], None],
    ) -> None:
        self._tls = tls
        super().__init__(tls, peer, lines, on_writable, close)

    def write(self) -> None:
        if not self.is_warming:  # then the head of the queue is a file that is not there yet
            super().write()
        if self.is_closed:
            return
        try:
            self._tls.flush()
        except (BlockingIOError, InterruptedError):
            self.wait_writable(is_wanted=True)
        except OSError:
            self._close(None, "peer")
        else:
            if self.is_warming or not self.unsent:
                self.wait_writable(is_wanted=False)

    def _write_slice(self, chunk: FileSlice) -> bool:
        if self._tls.sends_files:
            return super()._write_slice(chunk)
        assert chunk.file is not None
        if self._slice_sent == 0 and not self._is_warmed and not is_resident(chunk):
            self._warm(chunk)
            return False
        self._is_warmed = False
        self._tls.flush()
        size = min(chunk.size - self._slice_sent, MAX_ENCRYPTED)
        piece = os.pread(chunk.file.fileno(), size, chunk.position + self._slice_sent)
        if not piece:
            self._give_up_on_file()
            return False
        sent = self._tls.send(piece)
        self._slice_sent += sent
        self._sent_total += sent
        self.sent_at = self._loop.time()
        if self._slice_sent == chunk.size:
            self._slice_sent = 0
            self.unsent.popleft()
        return not self._tls.has_unsent


class TlsConnection(ClientConnection):
    """A client connection behind TLS. Its session has no user until the handshake is over."""

    def __init__(
        self,
        sock: socket.socket,
        session: ClientSession,
        peer: str,
        shared: Shared,
        context: ssl.SSLContext,
        mapping: PrincipalMapping,
    ) -> None:
        in_kernel = context.options & OP_ENABLE_KTLS
        self._tls = KernelTlsSocket(sock, context) if in_kernel else TlsSocket(sock, context)
        self._mapping = mapping
        super().__init__(self._tls, session, peer, shared)
        self._is_secured = False
        self._is_reading_on = False
        self._handshake_timer: asyncio.TimerHandle | None = None

    def _response_queue(self) -> ResponseQueue:
        return TlsResponseQueue(
            self._tls, self.peer, self._shared.lines, self._on_writable, self.close
        )

    def open(self) -> None:
        self._handshake_timer = self._loop.call_later(HANDSHAKE_SECONDS, self._on_handshake_timeout)
        super().open()

    def close(self, reason: str | None = None, kind: str = "peer") -> None:
        self._cancel_handshake_timer()
        super().close(reason, kind)

    # --- the handshake ---------------------------------------------------------------------------

    def _cancel_handshake_timer(self) -> None:
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
            self._handshake_timer = None

    def _on_handshake_timeout(self) -> None:
        self._handshake_timer = None
        self.close(f"did not finish its TLS handshake within {HANDSHAKE_SECONDS:g} s", "slow")

    def _do_handshake(self) -> None:
        try:
            self._is_secured = self._tls.do_handshake()
        except ssl.SSLError as error:
            cause = error.reason or str(error)
            self.close(f"failed its TLS handshake ({cause}); this listener is SSL", "malformed")
            return
        except OSError:
            self.close()
            return
        if self._is_secured:
            try:
                self._set_principal()
            except NoRuleApplies as error:
                self.close(f"has a certificate without a principal: {error}", "authentication")
                return
            self._cancel_handshake_timer()
        self._responses.write()
        self._regulate()

    def _set_principal(self) -> None:
        """Set the principal from the certificate, unless SASL authenticates the client."""
        subject = self._tls.subject
        if subject is not None and self.session.sasl is None:
            self.session.principal = Principal("User", self._mapping.name_of(subject))

    # --- receiving -------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        if not self._is_secured:
            self._do_handshake()
            return
        super()._on_readable()

    def _regulate(self) -> None:
        super()._regulate()
        may_read_on = self._is_secured and self._reading and not self.closed
        if may_read_on and not self._is_reading_on and self._tls.has_received:
            self._is_reading_on = True
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        self._is_reading_on = False
        if self._reading and not self.closed:
            self._on_readable()

    # --- sending ---------------------------------------------------------------------------------

    def _on_writable(self) -> None:
        if not self._is_secured:
            self._do_handshake()
            return
        super()._on_writable()
