"""Partitioners: the partition of a message by its key."""

from __future__ import annotations

from typing import Protocol, TypeVar

from ....protocol.partitioner import partition_for_key

Key = TypeVar("Key", contravariant=True)


class Partitioner(Protocol[Key]):
    """Chooses the partition of a ProducerData with a key; without one it is random."""

    def partition(self, key: Key, partition_count: int) -> int:
        """Partition of `key`, from 0 to partition_count - 1."""
        ...


class DefaultPartitioner:
    """Partitioner by murmur2 hash, as in today's Kafka clients: they choose the same partitions."""

    def partition(self, key: bytes | str, partition_count: int) -> int:
        """Partition of `key`. Raises TypeError: it is not bytes or str."""
        if isinstance(key, str):
            key = key.encode()
        if not isinstance(key, bytes):
            raise TypeError(
                f"a key of type {type(key).__name__} needs a partitioner of your own, and a "
                "key_encoder to be stored"
            )
        return partition_for_key(key, partition_count)
