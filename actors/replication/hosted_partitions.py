"""Partitions as handlers use them, and the coordinators that run on their leaders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ...handlers.ports.replica_port import LeaderReplica
from ...protocol.errors import KafkaError
from ...protocol.topic_partition import TopicPartitionPair
from ...replication.partition.partition_effects import (
    LeaderElected,
    ReplicaClosed,
    ReplicaOpened,
    Resigned,
)
from ...replication.partition.replica import Replica
from ...replication.partition.replication_throttle import ReplicationThrottle
from ...replication.partition.served_replicas import ServedReplicas
from ...replication.procedure import ProcedureSteps
from ...storage.log.partition_log import PartitionLog
from ..loop.step_driver import StepDriver
from .hosted_log_dirs import HostedLogDirs
from .hosted_replica import HostedReplica
from .unreachable_nodes import UnreachableNodes


class LeadershipListener(Protocol):
    """Coordinators of one internal topic, each of which runs on its partition's leader."""

    def on_leader(self, partition: int, leader_epoch: int, replica: LeaderReplica) -> None: ...
    def on_resigned(self, partition: int) -> None: ...


class ReplicaMaker(Protocol):
    """Factory that makes the HostedReplica of a replica."""

    def __call__(self, step: Replica) -> HostedReplica: ...


class HostedPartitions:
    """Partitions of one node. Implements handlers.ports.replica_port.Partitions. One event loop."""

    def __init__(
        self,
        serving: ServedReplicas,
        driver: StepDriver,
        *,
        throttle: ReplicationThrottle,
        unreachable: UnreachableNodes,
        host_replica: ReplicaMaker,
    ) -> None:
        self.throttle = throttle
        self.listeners: dict[str, LeadershipListener] = {}
        """Coordinators of internal topics, by topic: notified when leadership begins or ends."""
        self._serving = serving
        self._unreachable = unreachable
        self._host_replica = host_replica
        self._hosted: dict[Replica, HostedReplica] = {}
        self._log_dirs: HostedLogDirs | None = None
        self._driver = driver
        self._checkpoint: Callable[[PartitionLog], ProcedureSteps] | None = None
        driver.on(ReplicaOpened, self._on_replica_opened)
        driver.on(ReplicaClosed, self._on_replica_closed)
        driver.on(LeaderElected, self._on_leader_elected)
        driver.on(Resigned, self._on_resigned)

    def start(
        self, log_dirs: HostedLogDirs, checkpoint: Callable[[PartitionLog], ProcedureSteps]
    ) -> None:
        """Set the parts that need open logs. `checkpoint`: LogMaintenance.checkpoint."""
        self._log_dirs, self._checkpoint = log_dirs, checkpoint

    # --- handlers' port --------------------------------------------------------------------------

    @property
    def log_dirs(self) -> HostedLogDirs:
        """See handlers.ports.log_dirs_port.LogDirs."""
        assert self._log_dirs is not None, "start() comes first"
        return self._log_dirs

    def leader_of(
        self, topic: str, partition: int, *, current_leader_epoch: int = -1
    ) -> HostedReplica:
        """See handlers.ports.replica_port.Partitions."""
        return self._hosted[
            self._serving.leader_of(topic, partition, current_leader_epoch=current_leader_epoch)
        ]

    def follower_of(
        self, topic: str, partition: int, *, current_leader_epoch: int = -1
    ) -> HostedReplica | None:
        """See handlers.ports.replica_port.Partitions."""
        step = self._serving.follower_of(
            topic, partition, current_leader_epoch=current_leader_epoch
        )
        return None if step is None else self._hosted[step]

    def on_follower_fetch_from(self, node_id: int, peer: str) -> None:
        """See handlers.ports.replica_port.Partitions."""
        self._unreachable.on_follower(node_id, peer)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """See handlers.ports.replica_port.Partitions."""
        log_start_offset = self._serving.delete_records(topic, partition, before_offset)
        if self._driver.effects:
            self._driver.carry_out()
        return log_start_offset

    async def checkpoint_log_start_offsets(
        self, partitions: Sequence[TopicPartitionPair]
    ) -> Mapping[TopicPartitionPair, KafkaError]:
        """See handlers.ports.replica_port.Partitions."""
        assert self._checkpoint is not None, "start() comes first"
        errors: dict[TopicPartitionPair, KafkaError] = {}
        await self._driver.run(
            self._serving.checkpoint_log_start_offsets(partitions, self._checkpoint, errors)
        )
        return errors

    # --- effects ---------------------------------------------------------------------------------

    def _on_replica_opened(self, effect: ReplicaOpened) -> None:
        self._hosted[effect.replica] = self._host_replica(effect.replica)

    def _on_replica_closed(self, effect: ReplicaClosed) -> None:
        del self._hosted[effect.replica]

    def _on_leader_elected(self, effect: LeaderElected) -> None:
        replica = effect.replica
        listener = self.listeners.get(replica.topic)
        if listener is not None:
            listener.on_leader(replica.partition, effect.state.leader_epoch, self._hosted[replica])

    def _on_resigned(self, effect: Resigned) -> None:
        replica = effect.replica
        listener = self.listeners.get(replica.topic)
        if listener is not None:
            listener.on_resigned(replica.partition)
