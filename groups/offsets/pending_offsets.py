"""Offsets committed in open transactions of one group; they take effect with their transactions.

A commit that has taken effect and is behind a pending one in the log has overtaken it: the pending
one will never take effect, whichever transaction ends last. For compaction keeps only the last
commit of a partition in the log, and a coordinator that loads must get the offsets of the former.

Invariants: a producer has an entry exactly while it has a pending offset in a partition's entry.
Source: apache/kafka group-coordinator/.../OffsetMetadataManager.java (OpenTransactions).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...protocol.topic_partition import TopicPartitionPair
from ..group_records import OffsetCommitValue


class PendingOffset(NamedTuple):
    number: int
    """Number of the commit; commits of a group are numbered in log order."""
    value: OffsetCommitValue | None
    """The commit; None: a later commit that took effect replaced it."""


class PendingOffsets:
    def __init__(self) -> None:
        self._of_partition: dict[TopicPartitionPair, dict[int, PendingOffset]] = {}
        """Pending offsets by partition, then by producer id."""
        self._of_producer: dict[int, set[TopicPartitionPair]] = {}

    def __bool__(self) -> bool:
        return bool(self._of_producer)

    def __contains__(self, topic_partition: TopicPartitionPair) -> bool:
        """Whether an open transaction may still change the offset; replaced ones count, too."""
        return topic_partition in self._of_partition

    def __iter__(self) -> Iterator[TopicPartitionPair]:
        """Partitions with pending offsets, each once."""
        return iter(self._of_partition)

    def add(
        self,
        producer_id: int,
        topic_partition: TopicPartitionPair,
        value: OffsetCommitValue,
        number: int,
    ) -> None:
        """Add a commit; it replaces an earlier one of this producer."""
        self._of_partition.setdefault(topic_partition, {})[producer_id] = PendingOffset(
            number, value
        )
        self._of_producer.setdefault(producer_id, set()).add(topic_partition)

    def overtake(self, topic_partition: TopicPartitionPair, number: int) -> None:
        """Void pending commits with a lower number: a commit of this number takes effect."""
        pending = self._of_partition.get(topic_partition)
        if pending is not None:
            for producer_id, offset in pending.items():
                if offset.number < number:
                    pending[producer_id] = offset._replace(value=None)

    def forget(self, topic_partition: TopicPartitionPair) -> None:
        """Void all pending commits of a partition, because of a tombstone."""
        for producer_id in self._of_partition.pop(topic_partition, {}):
            partitions = self._of_producer[producer_id]
            partitions.remove(topic_partition)
            if not partitions:
                del self._of_producer[producer_id]

    def take(self, producer_id: int) -> list[tuple[TopicPartitionPair, PendingOffset]]:
        """Take the offsets committed by the producer's transaction; they are no longer pending."""
        taken = []
        for topic_partition in self._of_producer.pop(producer_id, ()):
            pending = self._of_partition[topic_partition]
            taken.append((topic_partition, pending.pop(producer_id)))
            if not pending:
                del self._of_partition[topic_partition]
        return taken
