"""The bounded queue of an asynchronous producer."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Generic, TypeVar

from ..message.errors import QueueClosed

T = TypeVar("T")


class EventQueue(Generic[T]):
    """Queue with many producers and one consumer. After `close` it only can be emptied."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def is_finished(self) -> bool:
        """Whether it is closed and empty."""
        with self._changed:
            return self._closed and not self._items

    def put(self, item: T, timeout_ms: int) -> bool:
        """Put an item, if there is room within `timeout_ms`; return whether there was.

        timeout_ms: -1 waits forever, 0 not at all.

        Raises:
            QueueClosed: it is closed, or was while this waited.
        """
        with self._changed:
            if len(self._items) >= self._size and timeout_ms:
                self._changed.wait_for(
                    lambda: self._closed or len(self._items) < self._size,
                    None if timeout_ms < 0 else timeout_ms / 1000,
                )
            if self._closed:
                raise QueueClosed("the producer is closed")
            if len(self._items) >= self._size:
                return False
            self._items.append(item)
            if len(self._items) == 1:
                self._changed.notify_all()
            return True

    def take(self, most: int, deadline: float) -> list[T]:
        """Take up to `most` items, as soon as there are any; [] at `deadline` (time.monotonic), or
        when it is finished.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self._items, max(0.0, deadline - time.monotonic())
            )
            taken = [self._items.popleft() for _ in range(min(most, len(self._items)))]
            if taken:
                self._changed.notify_all()
            return taken

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
