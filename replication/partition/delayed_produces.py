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
    """Who waits for the commit of a batch, in log order."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._uncommitted: deque[tuple[int, Any]] = deque()
        """(last offset of the batch, ticket)."""

    def when_committed(self, last_offset: int, ticket: Any) -> None:
        """The ticket is answered when the batch that ends there is committed, or cannot be any
        more. Called right after its append, if it is not committed yet.
        """
        self._uncommitted.append((last_offset, ticket))

    def on_high_watermark(self, leader: LeaderState) -> None:
        """It has moved: what is below it is answered. With fewer in sync than min.insync.replicas
        it does not move (LeaderState), and who waits then is answered by the request's timeout.
        """
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[0][0] < leader.high_watermark:
            _, ticket = uncommitted.popleft()
            self._effects.append(ended(ticket, None))

    def fail(self, error: KafkaError) -> None:
        """Nothing that waits will be committed by this leader."""
        for _, ticket in self._uncommitted:
            self._effects.append(Refuse(ticket, error))
        self._uncommitted.clear()
