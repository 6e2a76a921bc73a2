"""The listening socket of a node and the connections it accepted, within limits.

    max.connections, max.connections.per.ip (and its overrides)   what is above is closed at once
    max.connection.creation.rate                                  what is above waits unaccepted
    connections.max.idle.ms     no request in work and no byte either way: closed; an answer that
                                the peer does not take is such a silence, too
    bradbury.request.receive.max.ms   a request that has begun and does not come
    queued.max.request.bytes    memory of all connections together, see request_memory

Settings are read when they are used, so a change of one holds from the next accept or look.
Binding without SO_REUSEPORT is a fence by itself: while an earlier incarnation on this machine
still holds the port, the new one waits. Out of file descriptors, accepting pauses instead of
spinning on a readiness that nothing can be done about.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections import Counter
from typing import Protocol

from ...handlers.ports.client_session import PLAINTEXT, SSL, ClientSession
from ...handlers.ports.context import Node
from ..loop.line_limit import LineLimit
from ..loop.node_metrics import NodeMetrics
from .client_connection import SCRATCH_SIZE, ClientConnection, Shared
from .refusal_delay import RefusalDelay
from .request_memory import RequestMemory
from .server_tls import server_context
from .tls_connection import TlsConnection

BUFFER_SECONDS = 5.0
LOOK_SECONDS = 1.0
SWEEP_SECONDS = 5.0
STALL_SECONDS = 1.0
ACCEPT_PAUSE_SECONDS = 0.1

logger = logging.getLogger(__name__)


class PortInUse(Exception):
    """The one-line reason why a node cannot listen."""


class ListeningNode(Node, Protocol):
    @property
    def metrics(self) -> NodeMetrics: ...

    def on_closed(self, peer: str) -> None:
        """The connection from `peer` is closed, by whichever side."""
        ...


class Listener:
    def __init__(self, node: ListeningNode) -> None:
        self._node = node
        self._socket: socket.socket | None = None
        self._tls: ssl.SSLContext | None = None
        self._connections: set[ClientConnection] = set()
        self._by_address: Counter[str] = Counter()
        self.memory = RequestMemory(lambda: node.server_config.broker.queued_max_request_bytes)
        self._lines = LineLimit(logger)
        self._shared = Shared(
            node=node,
            scratch=bytearray(SCRATCH_SIZE),
            memory=self.memory,
            metrics=node.metrics,
            lines=self._lines,
            refusals=RefusalDelay(),
            on_close=self._forget,
        )
        self._timer: asyncio.TimerHandle | None = None
        self._accept_timer: asyncio.TimerHandle | None = None
        self._accepting = False
        self._may_accept = 0.0
        self._accept_counted_at = 0.0
        self._swept_at = 0.0

    @property
    def port(self) -> int:
        assert self._socket is not None
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def bind(self, host: str, port: int) -> int:
        """Take the port (0: any free one) without accepting yet; returns it.

        Raises:
            PortInUse: another process listens there.
            InvalidConfig: the listener is SSL, and its files cannot be used.
        """
        config = self._node.server_config.broker
        self._tls = server_context(config) if config.is_tls else None
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
        loop = asyncio.get_running_loop()
        self._accept_counted_at = loop.time()
        self._start_accepting()
        self._timer = loop.call_later(self._look_seconds(), self._look)

    def close(self) -> None:
        for timer in (self._timer, self._accept_timer):
            if timer is not None:
                timer.cancel()
        if self._socket is not None:
            self._stop_accepting()
            self._socket.close()
            self._socket = None
        for connection in list(self._connections):
            connection.close(kind="shutdown")

    # --- accepting -------------------------------------------------------------------------------

    def _start_accepting(self) -> None:
        if self._socket is not None and not self._accepting:
            asyncio.get_running_loop().add_reader(self._socket.fileno(), self._accept)
            self._accepting = True

    def _stop_accepting(self) -> None:
        if self._socket is not None and self._accepting:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._accepting = False

    def _pause_accepting(self, seconds: float) -> None:
        self._stop_accepting()
        loop = asyncio.get_running_loop()
        self._accept_timer = loop.call_later(seconds, self._start_accepting)

    def _accept(self) -> None:
        assert self._socket is not None
        for _ in range(64):
            if not self._is_within_rate():
                return
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._node_metrics.connections_refused["descriptors"] += 1
                    self._lines.warning("cannot accept: %s", error)
                    self._pause_accepting(ACCEPT_PAUSE_SECONDS)
                    return
                continue  # the peer is gone already
            self._may_accept -= 1
            peer = f"{address[0]}:{address[1]}"
            refusal = self._refusal(address[0])
            if refusal is not None:
                self._node_metrics.connections_refused[refusal] += 1
                self._lines.warning("refusing %s: %s is reached", peer, refusal)
                sock.close()
                continue
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            protocol = PLAINTEXT if self._tls is None else SSL
            session = ClientSession(address[0], listener=protocol, protocol=protocol)
            connection = (
                ClientConnection(sock, session, peer, self._shared)
                if self._tls is None
                else TlsConnection(sock, session, peer, self._shared, self._tls)
            )
            self._connections.add(connection)
            self._by_address[address[0]] += 1
            self._node_metrics.connections_accepted += 1
            connection.open()

    @property
    def _node_metrics(self) -> NodeMetrics:
        return self._node.metrics

    def _is_within_rate(self) -> bool:
        """A bucket of one second's connections; when it is empty, accepting pauses."""
        rate = self._node.server_config.broker.max_connection_creation_rate
        now = asyncio.get_running_loop().time()
        filled = self._may_accept + (now - self._accept_counted_at) * rate
        self._may_accept = min(float(rate), filled)
        self._accept_counted_at = now
        if self._may_accept >= 1:
            return True
        self._pause_accepting(max(0.01, (1 - self._may_accept) / rate))
        return False

    def _refusal(self, address: str) -> str | None:
        """The setting that a connection more from `address` would break."""
        config = self._node.server_config.broker
        if len(self._connections) >= config.max_connections:
            return "max.connections"
        limit = config.max_connections_per_ip
        if config.max_connections_per_ip_overrides:
            limit = config.connection_limits_by_address().get(address, limit)
        return "max.connections.per.ip" if self._by_address[address] >= limit else None

    def _forget(self, connection: ClientConnection) -> None:
        self._connections.discard(connection)
        self._by_address[connection.session.address] -= 1
        if not self._by_address[connection.session.address]:
            del self._by_address[connection.session.address]
        self._node.on_closed(connection.peer)

    # --- closing what is idle, slow or in the way ------------------------------------------------

    def _look_seconds(self) -> float:
        config = self._node.server_config.broker
        shortest = min(config.connections_max_idle_ms, config.bradbury_request_receive_max_ms)
        return min(LOOK_SECONDS, shortest / 2000)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._lines.settle()
        if self.memory.is_short:
            self._make_room(now)
        if now - self._swept_at >= min(SWEEP_SECONDS, self._look_seconds() * 5):
            self._swept_at = now
            self._sweep(now)
        self._timer = loop.call_later(self._look_seconds(), self._look)

    def _sweep(self, now: float) -> None:
        config = self._node.server_config.broker
        longest = config.connections_max_idle_ms / 1000
        grace = config.bradbury_request_receive_max_ms / 1000
        for connection in list(self._connections):
            idle = now - connection.last_activity
            if idle > longest and not connection.is_waited_for:
                if connection.has_unsent:
                    connection.close("does not take its answers", "stalled")
                else:
                    connection.close("was idle", "idle")
            elif connection.is_slow(now, grace):
                connection.close("began a request that does not come", "slow")
            elif idle > BUFFER_SECONDS:
                connection.release_buffer()

    def _make_room(self, now: float) -> None:
        """Memory is short: peers that do not take what they asked for go, the largest first."""
        for connection in list(self._connections):
            connection.release_buffer()
        stalled = [
            connection
            for connection in self._connections
            if connection.has_unsent and now - connection.last_activity > STALL_SECONDS
        ]
        stalled.sort(key=lambda connection: connection.held_bytes, reverse=True)
        for connection in stalled:
            if not self.memory.is_short:
                return
            connection.close("does not take its answers, and memory is short", "shortage")
