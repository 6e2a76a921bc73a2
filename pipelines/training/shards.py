"""Sharding of records among ranks and workers.

Partitions are split into blocks of `block_size` offsets. The blocks of all partitions form one
sequence, the first ones of each, then the second ones, and shard k of n has every n-th block of it.
So shards are about equal, whatever the number of partitions, and what a shard reads depends on
starts, ends, k and n alone.

Pure.
"""

from __future__ import annotations

import os
import sys
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
    """Blocks of one shard, in order."""
    keyed = [
        (number, place, one._replace(start=start, end=min(start + block_size, one.end)))
        for place, one in enumerate(ranges)
        for number, start in enumerate(range(one.start, one.end, block_size))
    ]
    keyed.sort(key=lambda each: each[:2])
    return [block for _, _, block in keyed[shard.number :: shard.total]]


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
