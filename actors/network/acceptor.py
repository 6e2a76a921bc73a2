"""The listening socket of one listener. Kafka's Acceptor.

Binding without SO_REUSEPORT is a fence by itself: while an earlier incarnation on this machine
still holds the port, the new one waits. Without free file descriptors accepting pauses, as the
socket would stay readable and the loop would spin.

A certificate is replaced without a restart: when a file that the listener's settings name has
changed, it is read again, and used for connections from then on. If it cannot be used, that is
logged, and the previous certificate stays.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from typing import Protocol

from ...cluster.security.listener_config import ListenerConfig
from ...cluster.security.principal_mapping import PrincipalMapping
from ...protocol.errors import InvalidConfig
from ..security.sasl_credentials import ListenerCredentials
from .kernel_tls import OP_ENABLE_KTLS
from .tls_contexts import file_versions, server_context

ACCEPT_PAUSE_SECONDS = 0.1
ACCEPTED_AT_ONCE = 64

logger = logging.getLogger(__name__)


class PortInUse(Exception):
    """The one-line reason why a node cannot listen."""


class AcceptingServer(Protocol):
    """The part of a socket server that its listeners use: its limits and connections."""

    def seconds_to_wait(self, acceptor: Acceptor) -> float:
        """Seconds until this listener may accept one more connection; 0: now."""
        ...

    def on_accepted(self, acceptor: Acceptor, sock: socket.socket, host: str, port: int) -> None:
        """Take over the socket of a new connection, or close it."""
        ...

    def on_exhausted(self, error: OSError) -> None:
        """Handle a lack of file descriptors or memory for one more connection."""
        ...


class Acceptor:
    """The listening socket of one listener. `credentials`: the users of a SASL listener."""

    def __init__(
        self,
        config: ListenerConfig,
        server: AcceptingServer,
        credentials: ListenerCredentials | None = None,
    ) -> None:
        self.config = config
        self.credentials = credentials
        self.tls: ssl.SSLContext | None = None
        self.mapping = PrincipalMapping(config.tls.principal_mapping_rules)
        self._server = server
        self._socket: socket.socket | None = None
        self._files: tuple[object, ...] = ()
        self._timer: asyncio.TimerHandle | None = None
        self._accepting = False

    @property
    def port(self) -> int:
        assert self._socket is not None
        port: int = self._socket.getsockname()[1]
        return port

    def bind(self, host: str, port: int) -> int:
        """Take the port (0: any free one) without accepting yet; returns it.

        Raises:
            PortInUse: another process listens there.
            InvalidConfig: the listener speaks TLS, and its files cannot be used.
        """
        if self.config.protocol.is_tls:
            self._files = file_versions(self.config.tls)
            self.tls = server_context(self.config.tls)
            if self.tls.options & OP_ENABLE_KTLS:
                logger.info("listener %s: kernel TLS enabled", self.config.name)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
            sock.listen(1024)
        except OSError as error:
            sock.close()
            if error.errno in (errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL):
                raise PortInUse(
                    f"cannot listen on {host}:{port} ({error.strerror}); "
                    "choose another --port (0: any free one) or --host"
                ) from None
            raise
        sock.setblocking(False)
        self._socket = sock
        return self.port

    def open(self) -> None:
        self._start()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            self._stop()
            self._socket.close()
            self._socket = None

    def read_again(self) -> None:
        """Load the certificate again if its files changed. Not for the event loop."""
        if self.tls is None:
            return
        versions = file_versions(self.config.tls)
        if versions == self._files:
            return
        self._files = versions
        try:
            self.tls = server_context(self.config.tls)
        except InvalidConfig as error:
            logger.warning("listener %s keeps its old certificate: %s", self.config.name, error)
        else:
            logger.info("listener %s has a new certificate", self.config.name)

    # --- accepting -------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._socket is not None and not self._accepting:
            asyncio.get_running_loop().add_reader(self._socket.fileno(), self._accept)
            self._accepting = True

    def _stop(self) -> None:
        if self._socket is not None and self._accepting:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._accepting = False

    def _pause(self, seconds: float) -> None:
        self._stop()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._start)

    def _accept(self) -> None:
        assert self._socket is not None
        for _ in range(ACCEPTED_AT_ONCE):
            if wait := self._server.seconds_to_wait(self):
                self._pause(wait)
                return
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._server.on_exhausted(error)
                    self._pause(ACCEPT_PAUSE_SECONDS)
                    return
                continue  # the peer has disconnected already
            self._server.on_accepted(self, sock, address[0], address[1])
