"""Waiting of coroutines for a condition that threads notify.

Invariants:
    A coroutine that waits needs no thread, and its loop waits only for a lock that is held briefly.
    However many coroutines wait, and however often threads notify, the loop is woken once for all
    notifications since its last check.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from .observed_condition import ObservedCondition


class LoopWaiter:
    """Waiter for the coroutines of one loop. A condition has one waiter."""

    def __init__(self, condition: ObservedCondition, loop: asyncio.AbstractEventLoop) -> None:
        self._condition = condition
        self._loop = loop
        self._waiting: set[asyncio.Future[None]] = set()
        self._armed = False
        condition.watcher = self._on_notify

    async def wait_for(self, predicate: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until `predicate`, called with the lock, is true; return False after `timeout_s`."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            with self._condition:
                if predicate():
                    return True
                self._armed = True  # what happens from here on wakes the loop
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            future = self._loop.create_future()
            self._waiting.add(future)
            try:
                await asyncio.wait((future,), timeout=left)
            finally:
                self._waiting.discard(future)

    def wake(self) -> None:
        """Wake all waiters, which check their conditions again. On the loop's thread."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    def _on_notify(self) -> None:
        if self._armed:
            self._armed = False
            try:
                self._loop.call_soon_threadsafe(self.wake)
            except RuntimeError:
                pass  # the loop is closed: no coroutine waits any more
