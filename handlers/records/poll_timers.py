"""Timers of long polls: polls that end at about the same time share one timer of the event loop.

With a timer each, polls wake the loop one by one: an eighth of the cost of a thousand idle polls
(docs/notes/performance.md). So the end of a poll is postponed to the next tick; ticks are at most a
fiftieth of its wait apart. Kafka's purgatory has ticks, too (SystemTimer). All polls of a tick are
woken in one iteration of the loop, and their clients, which fetch again at once, stay on one tick.

A poll never ends before its time. Not here: what wakes it earlier (replication/partition).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakKeyDictionary

PARTS = 50
"""Number of parts of a poll's wait; a poll may end one part late."""

Wake = Callable[[], None]


class PollTimers:
    """Timers of one event loop. Times are the loop's, in seconds.

    It holds no reference to its loop, which would keep the loop alive: see poll_timers.
    """

    def __init__(self) -> None:
        self._due: dict[float, tuple[asyncio.TimerHandle, dict[Wake, None]]] = {}

    def __len__(self) -> int:
        return len(self._due)

    def add(
        self, loop: asyncio.AbstractEventLoop, wake: Wake, deadline: float, wait_ms: int
    ) -> float:
        """Call `wake` at `deadline` or a little later; returns the time, for `discard`."""
        tick = tick_ms(wait_ms) / 1000
        due = (deadline // tick + 1) * tick
        found = self._due.get(due)
        if found is None:
            found = self._due[due] = loop.call_at(due, self._wake_all, due), {}
        found[1][wake] = None
        return due

    def discard(self, wake: Wake, due: float) -> None:
        """Cancel the call of `wake`. Harmless if it was called."""
        found = self._due.get(due)
        if found is None:
            return
        timer, wakes = found
        wakes.pop(wake, None)
        if not wakes:
            timer.cancel()
            del self._due[due]

    def _wake_all(self, due: float) -> None:
        _, wakes = self._due.pop(due)
        for wake in wakes:
            wake()


def tick_ms(wait_ms: int) -> int:
    """Tick in ms: a power of two, so that polls of similar length share ticks; at least 1."""
    return max(1, 1 << (wait_ms // PARTS).bit_length() >> 1)


_timers: WeakKeyDictionary[asyncio.AbstractEventLoop, PollTimers] = WeakKeyDictionary()


def poll_timers(loop: asyncio.AbstractEventLoop) -> PollTimers:
    """Timers of the loop, the same for all its polls."""
    found = _timers.get(loop)
    if found is None:
        found = _timers[loop] = PollTimers()
    return found
