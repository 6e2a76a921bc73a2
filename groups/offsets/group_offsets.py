"""Committed offsets of one group.

Hard state: it changes only in `apply` and `end_transaction`, after the record is committed in the
log. So a fetch never returns an offset that a fail-over could undo, and replaying the log gives the
same offsets.

    plain commit             takes effect at once
    commit in a transaction  pending until the transaction's marker; takes effect then, unless a
                             later commit of the partition in the log has done so: a plain one, or
                             that of a transaction which ended before
    tombstone                removes all offsets of the partition, committed and pending

Invariants:
    of the commits of a partition that have taken effect the last one in the log is returned,
    whichever transaction ended last: compaction keeps only that one, and replaying must give it;
    a partition whose commit is being appended (`begin` .. `end`), or pending, never expires: a
    tombstone behind that commit would erase it. A deletion includes such a partition, for the
    same reason.

Source: apache/kafka group-coordinator/.../OffsetMetadataManager.java, OffsetAndMetadata.java.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from ...protocol.topic_partition import TopicPartitionPair
from ..group_records import NO_TIMESTAMP, OffsetCommitKey, OffsetCommitValue, OffsetRecord
from .lag_query import GroupPosition
from .pending_offsets import PendingOffsets


class GroupOffsets:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self._committed: dict[str, dict[int, OffsetCommitValue]] = {}
        self._in_flight: Counter[TopicPartitionPair] = Counter()
        self._pending = PendingOffsets()
        self._numbers = itertools.count()
        self._count = 0

    def __len__(self) -> int:
        """Number of partitions with a committed offset."""
        return self._count

    @property
    def is_empty(self) -> bool:
        """Whether nothing is committed, pending, or being committed."""
        return not (self._committed or self._in_flight or self._pending)

    @property
    def is_committing(self) -> bool:
        """Whether a commit of the group is being appended."""
        return bool(self._in_flight)

    def get(self, topic: str, partition: int) -> OffsetCommitValue | None:
        return self._committed.get(topic, {}).get(partition)

    def is_pending(self, topic: str, partition: int) -> bool:
        """Whether an open transaction may still change the offset, so that it is not stable."""
        return (topic, partition) in self._pending

    def topics(self) -> Iterator[tuple[str, list[int]]]:
        """Every topic with its partitions, both in order."""
        for topic, partitions in sorted(self._committed.items()):
            yield topic, sorted(partitions)

    def positions(self) -> list[GroupPosition]:
        """Every committed offset, at this moment."""
        return [
            GroupPosition(self.group_id, topic, partition, value.offset)
            for topic, partitions in self._committed.items()
            for partition, value in partitions.items()
        ]

    # --- records of the log ----------------------------------------------------------------------

    def apply(self, record: OffsetRecord) -> None:
        """Apply a plain commit or a tombstone."""
        key, value = record
        if value is not None:
            self._put(key.topic, key.partition, value, next(self._numbers))
            return
        partitions = self._committed.get(key.topic)
        if partitions is not None and partitions.pop(key.partition, None) is not None:
            self._count -= 1
            if not partitions:
                del self._committed[key.topic]
        self._pending.forget((key.topic, key.partition))

    def apply_pending(
        self, producer_id: int, topic: str, partition: int, value: OffsetCommitValue
    ) -> None:
        """Apply a commit in the producer's open transaction."""
        self._pending.add(producer_id, (topic, partition), value, next(self._numbers))

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> bool:
        """End the producer's transaction. Returns whether a pending offset took effect."""
        counts = False
        for (topic, partition), pending in self._pending.take(producer_id):
            if is_commit and pending.value is not None:
                self._put(topic, partition, pending.value, pending.number)
                counts = True
        return counts

    def _put(self, topic: str, partition: int, value: OffsetCommitValue, number: int) -> None:
        """Set a committed offset; pending commits before it in the log never take effect."""
        partitions = self._committed.setdefault(topic, {})
        self._count += partition not in partitions
        partitions[partition] = value
        self._pending.overtake((topic, partition), number)

    # --- commits being appended ------------------------------------------------------------------

    def begin(self, topic: str, partition: int) -> None:
        """Note that a commit of this partition is being appended."""
        self._in_flight[topic, partition] += 1

    def end(self, topic: str, partition: int) -> None:
        """Note that the commit is applied, or failed."""
        self._in_flight[topic, partition] -= 1
        if not self._in_flight[topic, partition]:
            del self._in_flight[topic, partition]

    # --- expiry and deletion ---------------------------------------------------------------------

    def expired(
        self,
        *,
        now_ms: int,
        retention_ms: int,
        idle_since_ms: int | None,
        is_subscribed: Callable[[str], bool] | None = None,
    ) -> tuple[list[OffsetRecord], bool]:
        """(tombstones of expired offsets, whether all offsets of the group are expired).

        An offset's retention begins when the group went idle, or (idle_since_ms None) with its
        commit; an offset with its own expiry, from an old client, expires by that. Offsets in
        topics that an active group is subscribed to do not expire.
        """
        gone: list[TopicPartitionPair] = []
        is_all = not (self._in_flight or self._pending)
        for topic, partitions in self._committed.items():
            if is_subscribed is not None and is_subscribed(topic):
                is_all = False
                continue
            for partition, value in partitions.items():
                if value.expire_timestamp != NO_TIMESTAMP:
                    is_expired = now_ms >= value.expire_timestamp
                else:
                    since_ms = value.commit_timestamp if idle_since_ms is None else idle_since_ms
                    is_expired = now_ms - since_ms >= retention_ms
                if is_expired and not self._is_about_to_change(topic, partition):
                    gone.append((topic, partition))
                else:
                    is_all = False
        return self._tombstones(sorted(gone)), is_all

    def tombstones(self) -> list[OffsetRecord]:
        """Tombstones for all offsets that are committed, pending, or being committed."""
        return self._tombstones(sorted({*self._each(), *self._in_flight, *self._pending}))

    def tombstones_in(self, topics: set[str]) -> list[OffsetRecord]:
        """Tombstones for all offsets in these topics that are committed, pending, or being
        committed.
        """
        gone = {
            (topic, partition)
            for topic in topics & self._committed.keys()
            for partition in self._committed[topic]
        }
        for about in (self._in_flight, self._pending):
            gone.update(key for key in about if key[0] in topics)
        return self._tombstones(sorted(gone))

    def tombstones_of(self, topic: str, partitions: set[int]) -> list[OffsetRecord]:
        """Tombstones for those of these partitions that have an offset."""
        return self._tombstones(
            (topic, partition)
            for partition in sorted(partitions)
            if self.get(topic, partition) is not None or self._is_about_to_change(topic, partition)
        )

    def _is_about_to_change(self, topic: str, partition: int) -> bool:
        return (topic, partition) in self._in_flight or self.is_pending(topic, partition)

    def _each(self) -> Iterator[TopicPartitionPair]:
        for topic, partitions in self._committed.items():
            for partition in partitions:
                yield topic, partition

    def _tombstones(self, gone: Iterable[TopicPartitionPair]) -> list[OffsetRecord]:
        return [
            OffsetRecord(
                OffsetCommitKey(group=self.group_id, topic=topic, partition=partition), None
            )
            for topic, partition in gone
        ]
