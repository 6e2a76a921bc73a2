"""Timers that are nearly always restarted before they fire: the sessions of a coordinator's
members.

    start, cancel      one dict write for a timer that is restarted; its entry in the queue stays
    take_due(now)      the timers that fire, one at a time
    next_deadline_ms   time of the next take_due; it may find none due if a timer was restarted

Two guards against removing members that are alive:
    a due timer fires only at the take_due after the one that found it, so that requests that have
    arrived meanwhile are read first;
    a timer that is checked late, because the process was paused, is postponed by as much as it is
    late.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable, Iterator
from typing import Any

LATE_MS = 200
STALE_ENTRIES = 64
"""Stale entries that the queue may hold, besides as many entries as there are timers."""


class CoordinatorTimer:
    """Deadlines by key, in the monotonic milliseconds of the caller."""

    def __init__(self) -> None:
        self._deadlines: dict[Hashable, int] = {}
        self._queue: list[tuple[int, int, Hashable]] = []
        self._queued_at: dict[Hashable, int] = {}
        """Earliest time in the queue by key: later deadlines of a key need no new entry."""
        self._suspects: list[tuple[Hashable, int]] = []
        """Timers that the last take_due found due, with their deadlines."""
        self._suspected_at_ms = 0
        self._sequence = itertools.count()

    def start(self, key: Hashable, after_ms: int, *, now_ms: int) -> None:
        """Start the timer of `key`, due in `after_ms`; replaces its former deadline."""
        deadline_ms = self._deadlines[key] = now_ms + after_ms
        queued_at = self._queued_at.get(key)
        if queued_at is None or queued_at > deadline_ms:
            self._push(key, deadline_ms)

    def cancel(self, key: Hashable) -> None:
        self._deadlines.pop(key, None)
        if len(self._queue) > 2 * len(self._deadlines) + STALE_ENTRIES:
            self._rebuild()

    def clear(self) -> None:
        self._deadlines.clear()
        self._queue.clear()
        self._queued_at.clear()
        self._suspects.clear()

    @property
    def next_deadline_ms(self) -> int | None:
        if self._suspects:
            return self._suspected_at_ms
        return self._queue[0][0] if self._queue else None

    def take_due(self, now_ms: int) -> Iterator[Any]:
        """Take the timers that were due at the previous call, and have not been restarted since.

        Handling one of them may restart or cancel those after it.
        """
        suspects, self._suspects = self._suspects, []
        for key, deadline_ms in suspects:
            if self._deadlines.get(key) == deadline_ms:
                del self._deadlines[key]
                yield key
        self._suspect(now_ms)

    def _suspect(self, now_ms: int) -> None:
        while self._queue and self._queue[0][0] <= now_ms:
            queued_at, _, key = heapq.heappop(self._queue)
            if self._queued_at.get(key) != queued_at:
                continue  # an entry with an earlier time has replaced it
            del self._queued_at[key]
            deadline_ms = self._deadlines.get(key)
            if deadline_ms is None:
                continue
            late_ms = now_ms - queued_at
            if late_ms > LATE_MS:
                deadline_ms = self._deadlines[key] = max(deadline_ms, now_ms + late_ms)
            if deadline_ms > now_ms:
                self._push(key, deadline_ms)
            else:
                self._suspects.append((key, deadline_ms))
                self._suspected_at_ms = now_ms

    def _push(self, key: Hashable, at_ms: int) -> None:
        self._queued_at[key] = at_ms
        heapq.heappush(self._queue, (at_ms, next(self._sequence), key))

    def _rebuild(self) -> None:
        self._queued_at = dict(self._deadlines)
        self._queue = [(at_ms, next(self._sequence), key) for key, at_ms in self._queued_at.items()]
        heapq.heapify(self._queue)
