"""Replicas of a node that serve requests: leaders, and followers that may be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ...cluster.metadata.metadata_image import MetadataImage
from ...protocol.errors import (
    FencedLeaderEpoch,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollower,
    PolicyViolation,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from ...protocol.topic_partition import TopicPartitionPair
from ...storage.log.partition_log import PartitionLog
from ..procedure import ProcedureSteps
from .replica import Replica


class ServingNode(Protocol):
    """Node whose replicas these are, with the image that it applies."""

    by_partition: dict[TopicPartitionPair, Replica]
    image: MetadataImage


class ServedReplicas:
    """Lookup of replicas. `offline`: reason by offline partition, maintained by the caller."""

    def __init__(self, node: ServingNode, offline: Mapping[TopicPartitionPair, str]) -> None:
        self._node = node
        self._offline = offline

    def leader_of(self, topic: str, partition: int, *, current_leader_epoch: int = -1) -> Replica:
        """See handlers.ports.replica_port.Partitions."""
        replica = self._node.by_partition.get((topic, partition))
        if replica is None or replica.leader is None:
            if (topic, partition) in self._offline:
                raise KafkaStorageError(self._offline[topic, partition])
            if self._node.image.partition(topic, partition) is None:
                raise UnknownTopicOrPartition(f"there is no {topic}-{partition}")
            raise NotLeaderOrFollower(f"{topic}-{partition} is led by another node")
        if current_leader_epoch != -1:
            _check_leader_epoch(replica.leader.leader_epoch, current_leader_epoch)
        return replica

    def follower_of(
        self, topic: str, partition: int, *, current_leader_epoch: int = -1
    ) -> Replica | None:
        """See handlers.ports.replica_port.Partitions."""
        replica = self._node.by_partition.get((topic, partition))
        state = self._node.image.partition(topic, partition)
        if replica is None or replica.leader is not None or state is None:
            return None
        if current_leader_epoch not in (-1, state.leader_epoch):
            return None
        return replica

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """See handlers.ports.replica_port.Partitions."""
        replica = self.leader_of(topic, partition)
        log = replica.log
        if "delete" not in log.config.cleanup_policies:
            raise PolicyViolation(
                f"{replica} has cleanup.policy={log.config.cleanup_policy!r} without "
                "delete: its records are not deleted by offset"
            )
        return replica.deletes.delete_records(
            log.high_watermark if before_offset == -1 else before_offset
        )

    def checkpoint_log_start_offsets(
        self,
        partitions: Sequence[TopicPartitionPair],
        checkpoint: Callable[[PartitionLog], ProcedureSteps],
        errors: dict[TopicPartitionPair, KafkaError],
    ) -> ProcedureSteps:
        """Ends when the log start offsets of these partitions are on their disks.

        One checkpoint for each directory, by `checkpoint` of a log in it. `errors` gets the
        partitions whose checkpoint could not be written, or that have another leader now.
        """
        logs: dict[TopicPartitionPair, PartitionLog] = {}
        for key in partitions:
            try:
                logs[key] = self.leader_of(*key).log
            except KafkaError as error:  # the leader has changed since delete_records
                errors[key] = error
        for health, log in {log.health: log for log in logs.values()}.items():
            try:
                yield from checkpoint(log)
            except KafkaStorageError as error:
                errors |= {key: error for key, each in logs.items() if each.health is health}


def _check_leader_epoch(epoch: int, known: int) -> None:
    """Check the caller's leader epoch. Raises FencedLeaderEpoch, UnknownLeaderEpoch: it is
    older, or newer.
    """
    if known < epoch:
        raise FencedLeaderEpoch(f"leader epoch {known} is stale, current is {epoch}")
    if known > epoch:
        raise UnknownLeaderEpoch(f"leader epoch {known} is not known here yet, current is {epoch}")
