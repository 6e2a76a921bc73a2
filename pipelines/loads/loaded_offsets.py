"""Offsets loaded into a table, and the ranges to load next. Pure.

Invariants: the table has exactly the records below the committed offsets, and no others of
these topics; so a load resumes exactly there, however the one before it ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...protocol.topic_partition import TopicPartition
from ..ranges.partition_range import PartitionRange, recreated_topics


@dataclass(frozen=True, slots=True)
class LoadedOffsets:
    """Offsets loaded into a table.

    offsets: the next offset to load, by partition. topic_ids: ids as text, by topic.
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def after(
        self, ranges: Iterable[PartitionRange], topic_ids: Mapping[str, str]
    ) -> LoadedOffsets:
        """Loaded offsets after these ranges are loaded, too."""
        ends = {one.topic_partition: one.end for one in ranges}
        names = {one.topic for one in ends}
        ids = {name: topic_ids[name] for name in sorted(names)}
        return LoadedOffsets({**self.offsets, **ends}, {**self.topic_ids, **ids})

    def made_again(self, topic_ids: Mapping[str, str]) -> list[str]:
        """Names of topics that were recreated since they were loaded, ascending."""
        return recreated_topics(self.topic_ids, topic_ids)

    def without(self, topics: Iterable[str]) -> LoadedOffsets:
        gone = set(topics)
        return LoadedOffsets(
            {key: offset for key, offset in self.offsets.items() if key.topic not in gone},
            {name: known for name, known in self.topic_ids.items() if name not in gone},
        )


def next_ranges(ranges: Iterable[PartitionRange], most_records: int) -> list[PartitionRange]:
    """The beginnings of `ranges`, about `most_records` in all, shared in proportion.

    >>> next_ranges([PartitionRange("t", 0, 0, 90), PartitionRange("t", 1, 5, 15)], 50)
    [PartitionRange("t", 0, 0, 45), PartitionRange("t", 1, 5, 10)]
    """
    wanted = [one for one in ranges if one.size]
    total = sum(one.size for one in wanted)
    if total <= most_records:
        return wanted
    return [
        one._replace(end=one.start + max(1, one.size * most_records // total)) for one in wanted
    ]
