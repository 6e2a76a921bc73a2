"""Offsets to add to a producer's current transaction, in the order of the calls.

Source: pendingTxnOffsetCommits of TransactionManager in apache/kafka
clients/.../producer/internals.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from ....protocol.topic_partition import TopicPartition
from ...group.membership import ConsumerGroupMetadata
from ...wire.record_metadata import OffsetAndMetadata
from .transaction_request import OffsetsToSend, TransactionOperation


class PendingOffsetCommits:
    """Offset commits of all groups. The first is repeated until all its partitions are answered."""

    def __init__(self) -> None:
        self._waiting: deque[OffsetsToSend] = deque()

    @property
    def first(self) -> OffsetsToSend | None:
        """Commits to send next."""
        return self._waiting[0] if self._waiting else None

    def add(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> TransactionOperation:
        """Add the offsets of one call; return its operation, which is done if there are none."""
        waiting = OffsetsToSend.of(offsets, group)
        if offsets:
            self._waiting.append(waiting)
        else:
            waiting.operation.end()
        return waiting.operation

    def on_group_added(self) -> None:
        """Record that the transaction coordinator has added the group of the first commit."""
        if self._waiting:  # an abort may have dropped them
            self._waiting[0].is_added = True

    def end_first(self) -> None:
        """End the first: its offsets are in the transaction."""
        self._waiting.popleft().operation.end()

    def drop(self, error: Exception) -> None:
        """Fail all, as the transaction is not committed."""
        for waiting in self._waiting:
            waiting.operation.end(error)
        self._waiting.clear()
