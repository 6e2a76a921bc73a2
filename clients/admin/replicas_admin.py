"""Replicas and leaders of partitions, as steps for Admin.

Elections, reassignments (KIP-455), moves between log directories (KIP-113), the voters of the
metadata log (KIP-595).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ...protocol.error_code import ErrorCode
from ...protocol.errors import KafkaError, error_for
from ...protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ...protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from ...protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    ReplicaState,
    TopicData,
)
from ...protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from ...protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from ...protocol.topic_name import METADATA_TOPIC
from ...protocol.topic_partition import TopicPartition
from ..threads.io_thread import Steps, wait
from ..wire.cluster_client import ClusterClient

ELECTION_TYPES: Final = {"preferred": 0, "unclean": 1}


@dataclass(frozen=True, slots=True)
class Reassignment:
    """Reassignment in progress. replicas: all nodes that hold the partition now, old and new."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """Voter or observer of the metadata log. Times are ms since 1970; -1: not known."""

    node: int
    directory_id: UUID
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The metadata quorum: its leader, and its voters and observers with their log end offsets."""

    leader: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


def elect_leaders(
    client: ClusterClient,
    election: str,
    partitions: Sequence[TopicPartition] | None,
    *,
    timeout_ms: int,
) -> Steps[list[TopicPartition]]:
    """See Admin.elect_leaders."""
    asked = None
    if partitions is not None:
        asked = [
            TopicPartitions(topic=topic, partitions=indexes)
            for topic, indexes in _by_topic(partitions).items()
        ]
    request = ElectLeadersRequest(
        election_type=ELECTION_TYPES[election], topic_partitions=asked, timeout_ms=timeout_ms
    )
    response = yield from client.send_to_any(request, ElectLeadersResponse, repeatable=False)
    if response.error_code:
        raise error_for(response.error_code)
    elected: list[TopicPartition] = []
    refusals = _Refusals()
    for topic in response.replica_election_results:
        for one in topic.partition_result:
            if not one.error_code:
                elected.append(TopicPartition(topic.topic, one.partition_id))
            elif one.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                refusals.add(topic.topic, one.partition_id, one.error_code, one.error_message)
    refusals.raise_first()
    return sorted(elected)


def alter_partition_reassignments(
    client: ClusterClient,
    targets: Mapping[TopicPartition, Sequence[int] | None],
    *,
    timeout_ms: int,
) -> Steps[None]:
    """See Admin.alter_partition_reassignments."""
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms,
        topics=[
            ReassignableTopic(
                name=topic,
                partitions=[
                    ReassignablePartition(
                        partition_index=index,
                        replicas=_listed(targets[TopicPartition(topic, index)]),
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in _by_topic(targets).items()
        ],
    )
    response = yield from client.send_to_any(
        request, AlterPartitionReassignmentsResponse, repeatable=False
    )
    if response.error_code:
        raise error_for(response.error_code, response.error_message)
    refusals = _Refusals()
    for topic in response.responses:
        for one in topic.partitions:
            if one.error_code:
                refusals.add(topic.name, one.partition_index, one.error_code, one.error_message)
    refusals.raise_first()


def list_partition_reassignments(
    client: ClusterClient, partitions: Sequence[TopicPartition] | None, *, timeout_ms: int
) -> Steps[dict[TopicPartition, Reassignment]]:
    """See Admin.list_partition_reassignments."""
    asked = None
    if partitions is not None:
        asked = [
            ListPartitionReassignmentsTopics(name=topic, partition_indexes=indexes)
            for topic, indexes in _by_topic(partitions).items()
        ]
    request = ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=asked)
    response = yield from client.send_to_any(request, ListPartitionReassignmentsResponse)
    if response.error_code:
        raise error_for(response.error_code, response.error_message)
    found = {
        TopicPartition(topic.name, one.partition_index): Reassignment(
            tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
        )
        for topic in response.topics
        for one in topic.partitions
    }
    return dict(sorted(found.items()))


def alter_replica_log_dirs(
    client: ClusterClient, targets: Mapping[tuple[str, int, int], str]
) -> Steps[None]:
    """See Admin.alter_replica_log_dirs: each broker is sent its own replicas."""
    by_broker: dict[int, dict[str, list[TopicPartition]]] = defaultdict(lambda: defaultdict(list))
    for (topic, partition, broker), path in targets.items():
        by_broker[broker][path].append(TopicPartition(topic, partition))
    cluster = yield from wait(client.refresh())
    refusals = _Refusals()
    for broker, by_path in sorted(by_broker.items()):
        if broker not in cluster.brokers:
            for partitions in by_path.values():
                for one in partitions:
                    refusals.add(
                        one.topic,
                        one.partition,
                        ErrorCode.BROKER_NOT_AVAILABLE,
                        f"there is no live broker {broker}",
                    )
            continue
        request = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=path,
                    topics=[
                        AlterReplicaLogDirTopic(name=topic, partitions=indexes)
                        for topic, indexes in _by_topic(partitions).items()
                    ],
                )
                for path, partitions in by_path.items()
            ]
        )
        address = cluster.brokers[broker].address
        response = yield from wait(client.send(address, request, AlterReplicaLogDirsResponse))
        for result in response.results:
            for answer in result.partitions:
                if answer.error_code:
                    path = targets[result.topic_name, answer.partition_index, broker]
                    refusals.add(
                        result.topic_name,
                        answer.partition_index,
                        answer.error_code,
                        _why_not_moved(answer.error_code, broker, path),
                    )
    refusals.raise_first()


def _why_not_moved(code: int, broker: int, path: str) -> str:
    if code == ErrorCode.LOG_DIR_NOT_FOUND:
        return (
            f"broker {broker} has no log directory {path}; `bradbury dirs --broker {broker}` shows "
            "those it has; a new one is given at its start: `bradbury up --data-dir`, repeated"
        )
    return f"on broker {broker}: {error_for(code)}"


def describe_metadata_quorum(client: ClusterClient) -> Steps[QuorumDescription]:
    """See Admin.describe_metadata_quorum."""
    request = DescribeQuorumRequest(
        topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData()])]
    )
    response = yield from client.send_to_any(request, DescribeQuorumResponse)
    if response.error_code:
        raise error_for(response.error_code, response.error_message)
    (partition,) = response.topics[0].partitions
    if partition.error_code:
        raise error_for(partition.error_code, partition.error_message)
    return QuorumDescription(
        partition.leader_id,
        partition.leader_epoch,
        partition.high_watermark,
        tuple(_replica(one) for one in partition.current_voters),
        tuple(_replica(one) for one in partition.observers),
    )


class _Refusals:
    """Refusals of a request; the first is raised, with its message, after all answers are read."""

    def __init__(self) -> None:
        self._first: KafkaError | None = None

    def add(self, topic: str, partition: int, code: int, message: str | None) -> None:
        if self._first is None:
            words = f": {message}" if message else ""
            self._first = error_for(code, f"{topic}-{partition}{words}")

    def raise_first(self) -> None:
        if self._first is not None:
            raise self._first


def _replica(state: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        state.replica_id,
        state.replica_directory_id,
        state.log_end_offset,
        state.last_fetch_timestamp,
        state.last_caught_up_timestamp,
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for one in partitions:
        found[one.topic].append(one.partition)
    return found


def _listed(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)
