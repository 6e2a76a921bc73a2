"""Calls of a member's `commit`, which return when the thread that owns the consumer has committed.

Calls are numbered: a commit that began before a call does not complete it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class CommitCalls:
    """Commit calls of a member. `changed` guards them, and is notified when calls are served."""

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self._served = 0
        self._error: Exception | None = None
        self.asked = 0

    def ask(self) -> int:
        """Register a call; return its number, for `wait`."""
        with self._changed:
            self.asked += 1
            return self.asked

    def wait(self, number: int, has_ended: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until a call is served, or the member has ended; return False after `timeout_s`.

        Raises:
            KafkaError, ConnectionFailed: the error of the last commit, which is retried.
        """
        with self._changed:
            in_time = self._changed.wait_for(
                lambda: self._served >= number or has_ended(), timeout_s
            )
        if in_time and self._error is not None:
            raise self._error
        return in_time

    def serve(self, number: int, error: Exception | None) -> None:
        """End the first `number` calls: a commit that covers them has ended. error: its failure."""
        with self._changed:
            self._error = error
            self._served = number
            self._changed.notify_all()
