"""Delayed produces: acks=all of one replica, answered as its batches are committed.

A ticket is a Future of actors/replication/hosted_replica, which handlers/records/produce awaits.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from ...cluster.partition.leader_state import LeaderState
from ...protocol.errors import KafkaError
from ...steps.replies import Refuse, ended
from ..effects import Effects


class DelayedProduces:
    """Requests that wait for the commit of a batch, in log order."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self.uncommitted: deque[tuple[int, Any]] = deque()
        """(last offset of the batch, ticket) of batches that are not committed."""

    def add(self, last_offset: int, ticket: Any) -> None:
        """Answer the ticket when the batch with this last offset is committed, or will never be.
        It is not committed yet: see Replica.when_committed.
        """
        self.uncommitted.append((last_offset, ticket))

    def on_high_watermark(self, leader: LeaderState) -> None:
        """Answer what is below the new high watermark. With fewer in sync than min.insync.replicas
        it does not move (LeaderState), and the waiting requests are answered by their timeout.
        """
        uncommitted = self.uncommitted
        while uncommitted and uncommitted[0][0] < leader.high_watermark:
            _, ticket = uncommitted.popleft()
            self._effects.append(ended(ticket, None))

    def fail(self, error: KafkaError) -> None:
        """Refuse waiting requests: this leader will not commit them."""
        for _, ticket in self.uncommitted:
            self._effects.append(Refuse(ticket, error))
        self.uncommitted.clear()
