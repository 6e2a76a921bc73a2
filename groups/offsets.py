"""The committed offsets of one group: where it goes on in each partition.

Hard state: it changes only in `apply`, after the record is committed in the log. So a fetch never
shows an offset that a fail-over could take back, and replaying the log gives the same offsets.

What always holds:
    records are applied in log order, so the last committed one of a partition counts;
    a partition whose commit is on its way to the log (`begin` .. `end`) never expires: a tombstone
    behind that commit would erase it. A deletion covers such a partition, for the same reason.

Source: apache/kafka group-coordinator/.../OffsetMetadataManager.java, OffsetAndMetadata.java.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from .group_records import NO_TIMESTAMP, OffsetCommitKey, OffsetCommitValue, OffsetRecord

TopicPartition = tuple[str, int]


class GroupOffsets:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self._committed: dict[str, dict[int, OffsetCommitValue]] = {}
        self._on_their_way: Counter[TopicPartition] = Counter()

    @property
    def is_empty(self) -> bool:
        """Nothing is committed and nothing is about to be."""
        return not self._committed and not self._on_their_way

    def get(self, topic: str, partition: int) -> OffsetCommitValue | None:
        return self._committed.get(topic, {}).get(partition)

    def topics(self) -> Iterator[tuple[str, list[int]]]:
        """Every topic with its partitions, both in order."""
        for topic, partitions in sorted(self._committed.items()):
            yield topic, sorted(partitions)

    def apply(self, record: OffsetRecord) -> None:
        key, value = record
        if value is not None:
            self._committed.setdefault(key.topic, {})[key.partition] = value
            return
        partitions = self._committed.get(key.topic)
        if partitions is not None:
            partitions.pop(key.partition, None)
            if not partitions:
                del self._committed[key.topic]

    def begin(self, topic: str, partition: int) -> None:
        """A commit of this partition is being appended."""
        self._on_their_way[topic, partition] += 1

    def end(self, topic: str, partition: int) -> None:
        """It is applied, or it failed."""
        self._on_their_way[topic, partition] -= 1
        if not self._on_their_way[topic, partition]:
            del self._on_their_way[topic, partition]

    def expired(
        self, *, now_ms: int, retention_ms: int, idle_since_ms: int | None
    ) -> list[OffsetRecord]:
        """Tombstones of what may go.

        An offset's retention begins when the group went idle, or (idle_since_ms None) with its
        commit; an offset with an expiry of its own, from an old client, keeps to that.
        """
        gone = []
        for topic, partition in self._each():
            value = self._committed[topic][partition]
            if value.expire_timestamp != NO_TIMESTAMP:
                is_expired = now_ms >= value.expire_timestamp
            else:
                since_ms = value.commit_timestamp if idle_since_ms is None else idle_since_ms
                is_expired = now_ms - since_ms >= retention_ms
            if is_expired and (topic, partition) not in self._on_their_way:
                gone.append((topic, partition))
        return self._tombstones(gone)

    def tombstones(self) -> list[OffsetRecord]:
        """Of everything that is committed or about to be."""
        return self._tombstones(sorted({*self._each(), *self._on_their_way}))

    def _each(self) -> Iterator[TopicPartition]:
        for topic, partitions in self.topics():
            for partition in partitions:
                yield topic, partition

    def _tombstones(self, gone: Iterable[TopicPartition]) -> list[OffsetRecord]:
        return [
            OffsetRecord(
                OffsetCommitKey(group=self.group_id, topic=topic, partition=partition), None
            )
            for topic, partition in gone
        ]
