"""The ports of a node's listeners, and the addresses under which clients and nodes find them."""

from __future__ import annotations

import contextlib
import logging
import re

from ...cluster.metadata.listener_address import ListenerAddress
from ...cluster.security.advertised_listeners import LARGEST_PORT, advertised_addresses
from ...cluster.security.listener_config import ListenerConfig
from ...cluster.security.security_config import SecurityConfig
from ...storage.disk.checkpoint_file import write_atomically
from ...storage.disk.file_system import FileSystem, read_file
from ..security.secret_files import read_secret
from .acceptor import PortInUse
from .socket_server import SocketServer

logger = logging.getLogger(__name__)

LAST_PORT_FILE = "last-port"
PORT = re.compile("[1-9][0-9]{0,4}")


class NodeListeners:
    """Listeners of one node. `directory`: where it keeps the ports of its last run."""

    def __init__(
        self,
        server: SocketServer,
        security: SecurityConfig,
        file_system: FileSystem,
        directory: str,
    ) -> None:
        self._server = server
        self._security = security
        self._file_system = file_system
        self._directory = directory

    def bind(
        self, host: str, port: int, *, port_offset: int, advertised_host: str
    ) -> tuple[ListenerAddress, ...]:
        """Bind the port of every listener, the first one to `port`; blocking.

        Returns the advertised address of each, with `advertised_host` where advertised.listeners
        names none.

        Raises:
            PortInUse, InvalidConfig: one line with cause and remedy.
        """
        first, *others = self._security.listener_configs()
        self._bind(first, host, port, LAST_PORT_FILE)
        for listener in others:
            port = listener.port + port_offset if listener.port else 0
            self._bind(listener, host, port, f"{LAST_PORT_FILE}-{listener.name.lower()}")
        return advertised_addresses(
            self._security.advertised(read_secret(self._security.advertised_listeners)),
            self._server.ports(),
            host=advertised_host,
            port_offset=port_offset,
        )

    def _bind(self, listener: ListenerConfig, host: str, port: int, file_name: str) -> None:
        """Bind a listener; port 0 means the port of the last run, if it is still free.

        So a restarted node keeps its address, and clients that bootstrapped from it still find it.
        """
        path = f"{self._directory}/{file_name}"
        last = self._last_port(path) if port == 0 else None
        if last is not None:
            with contextlib.suppress(PortInUse):
                self._server.bind(listener, host, last)
                return
        port = self._server.bind(listener, host, port)
        try:
            write_atomically(self._file_system, path, f"{port}\n".encode())
        except OSError as error:
            logger.warning("the next start takes another port: %s: %s", path, error.strerror)

    def _last_port(self, path: str) -> int | None:
        """Port of the last run; None if the file is absent or damaged: any port will do."""
        try:
            text = read_file(self._file_system, path).decode(errors="replace").strip()
        except OSError:
            return None
        return int(text) if PORT.fullmatch(text) and int(text) <= LARGEST_PORT else None
