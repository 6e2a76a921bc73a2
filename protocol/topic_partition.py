"""Names of a partition: with the name of its topic, or with its id.

The brokers' side keeps plain pairs, which cost a tenth of a NamedTuple to make; applications get a
TopicPartition, which equals its pair.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID


class TopicPartition(NamedTuple):
    """Partition of a topic. A plain (topic, partition) pair equals it and does as well."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


TopicPartitionPair = tuple[str, int]
"""Partition by topic: (topic name, partition number), plain or as a TopicPartition."""
TopicIdPartition = tuple[UUID, int]
"""Partition by topic id: (topic id, partition number); a recreated topic has another id."""
