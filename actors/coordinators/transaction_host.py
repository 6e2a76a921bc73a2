"""The transaction coordinators of one node. Implements handlers.transaction_port.Transactions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ...coordinators.coordinator_runtime import CoordinatorRuntime
from ...handlers.ports.replica_port import LeaderReplica
from ...handlers.ports.transaction_port import TransactionShard as TransactionShardPort
from ...transactions.transaction_config import TransactionConfig
from ...transactions.transaction_coordinator import TakeProducerId
from ...transactions.transaction_coordinators import TransactionContext, transaction_coordinators
from ...transactions.transaction_effects import SendMarkers
from .coordinator_host import CoordinatorHost
from .transaction_shard import TransactionShard


class MarkerSender(Protocol):
    """Writes the markers of this node's coordinators to the partitions, on whichever node."""

    def send(self, shard: TransactionShard, markers: SendMarkers) -> None:
        """Leads to shard.on_markers_written(markers), not before this returns; see on_resigned."""
        ...

    def on_resigned(self, partition: int) -> None:
        """Nothing is sent any more for the coordinator of this partition, whatever its epoch."""
        ...


class TransactionHost:
    def __init__(
        self,
        config: TransactionConfig,
        wall_ms: Callable[[], int],
        *,
        take_producer_id: TakeProducerId,
        markers: MarkerSender,
        version: int,
    ) -> None:
        """`version`: the cluster's transaction.version."""
        runtime = CoordinatorRuntime(transaction_coordinators(config, take_producer_id, version))
        self._markers = markers
        self._wall_ms = wall_ms
        self._host = CoordinatorHost(runtime, self._new_shard, wall_ms)
        self.close = self._host.close

    def _new_shard(self, context: TransactionContext, replica: LeaderReplica) -> TransactionShard:
        return TransactionShard(context, replica, self._wall_ms, self._markers.send)

    def on_leader(self, partition: int, leader_epoch: int, replica: LeaderReplica) -> None:
        """See CoordinatorHost. What was sent for an older epoch is asked for again."""
        self._host.on_leader(partition, leader_epoch, replica)

    def on_resigned(self, partition: int) -> None:
        self._host.on_resigned(partition)
        self._markers.on_resigned(partition)

    def shard(self, partition: int) -> TransactionShardPort:
        """Raises NotCoordinator, CoordinatorLoadInProgress."""
        return self._host.shard(partition)

    def shards(self) -> Sequence[TransactionShardPort]:
        """Raises CoordinatorLoadInProgress: a list without the ids of a shard would be wrong."""
        return self._host.shards()
