"""Sharding of records among ranks and workers.

Partitions are split into blocks of `block_size` offsets, whose bounds are multiples of it. Of n
shards the blocks of a partition go to one after the other, and each partition begins with another
one. So shards are about equal, whatever the number of partitions, and a block has the same shard
whatever starts and ends are: ranks that looked them up at different times have no record twice.

Pure.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ..ranges.partition_range import PartitionRange

BLOCK_SIZE: Final = 16_384


class ReadShard(NamedTuple):
    """Shard `number`, counted from 0, of `total`."""

    number: int
    total: int


def blocks_of(
    ranges: Sequence[PartitionRange], shard: ReadShard, block_size: int = BLOCK_SIZE
) -> list[PartitionRange]:
    """Blocks of one shard, in order: the first ones of each partition, then the second ones."""
    keyed = []
    for place, one in enumerate(ranges):
        first = one.start // block_size
        shard_of_first = (zlib.crc32(one.topic.encode()) + one.partition + first) % shard.total
        own_first = first + (shard.number - shard_of_first) % shard.total
        for number in range(own_first, -(-one.end // block_size), shard.total):
            start, end = number * block_size, (number + 1) * block_size
            block = one._replace(start=max(start, one.start), end=min(end, one.end))
            keyed.append((number - first, place, block))
    keyed.sort(key=lambda each: each[:2])
    return [block for _, _, block in keyed]


def places_of(partitions: int, shard: ReadShard) -> list[int]:
    """Numbers of the whole partitions of a shard, for following: blocks need an end."""
    return list(range(partitions))[shard.number :: shard.total]


def own_rank(rank: int | None, world_size: int | None) -> ReadShard:
    """Rank of this process as a shard.

    As given; else from torch.distributed, Ray Train, or RANK and WORLD_SIZE; else 0 of 1.
    Raises ValueError for an invalid rank.
    """
    if (rank is None) != (world_size is None):
        raise ValueError("give rank and world_size together, or neither")
    if rank is None or world_size is None:
        rank, world_size = _rank_here()
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} is not in range for world_size {world_size}")
    return ReadShard(rank, world_size)


def _rank_here() -> tuple[int, int]:
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    train: Any = sys.modules.get("ray.train")
    if train is not None:
        try:
            context = train.get_context()
            return context.get_world_rank(), context.get_world_size()
        except (RuntimeError, AttributeError):
            pass  # not a worker of Ray Train
    return _rank_of(os.environ)


def _rank_of(environment: Mapping[str, str]) -> tuple[int, int]:
    """Rank and world size from RANK and WORLD_SIZE, which torchrun sets; else 0 and 1."""
    if "RANK" in environment and "WORLD_SIZE" in environment:
        return int(environment["RANK"]), int(environment["WORLD_SIZE"])
    return 0, 1


def with_worker(rank: ReadShard) -> ReadShard:
    """Shard of this process: of its DataLoader worker, if it is one, or of the rank itself."""
    data: Any = sys.modules.get("torch.utils.data")
    worker = None if data is None else data.get_worker_info()
    if worker is None:
        return rank
    return ReadShard(rank.number * worker.num_workers + worker.id, rank.total * worker.num_workers)
