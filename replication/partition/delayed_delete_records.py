"""Delayed deletes: DeleteRecords of one replica, answered when all in-sync replicas have applied
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ...cluster.partition.leader_state import LeaderState
from ...protocol.errors import KafkaError
from ...steps.replies import Refuse, Reply
from ...storage.log.partition_log import PartitionLog
from ..effects import Effects
from .delayed_fetches import DelayedFetches


class DeletingReplica(Protocol):
    """Replica whose records are deleted."""

    log: PartitionLog
    leader: LeaderState | None

    @property
    def fetches(self) -> DelayedFetches: ...


class DelayedDeleteRecords:
    """Advances the start of a leader's log, and keeps requests that wait until the followers' have
    advanced, too.
    """

    def __init__(self, replica: DeletingReplica, effects: Effects) -> None:
        self._replica = replica
        self._effects = effects
        self._waiting: list[tuple[int, Any]] = []
        """(offset, ticket) of requests that wait until all in-sync replicas have deleted the
        records below it.
        """

    def delete_records(self, before_offset: int) -> int:
        """Delete the records below an offset. Returns the log start offset. Raises
        OffsetOutOfRange.
        """
        log = self._replica.log
        log.advance_log_start_offset(before_offset)
        self._replica.fetches.wake_followers(0)
        return log.log_start_offset

    def is_deleted(self, offset: int) -> bool:
        """Whether all in-sync replicas have deleted the records below `offset`."""
        leader = self._replica.leader
        return leader is None or leader.low_watermark(self._replica.log.log_start_offset) >= offset

    def when_deleted(self, offset: int, new_ticket: Callable[[], Any]) -> Any:
        """Ticket that is answered as soon as is_deleted(offset), or when another node leads; None:
        is_deleted(offset) already.
        """
        if self.is_deleted(offset):
            return None
        ticket = new_ticket()
        self._waiting.append((offset, ticket))
        return ticket

    def on_follower_fetch(self) -> None:
        """Called when a follower has reported its log start."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for offset, ticket in waiting:
            if self.is_deleted(offset):
                self._effects.append(Reply(ticket))
            else:
                self._waiting.append((offset, ticket))

    def fail(self, error: KafkaError) -> None:
        """Refuse waiting requests: another node leads, or the disk has failed."""
        for _, ticket in self._waiting:
            self._effects.append(Refuse(ticket, error))
        self._waiting.clear()
