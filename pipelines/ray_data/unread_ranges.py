"""What of some logs has not been handed out, a piece at a time. Pure.

What always holds:
    Pieces of a partition follow on one another; none overlaps another one.
    A piece has at most so many offsets as were asked for, and begins at another partition each
    time, so that a long log does not keep the others waiting.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...clients.wire.record_metadata import TopicPartition
from ..ranges.partition_range import PartitionRange


class UnreadRanges:
    """positions: the next offset of each partition. Ends are those of the logs as last seen."""

    def __init__(self, positions: Mapping[TopicPartition, int]) -> None:
        self._positions = dict(sorted(positions.items()))
        self._ends = dict(self._positions)
        self._turn = 0

    @property
    def partitions(self) -> list[TopicPartition]:
        return list(self._positions)

    def add(self, partition: TopicPartition) -> None:
        """One that was made meanwhile, from its start on."""
        self._positions[partition] = self._ends[partition] = 0
        self._positions = dict(sorted(self._positions.items()))

    def reach(self, partition: TopicPartition, end: int) -> int:
        """The log's end is `end`. How many offsets before the position that is; 0 usually."""
        self._ends[partition] = end
        return max(0, self._positions[partition] - end)

    def go_back(self, partition: TopicPartition, offset: int) -> None:
        """The log was cut there."""
        self._positions[partition] = offset

    def take(self, most: int) -> list[PartitionRange]:
        """Ranges of at most `most` offsets in all; [] if there is nothing."""
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
