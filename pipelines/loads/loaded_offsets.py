"""How far a table is with the topics that are loaded into it, and what is to be loaded next. Pure.

What always holds: what a commit says is loaded is in the table, and nothing else of that topic is;
so a load goes on exactly there, whatever ended the one before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...clients.wire.record_metadata import TopicPartition
from ..ranges.partition_range import PartitionRange


@dataclass(frozen=True, slots=True)
class LoadedOffsets:
    """offsets: of each partition the next one to be loaded. topic_ids: by topic, as text."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def after(
        self, ranges: Iterable[PartitionRange], topic_ids: Mapping[str, str]
    ) -> LoadedOffsets:
        """When these are loaded, too."""
        ends = {one.topic_partition: one.end for one in ranges}
        names = {one.topic for one in ends}
        ids = {name: topic_ids[name] for name in sorted(names)}
        return LoadedOffsets({**self.offsets, **ends}, {**self.topic_ids, **ids})

    def made_again(self, topic_ids: Mapping[str, str]) -> list[str]:
        """Topics that are not those that were loaded, but new ones of the same name."""
        return sorted(
            name
            for name, known in self.topic_ids.items()
            if name in topic_ids and topic_ids[name] != known
        )

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
