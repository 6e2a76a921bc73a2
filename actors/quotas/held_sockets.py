"""Connections of an address that connects too often: accepted, never served, closed later.

An immediate close would cause immediate reconnects. As Kafka's delayed closing; at most MOST_HELD
wait, as each costs a descriptor.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

MOST_HELD: Final = 1_000


class HeldSockets:
    def __init__(self) -> None:
        self._timers: dict[socket.socket, asyncio.TimerHandle] = {}

    def hold(self, sock: socket.socket, ms: int) -> None:
        if len(self._timers) >= MOST_HELD:
            sock.close()
            return
        loop = asyncio.get_running_loop()
        self._timers[sock] = loop.call_later(ms / 1000, self._let_go, sock)

    def _let_go(self, sock: socket.socket) -> None:
        del self._timers[sock]
        sock.close()

    def close(self) -> None:
        for sock, timer in self._timers.items():
            timer.cancel()
            sock.close()
        self._timers.clear()
