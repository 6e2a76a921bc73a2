"""The groups of one node: a shard for each partition of `__consumer_offsets` that it leads.

The node says when leadership comes and goes; this class keeps at most one shard a partition, of
the newest leader epoch. Implements handlers.group_port.Groups.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from ..cluster.metadata_image import MetadataImage
from ..groups.group_config import GroupCoordinatorConfig
from ..groups.group_counters import GroupCounters, MemberMemory
from ..groups.group_state import GroupState
from ..handlers.group_port import GroupShard as GroupShardPort
from ..handlers.replica_port import LeaderReplica
from ..protocol.errors import CoordinatorLoadInProgress, NotCoordinator
from .group_shard import GroupShard, ShardState
from .line_limit import LineLimit

logger = logging.getLogger("bradbury.groups")

# Each rebalance says why. Enough for a cluster that starts, and not for a flood to fill the disk.
LINES_AT_ONCE = 5_000
LINES_PER_SECOND = 20.0

NO_GROUPS = Counter({state.value: 0 for state in GroupState})


class GroupNumbers(NamedTuple):
    """What the groups of a node are, for metrics; GroupCounters has what they did."""

    states: Counter[str] = NO_GROUPS
    """The number of groups in each state."""
    members: int = 0
    offsets: int = 0
    partitions: int = 0
    partitions_loading: int = 0
    memory_bytes: int = 0


class GroupHost:
    """One event loop. Plain calls; what takes time (loading) happens in tasks of the shards."""

    def __init__(self, config: GroupCoordinatorConfig, now_ms: Callable[[], int]) -> None:
        self._config = config
        self._now_ms = now_ms
        self._shards: dict[int, tuple[int, GroupShard]] = {}
        self.memory = MemberMemory(config.bradbury_group_members_max_bytes)
        self.counters = GroupCounters()
        self._lines = LineLimit(logger, burst=LINES_AT_ONCE, per_second=LINES_PER_SECOND)

    def on_leader(self, partition: int, leader_epoch: int, replica: LeaderReplica) -> None:
        """The node leads the partition in `leader_epoch`: load it. An older epoch is ignored."""
        known = self._shards.get(partition)
        if known is not None:
            if leader_epoch <= known[0]:
                return
            known[1].close()
        shard = GroupShard(
            partition,
            leader_epoch,
            replica,
            self._config,
            self._now_ms,
            self.memory,
            self.counters,
            self._lines,
        )
        self._shards[partition] = (leader_epoch, shard)

    def on_resigned(self, partition: int) -> None:
        """The node does not lead the partition any more: whoever waits is sent away."""
        known = self._shards.pop(partition, None)
        if known is not None:
            known[1].close()

    def close(self) -> None:
        for partition in list(self._shards):
            self.on_resigned(partition)

    def shard(self, partition: int) -> GroupShardPort:
        """Raises NotCoordinator, CoordinatorLoadInProgress."""
        known = self._shards.get(partition)
        if known is None:
            raise NotCoordinator(f"__consumer_offsets-{partition} is not led by this node")
        return _ready(known[1])

    def shards(self) -> list[GroupShardPort]:
        """Raises CoordinatorLoadInProgress: a list without the groups of a shard would be wrong."""
        return [_ready(shard) for _, shard in self._shards.values()]

    def on_metadata(self, before: MetadataImage, after: MetadataImage) -> None:
        """The node acts on `after` from now on: the offsets in topics that are gone go, too."""
        if before.topics is after.topics:
            return
        deleted = set()
        for name, topic in before.topics.items():
            now = after.topics.get(name)
            if now is not topic and (now is None or now.topic_id != topic.topic_id):
                deleted.add(name)
        if deleted:
            for _, shard in self._shards.values():
                shard.on_topics_deleted(deleted)

    def numbers(self) -> GroupNumbers:
        """Of the shards that are read. Cost: 0.2 us for a group, 0.1 us for a topic of it."""
        active = [shard for _, shard in self._shards.values() if shard.state is ShardState.ACTIVE]
        states = Counter(NO_GROUPS)
        members = 0
        for shard in active:
            for group in shard.coordinator.groups.values():
                states[group.state.value] += 1
                members += len(group.members)
        return GroupNumbers(
            states=states,
            members=members,
            offsets=sum(shard.coordinator.offset_count for shard in active),
            partitions=len(active),
            partitions_loading=len(self._shards) - len(active),
            memory_bytes=self.memory.used,
        )


def _ready(shard: GroupShard) -> GroupShard:
    if shard.state is not ShardState.ACTIVE:
        raise CoordinatorLoadInProgress(f"__consumer_offsets-{shard.partition} is being read")
    return shard
