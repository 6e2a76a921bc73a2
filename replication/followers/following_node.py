"""What a fetcher knows of the node that it runs on."""

from __future__ import annotations

from typing import Protocol

from ...cluster.broker_config import BrokerConfig
from ...storage.log.partition_log import PartitionLog
from ..effects import Effects
from ..partition.replica import Replica
from ..procedure import Sequel


class FollowerThrottle(Protocol):
    """How fast replicas of this node are to receive; see replication_throttle."""

    def wait_to_receive_ms(self, replica: Replica) -> float: ...
    def on_received(self, replica: Replica, size: int) -> None: ...


class FollowingNode(Protocol):
    """The node, as far as a fetcher knows it."""

    @property
    def node_id(self) -> int: ...
    @property
    def broker_epoch(self) -> int:
        """The epoch of this node's registration, as it is known here."""
        ...

    @property
    def config(self) -> BrokerConfig: ...
    @property
    def effects(self) -> Effects: ...
    @property
    def throttle(self) -> FollowerThrottle: ...
    def truncate(self, replica: Replica, offset: int) -> None:
        """Drop records, with the checkpoints that must know of it. Raises StorageFailure."""
        ...

    def on_storage_failure(self) -> None:
        """A disk may have failed."""
        ...

    def note_gaps(self, log: PartitionLog) -> Sequel:
        """So that `log` may have gaps; see LogFlusher. Raises KafkaStorageError."""
        ...
