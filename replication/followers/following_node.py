"""Node that a fetcher runs on, as the fetcher needs it."""

from __future__ import annotations

from typing import Protocol

from ...cluster.broker_config import BrokerConfig
from ...storage.log.partition_log import PartitionLog
from ..effects import Effects
from ..partition.replica import Replica
from ..procedure import ProcedureSteps


class FollowerThrottle(Protocol):
    """Throttle of this node's replicas as receivers; see replication_throttle."""

    def wait_to_receive_ms(self, replica: Replica) -> float: ...
    def on_received(self, replica: Replica, size: int) -> None: ...


class FollowingNode(Protocol):
    """Node as a fetcher needs it."""

    @property
    def node_id(self) -> int: ...
    @property
    def broker_epoch(self) -> int:
        """Broker epoch of this node's registration, as known here."""
        ...

    @property
    def config(self) -> BrokerConfig: ...
    @property
    def effects(self) -> Effects: ...
    @property
    def throttle(self) -> FollowerThrottle: ...
    def truncate(self, replica: Replica, offset: int) -> None:
        """Truncate a replica, and the checkpoints that must change first. Raises StorageFailure."""
        ...

    def on_storage_failure(self) -> None:
        """Called when a disk may have failed."""
        ...

    def note_gaps(self, log: PartitionLog) -> ProcedureSteps:
        """Store that `log` may have gaps from now on; see LogFlusher. Raises KafkaStorageError."""
        ...
