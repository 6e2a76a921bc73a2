"""Delayed fetches: those of one replica that wait for more to read (Kafka's fetch purgatory).

Followers wait for the log's end, consumers for the high watermark, and read_committed consumers for
the last stable offset.
"""

from __future__ import annotations

from typing import Final, Protocol

from ...storage.log.partition_log import PartitionLog

EVERYTHING: Final = 1 << 30
"""Bytes to report where they are not counted: a fetch that wakes for too little waits again."""


class FetchWaiter(Protocol):
    """A waiting fetch. It is notified of the bytes that became readable, or that it has to check
    again now. It only records that, and calls nothing of the replica.
    """

    def on_readable(self, size: int) -> None: ...
    def on_changed(self) -> None: ...


class ReadReplica(Protocol):
    """Replica whose log is read; a move to another directory gives it another log."""

    log: PartitionLog


class DelayedFetches:
    """Fetches that wait at one replica, in order of arrival."""

    def __init__(self, replica: ReadReplica) -> None:
        self._replica = replica
        # Dicts for their order: that of a set depends on the memory addresses of its members.
        self._consumers: dict[FetchWaiter, None] = {}
        self._followers: dict[FetchWaiter, None] = {}
        self._stable_consumers: dict[FetchWaiter, None] = {}
        # State when the stable consumers were last woken, or when the first of them was parked.
        self._stable_end, self._is_behind = 0, False

    def park(
        self, waiter: FetchWaiter, *, is_follower: bool = False, is_committed: bool = False
    ) -> None:
        """See handlers.ports.replica_port.LeaderReplica."""
        if is_follower:
            self._followers[waiter] = None
        elif is_committed:
            if not self._stable_consumers:
                self._note_stable()
            self._stable_consumers[waiter] = None
        else:
            self._consumers[waiter] = None

    def unpark(self, waiter: FetchWaiter) -> None:
        self._consumers.pop(waiter, None)
        self._stable_consumers.pop(waiter, None)
        self._followers.pop(waiter, None)

    def wake_followers(self, size: int) -> None:
        """Wake followers. `size` 0: nothing to read, but new watermarks for the next answer."""
        for waiter in list(self._followers):
            waiter.on_readable(size)

    def wake_consumers(self, size: int) -> None:
        """Wake consumers: the high watermark has advanced by so many bytes."""
        if self._consumers:
            for waiter in list(self._consumers):
                waiter.on_readable(size)
        if self._stable_consumers:
            self._wake_stable(size)

    def on_high_watermark(self, size: int) -> None:
        """Wake all: the leader's high watermark has advanced by so many bytes, and the next answer
        to a follower has it.
        """
        if self._consumers or self._stable_consumers:
            self.wake_consumers(size)
        if self._followers:
            self.wake_followers(0)

    def on_changed(self) -> None:
        """Wake all fetches: another node leads, or the disk has failed."""
        for waiter in (*self._consumers, *self._stable_consumers, *self._followers):
            waiter.on_changed()

    def _wake_stable(self, size: int) -> None:
        """Wake read_committed consumers if the last stable offset has advanced; the bytes are
        unknown where it differs from the high watermark, as the transactions that a marker ends may
        be large.
        """
        before, was_behind = self._stable_end, self._is_behind
        self._note_stable()
        if self._stable_end > before:
            for waiter in list(self._stable_consumers):
                waiter.on_readable(EVERYTHING if was_behind or self._is_behind else size)

    def _note_stable(self) -> None:
        log = self._replica.log
        self._stable_end = log.last_stable_offset
        self._is_behind = self._stable_end < log.high_watermark
