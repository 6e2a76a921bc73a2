"""Which records each rank and worker reads.

Partitions are cut into blocks of `block_size` offsets. The blocks of all partitions stand in one
sequence, the first ones of each, then the second ones, and shard k of n has every n-th of it. So
all have about as much, whatever the number of partitions, and what a shard reads follows from
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
    """`number`, from 0, of `total`."""

    number: int
    total: int


def blocks_of(
    ranges: Sequence[PartitionRange], shard: ReadShard, block_size: int = BLOCK_SIZE
) -> list[PartitionRange]:
    """The blocks of one shard, in their order."""
    keyed = [
        (number, place, one._replace(start=start, end=min(start + block_size, one.end)))
        for place, one in enumerate(ranges)
        for number, start in enumerate(range(one.start, one.end, block_size))
    ]
    keyed.sort(key=lambda each: each[:2])
    return [block for _, _, block in keyed[shard.number :: shard.total]]


def places_of(partitions: int, shard: ReadShard) -> list[int]:
    """Whole partitions: where there is no end, blocks cannot be counted."""
    return list(range(partitions))[shard.number :: shard.total]


def own_rank(rank: int | None, world_size: int | None) -> ReadShard:
    """As given; else of torch.distributed, of Ray Train, of RANK and WORLD_SIZE; else the only one.

    Raises ValueError if it cannot be.
    """
    if (rank is None) != (world_size is None):
        raise ValueError("give rank and world_size together, or neither")
    if rank is None or world_size is None:
        rank, world_size = _rank_here()
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} is not one of {world_size}")
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
            pass  # not in a worker of Ray Train
    return _rank_of(os.environ)


def _rank_of(environment: Mapping[str, str]) -> tuple[int, int]:
    """As torchrun sets them."""
    if "RANK" in environment and "WORLD_SIZE" in environment:
        return int(environment["RANK"]), int(environment["WORLD_SIZE"])
    return 0, 1


def with_worker(rank: ReadShard) -> ReadShard:
    """The shard of this process: of a worker of PyTorch's DataLoader, or of the rank itself."""
    data: Any = sys.modules.get("torch.utils.data")
    worker = None if data is None else data.get_worker_info()
    if worker is None:
        return rank
    return ReadShard(rank.number * worker.num_workers + worker.id, rank.total * worker.num_workers)
