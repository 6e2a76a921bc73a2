"""Partitioners: the partition of a message by its key."""

from __future__ import annotations

from typing import Protocol, TypeVar

from ....protocol.partitioner import partition_for_key

Key = TypeVar("Key", contravariant=True)


class Partitioner(Protocol[Key]):
    """Asked for each ProducerData that has a key; without one the partition is random."""

    def partition(self, key: Key, partition_count: int) -> int:
        """A number from 0 to partition_count - 1."""
        ...


class DefaultPartitioner:
    """Partitions by the hash (murmur2) that today's Kafka clients use, so that equal keys meet."""

    def partition(self, key: bytes | str, partition_count: int) -> int:
        """Raises TypeError: the key is neither bytes nor text; give a partitioner of your own."""
        if isinstance(key, str):
            key = key.encode()
        if not isinstance(key, bytes):
            raise TypeError(f"a key of type {type(key).__name__} needs a partitioner of your own")
        return partition_for_key(key, partition_count)
