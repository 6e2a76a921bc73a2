"""Muting of a connection: it is not read while its client is throttled by a quota (KIP-219)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic


class Muting:
    """Timer of a muted connection. `on_over` is called when the longest throttle time has passed.

    Never earlier, as the response has told the client how long: a timer of uvloop, which counts
    whole milliseconds of a clock truncated to milliseconds, may fire a millisecond early.
    """

    __slots__ = ("_on_over", "_timer", "_until", "began_at", "is_on")

    def __init__(self, on_over: Callable[[], None]) -> None:
        self._on_over = on_over
        self._timer: asyncio.TimerHandle | None = None
        self._until = 0.0
        self.began_at = 0.0
        self.is_on = False

    def begin(self, throttle_ms: int) -> None:
        loop = asyncio.get_running_loop()
        until = monotonic() + throttle_ms / 1000
        if self._timer is None:
            self.began_at = loop.time()
        elif self._until >= until:
            return
        else:
            self._timer.cancel()
        self._until = until
        self._timer = loop.call_later(throttle_ms / 1000, self._over)
        self.is_on = True

    def put_off(self, began_at: float) -> float:
        """Shift the start time of a request (0: none) by the time that the connection was muted."""
        if not began_at:
            return 0.0
        return began_at + asyncio.get_running_loop().time() - max(began_at, self.began_at)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.is_on = False

    def _over(self) -> None:
        if (left := self._until - monotonic()) > 0:
            self._timer = asyncio.get_running_loop().call_later(left + 0.001, self._over)
            return
        self._timer = None
        self.is_on = False
        self._on_over()
