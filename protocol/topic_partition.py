"""Names of a partition: with the name of its topic, or with its id.

Brokers use plain pairs, which are made in a tenth of the time of a NamedTuple; applications get a
TopicPartition, which equals its pair.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID


class TopicPartition(NamedTuple):
    """Partition of a topic. A plain (topic, partition) pair equals it and can be passed instead."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


TopicPartitionPair = tuple[str, int]
"""Partition by topic: (topic name, partition number), plain or as a TopicPartition."""
TopicIdPartition = tuple[UUID, int]
"""Partition by topic id: (topic id, partition number); a recreated topic has another id."""
