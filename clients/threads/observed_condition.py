"""A condition for threads that also calls an observer, for waiting coroutines: see loop_waiter."""

from __future__ import annotations

import threading
from collections.abc import Callable


class ObservedCondition(threading.Condition):
    """Condition with a `watcher`, which is called on the thread that notifies and has the lock."""

    def __init__(self, lock: threading.Lock | None = None) -> None:
        super().__init__(lock or threading.RLock())
        self.watcher: Callable[[], None] | None = None

    def notify_all(self) -> None:
        super().notify_all()
        self.notify_watcher()

    def notify_watcher(self) -> None:
        """Notify only the watcher, of a change that no thread waits for: waking one is slow."""
        if self.watcher is not None:
            self.watcher()
