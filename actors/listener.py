"""The listening socket of a node and the connections it accepted.

Binding without SO_REUSEPORT is a fence of its own: while an earlier incarnation on this machine
still holds the port, the new one waits. Idle connections are closed after connections.max.idle.ms,
as Kafka does; clients reconnect. At max.connections new ones are closed at once.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket

from ..handlers.context import Node
from .connection import SCRATCH_SIZE, Connection

BUFFER_SECONDS = 5.0

logger = logging.getLogger("bradbury.listener")


class PortInUse(Exception):
    """The one-line reason why a node cannot listen."""


class Listener:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._socket: socket.socket | None = None
        self._scratch = bytearray(SCRATCH_SIZE)
        self._connections: set[Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None

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
            PortInUse: somebody listens there.
        """
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
                    "choose another --port (0 takes any free one) or --host"
                ) from None
            raise
        sock.setblocking(False)
        self._socket = sock
        return self.port

    def open(self) -> None:
        assert self._socket is not None
        loop = asyncio.get_running_loop()
        loop.add_reader(self._socket.fileno(), self._accept)
        self._sweep = loop.call_later(self._sweep_seconds(), self._close_idle)

    def close(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        for connection in list(self._connections):
            connection.close()

    def _accept(self) -> None:
        assert self._socket is not None
        for _ in range(64):
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                # Out of descriptors, or the peer is gone already: the next readiness tries again.
                logger.warning("accept failed: %s", error)
                return
            peer = f"{address[0]}:{address[1]}"
            if len(self._connections) >= self._node.config.max_connections:
                logger.warning("refusing %s: max.connections is reached", peer)
                sock.close()
                continue
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(
                sock, peer, self._node, self._scratch, self._connections.discard
            )
            self._connections.add(connection)
            connection.open()

    def _sweep_seconds(self) -> float:
        return min(10.0, self._node.config.connections_max_idle_ms / 2000)

    def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        longest = self._node.config.connections_max_idle_ms / 1000
        for connection in list(self._connections):
            idle = now - connection.last_activity
            if connection.is_idle and idle > longest:
                connection.close("was idle")
            elif idle > BUFFER_SECONDS:
                connection.release_buffer()
        self._sweep = loop.call_later(self._sweep_seconds(), self._close_idle)
