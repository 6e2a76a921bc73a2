"""Replication throttle: rates at which one node sends, receives and moves replicas.

It holds back the replicas that their topics' settings list, and changes no order.

    sending     the leader sends no records to a follower that is out of sync
    receiving   the follower leaves the partition out of its fetches
    moving      between this node's log directories: every move waits after each piece

Bytes of throttled replicas count also when they are in sync, though those are never held back.
Limits and lists are read from the settings each time, so a change applies at once. The clock is
read only when needed: a fetch without throttled replicas does not read it.
Source: ReplicaManager.shouldLeaderThrottle, ReplicaFetcherThread.shouldFollowerThrottle (KIP-73).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...cluster.broker_config import BrokerConfig
from ...cluster.metadata.metadata_image import MetadataImage
from ...cluster.partition.replication_quota import ReplicationQuota
from ...protocol.topic_partition import TopicPartitionPair
from ...storage.disk.throttled_replicas import names_replica
from .replica import Replica


class ReplicationThrottle:
    """Throttle for one event loop. Implements handlers.ports.replica_port.Throttle."""

    def __init__(
        self,
        replicas: Mapping[TopicPartitionPair, Replica],
        config: BrokerConfig,
        *,
        node_id: Callable[[], int],
        image: Callable[[], MetadataImage],
        settings: Callable[[], BrokerConfig],
        monotonic_ms: Callable[[], float],
    ) -> None:
        """`config`: settings at the start of the node; `settings`: returns the current ones."""
        self._replicas = replicas
        self._node_id = node_id
        self._image = image
        self._settings = settings
        self._monotonic_ms = monotonic_ms
        between_nodes = {
            "samples": config.replication_quota_window_num,
            "sample_ms": config.replication_quota_window_size_seconds * 1000,
        }
        self._sent = ReplicationQuota(**between_nodes)
        self._received = ReplicationQuota(**between_nodes)
        self._moved = ReplicationQuota(
            samples=config.alter_log_dirs_replication_quota_window_num,
            sample_ms=config.alter_log_dirs_replication_quota_window_size_seconds * 1000,
        )

    # --- the leader ------------------------------------------------------------------------------

    def should_throttle(self, topic: str, partition: int, follower_id: int) -> bool:
        """See handlers.ports.replica_port.Throttle."""
        if not self._is_sent_slowly(topic, partition):
            return False
        leader = self._replicas[topic, partition].leader
        if leader is None or follower_id in leader.isr:
            return False
        limit = self._settings().leader_replication_throttled_rate
        return self._sent.wait_ms(limit, self._monotonic_ms()) > 0

    def on_sent(self, topic: str, partition: int, size: int) -> None:
        """See handlers.ports.replica_port.Throttle."""
        if size and self._is_sent_slowly(topic, partition):
            self._sent.record(size, self._monotonic_ms())

    def _is_sent_slowly(self, topic: str, partition: int) -> bool:
        replica = self._replicas.get((topic, partition))
        if replica is None:
            return False
        listed = replica.log.config.leader_replication_throttled_replicas
        return bool(listed) and names_replica(listed, partition, self._node_id())

    # --- the follower ----------------------------------------------------------------------------

    def wait_to_receive_ms(self, replica: Replica) -> float:
        """Time in ms that this replica must wait before its next fetch; 0: none."""
        if not self._is_received_slowly(replica):
            return 0.0
        state = self._image().partition(replica.topic, replica.partition)
        if state is not None and self._node_id() in state.isr:
            return 0.0
        limit = self._settings().follower_replication_throttled_rate
        return self._received.wait_ms(limit, self._monotonic_ms())

    def on_received(self, replica: Replica, size: int) -> None:
        if self._is_received_slowly(replica):
            self._received.record(size, self._monotonic_ms())

    def _is_received_slowly(self, replica: Replica) -> bool:
        listed = replica.log.config.follower_replication_throttled_replicas
        return bool(listed) and names_replica(listed, replica.partition, self._node_id())

    # --- the mover -------------------------------------------------------------------------------

    def wait_to_move_ms(self) -> float:
        """Time in ms that a move between log directories must wait before its next piece."""
        limit = self._settings().replica_alter_log_dirs_io_max_bytes_per_second
        return self._moved.wait_ms(limit, self._monotonic_ms())

    def on_moved(self, size: int) -> None:
        self._moved.record(size, self._monotonic_ms())
