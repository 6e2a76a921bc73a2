"""The groups of one node: drives coordinator_runtime, a shard for each of its contexts.

Implements handlers.group_port.Groups. One event loop; what takes time happens in the shards' tasks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ...cluster.metadata.metadata_image import MetadataImage
from ...groups.coordinator.coordinator_log import LedReplicaLog
from ...groups.coordinator.coordinator_runtime import CoordinatorRuntime, GroupNumbers
from ...groups.group_config import GroupCoordinatorConfig
from ...groups.group_counters import GroupCounters, MemberMemory
from ...handlers.ports.group_port import GroupShard as GroupShardPort
from ...handlers.ports.replica_port import LeaderReplica
from ..loop.line_limit import LineLimit
from .group_shard import GroupShard, now_ms_of

logger = logging.getLogger(__name__)

# Each rebalance says why. Enough for a cluster that starts, and not for a flood to fill the disk.
LINES_AT_ONCE = 5_000
LINES_PER_SECOND = 20.0


class GroupHost:
    def __init__(self, config: GroupCoordinatorConfig, wall_ms: Callable[[], int]) -> None:
        self._runtime = CoordinatorRuntime(config)
        self._wall_ms = wall_ms
        self._shards: dict[int, GroupShard] = {}
        self._lines = LineLimit(logger, burst=LINES_AT_ONCE, per_second=LINES_PER_SECOND)

    def on_leader(self, partition: int, leader_epoch: int, replica: LeaderReplica) -> None:
        """The node leads the partition in `leader_epoch`: load it. An older epoch is ignored."""
        loop = asyncio.get_running_loop()
        context = self._runtime.on_leader(
            partition,
            leader_epoch,
            LedReplicaLog(replica),
            now_ms=now_ms_of(loop),
            wall_ms=self._wall_ms(),
        )
        if context is not None:
            self._drop(partition)
            self._shards[partition] = GroupShard(context, replica, self._wall_ms, self._lines)

    def on_resigned(self, partition: int) -> None:
        """The node no longer leads the partition: waiting requests are answered NOT_COORDINATOR."""
        self._runtime.on_resigned(partition)
        self._drop(partition)

    def _drop(self, partition: int) -> None:
        """Its context is closed."""
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.close()

    def close(self) -> None:
        for partition in list(self._shards):
            self.on_resigned(partition)

    def shard(self, partition: int) -> GroupShardPort:
        """Raises NotCoordinator, CoordinatorLoadInProgress."""
        return self._shards[self._runtime.context(partition).partition]

    def shards(self) -> list[GroupShardPort]:
        """Raises CoordinatorLoadInProgress: a list without the groups of a shard would be wrong."""
        return [self._shards[context.partition] for context in self._runtime.all_contexts()]

    def on_metadata(self, before: MetadataImage, after: MetadataImage) -> None:
        """The node acts on `after` from now on: the offsets in topics that are gone go, too."""
        deleted = after.topics_deleted_since(before)
        if deleted:
            for shard in self._shards.values():
                shard.on_topics_deleted(deleted)

    def numbers(self) -> GroupNumbers:
        return self._runtime.numbers()

    @property
    def memory(self) -> MemberMemory:
        return self._runtime.memory

    @property
    def counters(self) -> GroupCounters:
        return self._runtime.counters
