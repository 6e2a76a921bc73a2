"""A TCP forwarder in front of a broker: a proxy or NAT that knows nothing of Kafka."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Forwarder:
    """Listens at once; `target` is asked where to, for each connection. `accepted` counts them."""

    def __init__(self, address: tuple[str, int], target: Callable[[], tuple[str, int]]) -> None:
        self._target = target
        self._listener = socket.create_server(address)
        self._sockets: list[socket.socket] = []
        self.accepted = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in (self._listener, *self._sockets):
            _close(each)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(self._target())
            except OSError:
                _close(client)
                continue
            self.accepted += 1
            self._sockets += [client, broker]
            for one, other in ((client, broker), (broker, client)):
                threading.Thread(target=_copy, args=(one, other), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while part := source.recv(1 << 16):
            target.sendall(part)
    _close(source)
    _close(target)


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
