"""The transaction coordinators of a simulated node: the shipped host and shards, and what clients
ask of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bradbury.actors.coordinators.transaction_host import TransactionHost
from bradbury.actors.coordinators.transaction_shard import TransactionShard
from bradbury.cluster.metadata.features import TRANSACTION_VERSION
from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.protocol.partitioner import partition_for_group
from bradbury.transactions.transaction_config import TransactionConfig
from bradbury.transactions.transaction_coordinator import TransactionCoordinator
from bradbury.transactions.transaction_records import transactions_in

from ..simulated_network import Answer
from ..simulated_replica import SimulatedReplica
from .simulated_coordinator import CoordinatorReplica, is_idle

if TYPE_CHECKING:
    from ..simulated_cluster import SimulatedCluster
    from ..simulated_node import SimulatedNode

VERSION = TRANSACTION_VERSION
TIMEOUT_MS = 600
"""After which an open transaction is aborted."""
CONFIG = TransactionConfig(
    transaction_abort_timed_out_transaction_cleanup_interval_ms=100,
    transaction_state_log_load_buffer_size=4_000,
)


class SimulatedTransactions:
    """Of one life of a node. Implements Transactions of handlers.ports.transaction_port."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        asking: Any = node
        self._host = TransactionHost(asking)
        self.shard = self._host.shard
        self._shards: dict[TransactionShard, SimulatedTransactionShard] = {}

    def on_leader(self, partition: int, leader_epoch: int, replica: Any) -> None:
        """`replica`: the shipped HostedReplica."""
        node = self._node
        led = node.replica_of(replica.step)
        stored: Any = CoordinatorReplica(
            node,
            led,
            transactions_in,
            lambda records: node.cluster.faults.on_decision(node, tuple(records)),
        )
        with node.loop.running():
            self._host.on_leader(partition, leader_epoch, stored)
            shards = self._host._host.led
            shard = shards[partition]
            if shard not in self._shards:
                self._shards = {
                    each: self._shards[each] for each in shards.values() if each != shard
                }
                self._shards[shard] = SimulatedTransactionShard(node, shard, led)

    def on_resigned(self, partition: int) -> None:
        with self._node.loop.running():
            self._host.on_resigned(partition)

    def on_metadata(self, image: MetadataImage) -> None:
        """Before the node acts on it."""
        with self._node.loop.running():
            self._host.on_metadata(image)

    async def close(self) -> None:
        await self._host.close()

    def shard_of(self, transactional_id: str) -> SimulatedTransactionShard:
        """Raises NotCoordinator, CoordinatorLoadInProgress."""
        count = self._node.cluster.swarm.transaction_partitions
        return self._shards[self._host._host.shard(partition_for_group(transactional_id, count))]

    @property
    def active(self) -> list[SimulatedTransactionShard]:
        led = self._host._host.led
        return [self._shards[led[each.partition]] for each in self._host._runtime.active]

    @property
    def is_idle(self) -> bool:
        return not len(self._host._markers.manager) and all(each.is_idle for each in self.active)


class SimulatedProducerIds:
    """Implements what transaction coordinators take ids from: all that are asked for are there."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.take = cluster.take_producer_id


class SimulatedTransactionShard:
    """A shipped shard, for clients that are called back: with an answer, or a KafkaError."""

    def __init__(
        self, node: SimulatedNode, port: TransactionShard, replica: SimulatedReplica
    ) -> None:
        self.node, self.port, self.replica = node, port, replica

    @property
    def coordinator(self) -> TransactionCoordinator:
        return self.port._context.coordinator

    @property
    def is_idle(self) -> bool:
        """Nothing is on its way to the log."""
        return is_idle(self.port._context)

    def ask(self, ask: Callable[[TransactionShard], Any], answer: Answer) -> None:
        self.node.loop.answer(lambda: ask(self.port), answer)
