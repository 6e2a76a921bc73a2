"""Ranges of logs that have not been handed out, in pieces. Pure.

Invariants:
    Pieces of a partition follow one another without overlap.
    A piece has at most the requested number of offsets, and begins at another partition each
    time, so that a long log does not delay the others.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.topic_partition import TopicPartition
from ..ranges.partition_range import PartitionRange


class UnreadRanges:
    """Ranges between the next offset of each partition, `positions`, and its last known end."""

    def __init__(self, positions: Mapping[TopicPartition, int]) -> None:
        self._positions = dict(sorted(positions.items()))
        self._ends = dict(self._positions)
        self._turn = 0

    @property
    def partitions(self) -> list[TopicPartition]:
        return list(self._positions)

    def add(self, partition: TopicPartition) -> None:
        """Add a new partition, from offset 0 on."""
        self._positions[partition] = self._ends[partition] = 0
        self._positions = dict(sorted(self._positions.items()))

    def reach(self, partition: TopicPartition, end: int) -> int:
        """Set the log end offset; returns how many offsets it is below the position, usually 0."""
        self._ends[partition] = end
        return max(0, self._positions[partition] - end)

    def has_end(self, partition: TopicPartition, end: int) -> bool:
        """Whether this is its log end offset as it is known."""
        return self._ends[partition] == end

    def go_back(self, partition: TopicPartition, offset: int) -> None:
        """Reset the position: the log was truncated to `offset`."""
        self._positions[partition] = offset

    def take(self, most: int) -> list[PartitionRange]:
        """Take ranges of at most `most` offsets in all; [] if there are none."""
        partitions = self.partitions
        if not partitions:
            return []
        first = self._turn % len(partitions)
        self._turn += 1
        taken: list[PartitionRange] = []
        for key in partitions[first:] + partitions[:first]:
            start = self._positions[key]
            end = min(self._ends[key], start + most)
            if end > start:
                taken.append(PartitionRange(*key, start, end))
                self._positions[key] = end
                most -= end - start
        return taken
