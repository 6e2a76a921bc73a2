"""Many timers that are nearly always moved on before they fire: group sessions.

Moving a deadline on is one dict write: the event loop's timer of a key stays, and when it fires
early it is set again for the rest. So a heartbeat costs no timer of the loop.

Two guards against declaring the living dead (RELIABILITY: session expiry under pauses):
    what is due waits for one more turn of the loop, in which requests that have arrived are read;
    a timer that fires late, because the process stood still, is put off by as much as it is late.
Time is the loop's, so a step of the wall clock moves nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")

LATE_SECONDS = 0.2


class DeadlineTimers(Generic[K]):
    """Calls `on_due(key)` once per started timer that was not cancelled or moved."""

    def __init__(self, on_due: Callable[[K], None]) -> None:
        self._on_due = on_due
        self._loop = asyncio.get_running_loop()
        self._deadlines: dict[K, float] = {}
        # With its time beside each: for a time that has come uvloop gives a handle that has none.
        self._handles: dict[K, tuple[float, asyncio.Handle]] = {}

    def start(self, key: K, after_ms: int) -> None:
        deadline = self._loop.time() + after_ms / 1000
        self._deadlines[key] = deadline
        pending = self._handles.get(key)
        if pending is None:
            self._call_at(deadline, key)
        elif pending[0] > deadline:
            pending[1].cancel()
            self._call_at(deadline, key)

    def cancel(self, key: K) -> None:
        self._deadlines.pop(key, None)
        pending = self._handles.pop(key, None)
        if pending is not None:
            pending[1].cancel()

    def close(self) -> None:
        self._deadlines.clear()
        for _, handle in self._handles.values():
            handle.cancel()
        self._handles.clear()

    def _call_at(self, when: float, key: K) -> None:
        self._handles[key] = (when, self._loop.call_at(when, self._on_timer, key))

    def _on_timer(self, key: K) -> None:
        when, _ = self._handles.pop(key)
        deadline = self._deadlines[key]
        now = self._loop.time()
        late = now - when
        if late > LATE_SECONDS:
            deadline = self._deadlines[key] = max(deadline, now + late)
        if deadline > now:
            self._call_at(deadline, key)
        else:
            self._loop.call_soon(self._on_suspect, key, deadline)

    def _on_suspect(self, key: K, deadline: float) -> None:
        if self._deadlines.get(key) == deadline:
            # No handle is pending: a start() in between would have moved the deadline.
            del self._deadlines[key]
            self._on_due(key)
