"""A fair lock: a thread that releases it and acquires it again waits behind those that wait.

A plain lock is not: a thread that takes it again and again, as an iterator does for each message,
may keep the others out for good.
"""

from __future__ import annotations

import threading


class Turns:
    """One waits at the door, the others in front of it; who leaves the room goes to their end.

    Both locks are reentrant, because the handler of a signal may run within its own thread's turn;
    `depth` then is 2.
    """

    def __init__(self) -> None:
        self.depth = 0
        self._door = threading.RLock()
        self._room = threading.RLock()

    def enter(self) -> None:
        with self._door:
            self._room.acquire()
        self.depth += 1

    def try_enter(self) -> bool:
        """Whether no thread held it, and none waited."""
        if not self._door.acquire(blocking=False):
            return False
        try:
            if not self._room.acquire(blocking=False):
                return False
        finally:
            self._door.release()
        self.depth += 1
        return True

    def leave(self) -> None:
        self.depth -= 1
        self._room.release()
