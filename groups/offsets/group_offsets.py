"""The committed offsets of one group: where it goes on in each partition.

Hard state: it changes only in `apply` and `end_transaction`, after the record is committed in the
log. So a fetch never shows an offset that a fail-over could take back, and replaying the log gives
the same offsets.

    plain commit             counts at once
    commit in a transaction  pending until the transaction's marker, and then counts unless a plain
                             commit of the same partition came behind it in the log
    tombstone                nothing is left of the partition, neither committed nor pending

What always holds:
    records are applied in log order, so the last committed one of a partition counts;
    a partition whose commit is on its way to the log (`begin` .. `end`), or pending, never
    expires: a tombstone behind that commit would erase it. A deletion covers such a partition,
    for the same reason.

Source: apache/kafka group-coordinator/.../OffsetMetadataManager.java, OffsetAndMetadata.java.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from ...protocol.topic_partition import TopicPartition
from ..group_records import NO_TIMESTAMP, OffsetCommitKey, OffsetCommitValue, OffsetRecord


class GroupOffsets:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self._committed: dict[str, dict[int, OffsetCommitValue]] = {}
        self._on_their_way: Counter[TopicPartition] = Counter()
        # Of each producer with an open transaction; None: a plain commit came behind it.
        self._pending: dict[int, dict[TopicPartition, OffsetCommitValue | None]] = {}
        self._count = 0

    def __len__(self) -> int:
        """Partitions with a committed offset."""
        return self._count

    @property
    def is_empty(self) -> bool:
        """Nothing is committed, pending, or about to be committed."""
        return not (self._committed or self._on_their_way or self._pending)

    @property
    def is_committing(self) -> bool:
        """A commit of the group is on its way to the log."""
        return bool(self._on_their_way)

    def get(self, topic: str, partition: int) -> OffsetCommitValue | None:
        return self._committed.get(topic, {}).get(partition)

    def is_pending(self, topic: str, partition: int) -> bool:
        """An open transaction may yet change the offset: it is not stable."""
        return any((topic, partition) in offsets for offsets in self._pending.values())

    def topics(self) -> Iterator[tuple[str, list[int]]]:
        """Every topic with its partitions, both in order."""
        for topic, partitions in sorted(self._committed.items()):
            yield topic, sorted(partitions)

    # --- what the log says -----------------------------------------------------------------------

    def apply(self, record: OffsetRecord) -> None:
        """A plain commit or a tombstone."""
        key, value = record
        if value is not None:
            self._put(key.topic, key.partition, value)
            for offsets in self._pending.values():
                if (key.topic, key.partition) in offsets:
                    offsets[key.topic, key.partition] = None
            return
        partitions = self._committed.get(key.topic)
        if partitions is not None and partitions.pop(key.partition, None) is not None:
            self._count -= 1
            if not partitions:
                del self._committed[key.topic]
        for producer_id in list(self._pending):
            self._pending[producer_id].pop((key.topic, key.partition), None)
            if not self._pending[producer_id]:
                del self._pending[producer_id]

    def apply_pending(self, producer_id: int, record: OffsetRecord) -> None:
        """A commit in the producer's open transaction."""
        key, value = record
        self._pending.setdefault(producer_id, {})[key.topic, key.partition] = value

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        for (topic, partition), value in self._pending.pop(producer_id, {}).items():
            if is_commit and value is not None:
                self._put(topic, partition, value)

    def _put(self, topic: str, partition: int, value: OffsetCommitValue) -> None:
        partitions = self._committed.setdefault(topic, {})
        self._count += partition not in partitions
        partitions[partition] = value

    # --- what is about to be in the log ----------------------------------------------------------

    def begin(self, topic: str, partition: int) -> None:
        """A commit of this partition is being appended."""
        self._on_their_way[topic, partition] += 1

    def end(self, topic: str, partition: int) -> None:
        """It is applied, or it failed."""
        self._on_their_way[topic, partition] -= 1
        if not self._on_their_way[topic, partition]:
            del self._on_their_way[topic, partition]

    # --- letting go ------------------------------------------------------------------------------

    def expired(
        self,
        *,
        now_ms: int,
        retention_ms: int,
        idle_since_ms: int | None,
        is_subscribed: Callable[[str], bool] | None = None,
    ) -> tuple[list[OffsetRecord], bool]:
        """(tombstones of what may go, whether that is all there is).

        An offset's retention begins when the group went idle, or (idle_since_ms None) with its
        commit; an offset with an expiry of its own, from an old client, keeps to that. What a
        living group is subscribed to stays.
        """
        gone: list[TopicPartition] = []
        is_all = not (self._on_their_way or self._pending)
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
        """Tombstones for all that is committed, pending, or about to be."""
        return self._tombstones(sorted({*self._each(), *self._on_their_way, *self._each_pending()}))

    def tombstones_in(self, topics: set[str]) -> list[OffsetRecord]:
        """Tombstones for all that is committed, pending, or about to be in these topics."""
        gone = {
            (topic, partition)
            for topic in topics & self._committed.keys()
            for partition in self._committed[topic]
        }
        for about in (self._on_their_way, self._each_pending()):
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
        return (topic, partition) in self._on_their_way or self.is_pending(topic, partition)

    def _each(self) -> Iterator[TopicPartition]:
        for topic, partitions in self._committed.items():
            for partition in partitions:
                yield topic, partition

    def _each_pending(self) -> Iterator[TopicPartition]:
        for offsets in self._pending.values():
            yield from offsets

    def _tombstones(self, gone: Iterable[TopicPartition]) -> list[OffsetRecord]:
        return [
            OffsetRecord(
                OffsetCommitKey(group=self.group_id, topic=topic, partition=partition), None
            )
            for topic, partition in gone
        ]
