"""The coordinators of one kind on one node: a shard for each led partition of their topic.

One event loop; long work runs in the shards' tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from ...coordinators.coordinator_context import CoordinatorContext
from ...coordinators.coordinator_log import LedReplicaLog
from ...coordinators.coordinator_rules import CoordinatorRules
from ...coordinators.coordinator_runtime import CoordinatorRuntime
from ...handlers.ports.replica_port import LeaderReplica
from .coordinator_driver import now_ms_of


class Shard(Protocol):
    """Driver of one coordinator context."""

    def close(self) -> None:
        """Fail the waiting requests; the context is closed."""
        ...


R = TypeVar("R", bound=CoordinatorRules)
S = TypeVar("S", bound=Shard)


class CoordinatorHost(Generic[R, S]):
    def __init__(
        self,
        runtime: CoordinatorRuntime[R],
        new_shard: Callable[[CoordinatorContext[R], LeaderReplica], S],
        wall_ms: Callable[[], int],
    ) -> None:
        self._runtime = runtime
        self._new_shard = new_shard
        self._wall_ms = wall_ms
        self._shards: dict[int, S] = {}

    def on_leader(self, partition: int, leader_epoch: int, replica: LeaderReplica) -> None:
        """Load a partition that this node leads in `leader_epoch`. An older epoch is ignored."""
        context = self._runtime.on_leader(
            partition,
            leader_epoch,
            LedReplicaLog(replica),
            now_ms=now_ms_of(asyncio.get_running_loop()),
            wall_ms=self._wall_ms(),
        )
        if context is not None:
            self._drop(partition)
            self._shards[partition] = self._new_shard(context, replica)

    def on_resigned(self, partition: int) -> None:
        """Drop a partition that moved to another leader; waiting requests get NOT_COORDINATOR."""
        self._runtime.on_resigned(partition)
        self._drop(partition)

    def _drop(self, partition: int) -> None:
        """Close the shard of a partition, whose context is closed."""
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.close()

    def close(self) -> None:
        for partition in list(self._shards):
            self.on_resigned(partition)

    def shard(self, partition: int) -> S:
        """Shard of a partition. Raises NotCoordinator, CoordinatorLoadInProgress."""
        return self._shards[self._runtime.context(partition).partition]

    def shards(self) -> list[S]:
        """All shards. Raises CoordinatorLoadInProgress while any of them is loading."""
        return [self._shards[context.partition] for context in self._runtime.all_contexts()]

    @property
    def led(self) -> Mapping[int, S]:
        """All shards by partition, including those that are loading."""
        return self._shards
