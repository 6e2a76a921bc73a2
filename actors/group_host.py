"""The groups of one node: a shard for each partition of `__consumer_offsets` that it leads.

The node says when leadership comes and goes; this class keeps at most one shard a partition, of
the newest leader epoch. Implements handlers.group_port.Groups.
"""

from __future__ import annotations

from collections.abc import Callable

from ..groups.group_config import GroupCoordinatorConfig
from ..handlers.context import LeaderReplica
from ..handlers.group_port import GroupShard as GroupShardPort
from ..protocol.errors import CoordinatorLoadInProgress, NotCoordinator
from .group_shard import GroupShard, ShardState


class GroupHost:
    """One event loop. Plain calls; what takes time (loading) happens in tasks of the shards."""

    def __init__(self, config: GroupCoordinatorConfig, now_ms: Callable[[], int]) -> None:
        self._config = config
        self._now_ms = now_ms
        self._shards: dict[int, tuple[int, GroupShard]] = {}

    def on_leader(self, partition: int, leader_epoch: int, replica: LeaderReplica) -> None:
        """The node leads the partition in `leader_epoch`: load it. An older epoch is ignored."""
        known = self._shards.get(partition)
        if known is not None:
            if leader_epoch <= known[0]:
                return
            known[1].close()
        shard = GroupShard(partition, replica, self._config, self._now_ms)
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

    def counts(self) -> list[int]:
        """The number of members of each group of the shards that are read."""
        return [
            count
            for _, shard in self._shards.values()
            if shard.state is ShardState.ACTIVE
            for count in shard.member_counts()
        ]


def _ready(shard: GroupShard) -> GroupShard:
    if shard.state is not ShardState.ACTIVE:
        raise CoordinatorLoadInProgress(f"__consumer_offsets-{shard.partition} is being read")
    return shard
