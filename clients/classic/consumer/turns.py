"""A fair lock: a thread that releases and reacquires it waits behind threads that wait already.

A plain lock is not fair: a thread that acquires it again and again, as an iterator does for each
message, may starve the others.
"""

from __future__ import annotations

import threading


class Turns:
    """Fair lock, made of two locks: a thread holds `_door` only while it waits for `_room`, so
    other threads wait for `_door`.

    Both locks are reentrant, because a signal handler may run within its own thread's turn;
    `depth` is 2 then.
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
        """Acquire the lock if no other thread holds it or waits; return whether it was acquired."""
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
