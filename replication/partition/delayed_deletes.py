"""Delayed deletes: DeleteRecords of one replica, answered when all in sync have followed it."""

from __future__ import annotations

from typing import Any, Protocol

from ...cluster.partition.leader_state import LeaderState
from ...protocol.errors import KafkaError
from ...steps.replies import Refuse, Reply
from ...storage.log.partition_log import PartitionLog
from ..effects import Effects
from .delayed_fetches import DelayedFetches


class DeletingReplica(Protocol):
    """The replica whose records are deleted."""

    log: PartitionLog
    leader: LeaderState | None

    @property
    def fetches(self) -> DelayedFetches: ...


class DelayedDeletes:
    """Moves the start of a leader's log, and who waits until the followers' have moved, too."""

    def __init__(self, replica: DeletingReplica, effects: Effects) -> None:
        self._replica = replica
        self._effects = effects
        self._waiting: list[tuple[int, Any]] = []
        """(offset, ticket) of those who wait until all in sync have dropped what is below it."""

    def delete_records(self, before_offset: int) -> int:
        """Returns the log start offset. Raises OffsetOutOfRange."""
        log = self._replica.log
        log.advance_log_start_offset(before_offset)
        self._replica.fetches.wake_followers(0)
        return log.log_start_offset

    def is_deleted(self, offset: int) -> bool:
        """Whether all replicas in sync have dropped what is below `offset`."""
        leader = self._replica.leader
        return leader is None or leader.low_watermark(self._replica.log.log_start_offset) >= offset

    def when_deleted(self, offset: int, ticket: Any) -> None:
        """The ticket is answered as soon as is_deleted(offset), or another node leads."""
        self._waiting.append((offset, ticket))

    def on_follower_fetch(self) -> None:
        """A follower has said where its log starts."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for offset, ticket in waiting:
            if self.is_deleted(offset):
                self._effects.append(Reply(ticket))
            else:
                self._waiting.append((offset, ticket))

    def fail(self, error: KafkaError) -> None:
        """Another node leads, or the disk has failed."""
        for _, ticket in self._waiting:
            self._effects.append(Refuse(ticket, error))
        self._waiting.clear()
