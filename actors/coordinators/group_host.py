"""The groups of one node. Implements handlers.ports.group_port.Groups."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from uuid import UUID

from ...cluster.metadata.metadata_image import MetadataImage
from ...coordinators.coordinator_runtime import CoordinatorRuntime
from ...groups.coordinator.group_coordinators import (
    GroupContext,
    GroupNumbers,
    group_coordinators,
    numbers_of,
)
from ...groups.group_config import GroupCoordinatorConfig
from ...groups.group_counters import GroupCounters, MemberMemory
from ...groups.offsets.group_offsets import GroupOffsets
from ...handlers.ports.group_port import GroupShard as GroupShardPort
from ...handlers.ports.replica_port import LeaderReplica
from ..loop.line_limit import LineLimit
from .coordinator_host import CoordinatorHost
from .group_shard import GroupShard

logger = logging.getLogger(__name__)

# Each rebalance logs its reason. A starting cluster may log all; a flood must not fill the disk.
LINES_AT_ONCE = 5_000
LINES_PER_SECOND = 20.0


class GroupHost:
    def __init__(
        self,
        config: GroupCoordinatorConfig,
        wall_ms: Callable[[], int],
        new_id: Callable[[], UUID],
    ) -> None:
        """`new_id`: makes a random id, for the ids of members."""
        self.memory = MemberMemory(config.bradbury_group_members_max_bytes)
        self.counters = GroupCounters()
        self._runtime = CoordinatorRuntime(group_coordinators(config, self.memory, self.counters))
        self._lines = LineLimit(logger, burst=LINES_AT_ONCE, per_second=LINES_PER_SECOND)
        self._wall_ms = wall_ms
        self._new_id = new_id
        self._host = CoordinatorHost(self._runtime, self._new_shard, wall_ms)
        self.on_leader = self._host.on_leader
        self.on_resigned = self._host.on_resigned
        self.close = self._host.close

    def _new_shard(self, context: GroupContext, replica: LeaderReplica) -> GroupShard:
        return GroupShard(context, replica, self._wall_ms, self._lines, self._new_id)

    def shard(self, partition: int) -> GroupShardPort:
        """Shard of a partition. Raises NotCoordinator, CoordinatorLoadInProgress."""
        return self._host.shard(partition)

    def shards(self) -> Sequence[GroupShardPort]:
        """All shards. Raises CoordinatorLoadInProgress while any of them is loading."""
        return self._host.shards()

    def on_metadata(self, before: MetadataImage, after: MetadataImage) -> None:
        """Delete the offsets of topics that are not in the new image any more."""
        deleted = after.topics_deleted_since(before)
        if deleted:
            for shard in self._host.led.values():
                shard.on_topics_deleted(deleted)

    def offsets(self) -> list[GroupOffsets]:
        """Committed offsets of each group that has any, in all loaded partitions."""
        active = self._runtime.active
        return [offsets for context in active for offsets in context.coordinator.offsets]

    def numbers(self) -> GroupNumbers:
        return numbers_of(self._runtime, self.memory)
