"""The listeners of a node and the connections they accepted, within limits. Kafka's SocketServer.

    max.connections, also of one listener, and max.connections.per.ip (and its overrides)
                                what is above is closed at once; for the listener between nodes,
                                where there are others, the least recently used of these is
    max.connection.creation.rate, also of one listener            what is above waits unaccepted
    an address's quota of new connections          what is above is held, unserved, and then closed
    connections.max.idle.ms     no request in work and no byte either way: closed; an answer that
                                the peer does not take is such a silence, too
    bradbury.request.receive.max.ms   a request that has begun and does not come
    queued.max.request.bytes    memory of all connections together, see request_memory

Settings are read when they are used, so a change of one holds from the next accept or look. Who is
refused and who waits: cluster/quotas/connection_quotas.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Protocol

from ...cluster.quotas.connection_quotas import ConnectionQuotas
from ...cluster.security.listener_config import ListenerConfig
from ...handlers.ports.client_session import ClientSession
from ...handlers.ports.context import Node
from ..loop.line_limit import LineLimit
from ..loop.node_metrics import NodeMetrics
from ..quotas.held_sockets import HeldSockets
from ..security.sasl_credentials import ListenerCredentials
from .acceptor import Acceptor
from .client_connection import SCRATCH_SIZE, ClientConnection
from .refusal_delay import RefusalDelay
from .request_memory import RequestMemory
from .shared import ClosedConnection, Shared
from .tls_connection import TlsConnection

BUFFER_SECONDS = 5.0
TIMER_SECONDS = 1.0
SWEEP_SECONDS = 5.0
STALL_SECONDS = 1.0
AUTHENTICATION_SECONDS = 30.0
CERTIFICATE_CHECK_SECONDS = 10.0
"""Seconds between two checks for changed certificates."""

logger = logging.getLogger(__name__)


class ListeningNode(Node, Protocol):
    @property
    def metrics(self) -> NodeMetrics: ...

    def on_closed(self, peer: str) -> None:
        """Handle the end of the connection from `peer`, whichever side closed it."""
        ...


class SocketServer:
    """The listeners of one node and their connections."""

    def __init__(self, node: ListeningNode) -> None:
        self._node = node
        self._acceptors: list[Acceptor] = []
        self._connections: set[ClientConnection] = set()
        self._quotas = ConnectionQuotas(node.server_config.security.inter_broker().listener.name)
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
        self._held = HeldSockets()
        self._timer: asyncio.TimerHandle | None = None
        self._certificate_load: asyncio.Future[None] | None = None
        self._swept_at = 0.0
        self._certificates_checked_at = 0.0

    @property
    def port(self) -> int:
        """Port of the first listener."""
        return self._acceptors[0].port

    def ports(self) -> dict[str, int]:
        """Ports of the listeners by name, in their order."""
        return {acceptor.config.name: acceptor.port for acceptor in self._acceptors}

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def bind(self, config: ListenerConfig, host: str, port: int) -> int:
        """Take a port (0: any free one) for one more listener, without accepting yet; returns it.

        Raises:
            PortInUse: another process listens there.
            InvalidConfig: the listener speaks TLS, and its files cannot be used.
        """
        credentials = None
        if config.protocol.is_sasl:
            credentials = ListenerCredentials(
                config, lambda: self._node.image, self._node.delegation_token_key
            )
        acceptor = Acceptor(config, self, credentials)
        taken = acceptor.bind(host, port)
        self._acceptors.append(acceptor)
        return taken

    async def read_keys(self) -> None:
        """Read the keys that listeners need before they are opened. Raises InvalidConfig."""
        for acceptor in self._acceptors:
            if acceptor.credentials is not None:
                await acceptor.credentials.open()

    async def stop_reading_keys(self) -> None:
        """Stop reading keys. Call it before `close`."""
        for acceptor in self._acceptors:
            if acceptor.credentials is not None:
                await acceptor.credentials.close()

    def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._certificates_checked_at = now = loop.time()
        for acceptor in self._acceptors:
            self._quotas.add_listener(acceptor.config.name, now)
        for acceptor in self._acceptors:
            acceptor.open()
        self._timer = loop.call_later(self._timer_seconds(), self._on_timer)

    def close(self) -> None:
        """Close the listeners and their connections. `bind` may be called again afterwards."""
        if self._timer is not None:
            self._timer.cancel()
        for acceptor in self._acceptors:
            acceptor.close()
        self._acceptors = []
        self._held.close()
        for connection in list(self._connections):
            connection.close(kind="shutdown")

    # --- accepting -------------------------------------------------------------------------------

    def on_exhausted(self, error: OSError) -> None:
        """Count and log a refused connection; see AcceptingServer."""
        self._node_metrics.connections_refused["descriptors"] += 1
        self._lines.warning("cannot accept: %s", error)

    def on_accepted(self, acceptor: Acceptor, sock: socket.socket, host: str, port: int) -> None:
        """Serve a new connection, or refuse it; see AcceptingServer."""
        peer = f"{host}:{port}"
        quotas = self._node.quotas
        if quotas is not None and (throttle_ms := quotas.connecting(host)):
            self._node_metrics.connections_refused["connection_creation_rate"] += 1
            self._lines.warning("refusing %s: its quota of new connections is used up", peer)
            self._held.hold(sock, throttle_ms)
            return
        config = acceptor.config
        self._quotas.take(config.name)
        refusal = self._quotas.refusal(
            config.name,
            host,
            self._node.server_config.connection_limits(config.name),
            self._node.server_config.broker.connection_limit_of(host),
        )
        if refusal is not None:
            self._node_metrics.connections_refused[refusal] += 1
            self._lines.warning("refusing %s: %s is reached", peer, refusal)
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        session = ClientSession(host, listener=config.name, protocol=config.protocol)
        if acceptor.credentials is not None:
            session.sasl = acceptor.credentials.authentication(session)
        try:
            connection = (
                ClientConnection(sock, session, peer, self._shared)
                if acceptor.tls is None
                else TlsConnection(
                    sock, session, peer, self._shared, acceptor.tls, acceptor.mapping
                )
            )
        except OSError:  # the kernel's TLS looks at the peer, which may have left
            sock.close()
            return
        self._connections.add(connection)
        self._quotas.add(config.name, host)
        self._node_metrics.connections_accepted += 1
        connection.open()
        self._close_excess()

    @property
    def _node_metrics(self) -> NodeMetrics:
        return self._node.metrics

    def seconds_to_wait(self, acceptor: Acceptor) -> float:
        """Seconds until the next accept of a listener; see AcceptingServer."""
        listener = acceptor.config.name
        limits = self._node.server_config.connection_limits(listener)
        return self._quotas.seconds_to_wait(listener, limits, asyncio.get_running_loop().time())

    def _close_excess(self) -> None:
        """Close connections above max.connections: nodes have connected, or it was lowered."""
        most = self._node.server_config.broker.max_connections
        for connection in self._quotas.excess(self._connections, most):
            connection.close(
                f"was the least recently used one, and there are more than max.connections={most}",
                "excess",
            )

    def _forget(self, connection: ClosedConnection) -> None:
        self._connections.discard(connection)
        self._quotas.remove(connection.session.listener, connection.session.address)
        self._node.on_closed(connection.peer)

    # --- closing idle, slow and stalled connections
    # ------------------------------------------------

    def _timer_seconds(self) -> float:
        config = self._node.server_config.broker
        shortest = min(config.connections_max_idle_ms, config.bradbury_request_receive_max_ms)
        return min(TIMER_SECONDS, shortest / 2000)

    def _on_timer(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._lines.report_suppressed()
        self._close_excess()
        if self.memory.is_short:
            self._make_room(now)
        if now - self._swept_at >= min(SWEEP_SECONDS, self._timer_seconds() * 5):
            self._swept_at = now
            self._sweep(now)
        if (
            now - self._certificates_checked_at >= CERTIFICATE_CHECK_SECONDS
            and self._may_reload_certificates()
        ):
            self._certificates_checked_at = now
            self._certificate_load = loop.run_in_executor(None, self._reload_certificates)
        self._timer = loop.call_later(self._timer_seconds(), self._on_timer)

    def _may_reload_certificates(self) -> bool:
        """Whether there are certificates, and none are being read."""
        is_read = self._certificate_load is None or self._certificate_load.done()
        return is_read and any(acceptor.tls is not None for acceptor in self._acceptors)

    def _reload_certificates(self) -> None:
        for acceptor in self._acceptors:
            acceptor.read_again()

    def _sweep(self, now: float) -> None:
        config = self._node.server_config.broker
        longest = config.connections_max_idle_ms / 1000
        grace = config.bradbury_request_receive_max_ms / 1000
        for connection in list(self._connections):
            idle = now - connection.last_activity
            is_late = now - connection.opened_at > AUTHENTICATION_SECONDS
            if is_late and connection.session.is_unauthenticated:
                connection.close(
                    f"did not authenticate within {AUTHENTICATION_SECONDS:g} s", "authentication"
                )
            elif idle > longest and not connection.is_waited_for:
                if connection.has_unsent:
                    connection.close("does not read its responses", "stalled")
                else:
                    connection.close("was idle", "idle")
            elif connection.is_slow(now, grace):
                connection.close("did not send the rest of a request in time", "slow")
            elif idle > BUFFER_SECONDS:
                connection.release_buffer()

    def _make_room(self, now: float) -> None:
        """Close peers that do not read their responses, the largest first, to free memory."""
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
            connection.close("does not read its responses, and memory is short", "shortage")
