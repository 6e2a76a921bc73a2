"""Memory of one node for requests being received, requests in progress and unsent responses.

Kafka's queued.max.request.bytes, always bounded here. Memory is counted as it is used, not as peers
announce it. While it is short:

    - small requests of all clients are still read and answered;
    - a long request that has begun waits in line, unread; the first in line continues, so that
      always one is finished, and what is above the limit is one request at most;
    - peers that hold answers they do not take are closed (Listener, at its next look).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Waiter(Protocol):
    def resume(self) -> None:
        """Continue reading: there is memory, or the waiter is the first in line."""
        ...


class RequestMemory:
    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._line: dict[Waiter, None] = {}
        self.used = 0

    @property
    def is_short(self) -> bool:
        # Called before every read, mostly with nothing in use: then the setting is not looked up.
        return self.used > 0 and self.used >= self._limit()

    @property
    def is_tight(self) -> bool:
        """Whether more than half is used, so that no buffer should be kept for later."""
        return self.used > 0 and 2 * self.used >= self._limit()

    @property
    def waiting(self) -> int:
        return len(self._line)

    def change(self, difference: int) -> None:
        """Count `difference` bytes more (or fewer, if negative)."""
        self.used += difference
        if difference < 0 and self._line and not self.is_short:
            line, self._line = self._line, {}
            for waiter in line:
                waiter.resume()

    def may_grow(self, waiter: Waiter) -> bool:
        """Whether `waiter` may take more. If not, it waits in line and will be resumed."""
        if not self.is_short:
            return True
        self._line.setdefault(waiter)
        return next(iter(self._line)) is waiter

    def leave(self, waiter: Waiter) -> None:
        """Leave the line, once the request is complete or its peer gone; the next one continues."""
        if waiter not in self._line:
            return
        was_first = next(iter(self._line)) is waiter
        del self._line[waiter]
        if was_first and self._line:
            next(iter(self._line)).resume()
