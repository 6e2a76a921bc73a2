"""What the controller decides: requests and the present image in, metadata records out.

Pure functions. The caller (actors/controller.py) runs them one at a time on the newest image,
makes the records durable on a majority of voters, applies them, and only then answers.

    hard state   the MetadataImage; changes only through records
    soft state   Sessions: when each node was last heard of; begins afresh with every controller

Source: apache/kafka metadata/.../controller/{ReplicationControl,ClusterControl}Manager.java.
Replication factors above one, reassignment and ISR changes are not there yet; the records already
carry replicas, ISR, leader epoch and partition epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from ..protocol.errors import (
    BrokerIdNotRegistered,
    InconsistentClusterId,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    StaleBrokerEpoch,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from .metadata_image import NO_LEADER, MetadataImage, NodeImage, PartitionImage
from .metadata_records import (
    ConfigRecord,
    FenceNodeRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterNodeRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from .topic_name import INTERNAL_TOPICS, check_topic_name

MAX_PARTITIONS_PER_TOPIC = 100_000
PRODUCER_ID_BLOCK = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRegistration:
    """What a starting node says of itself. node_id and cluster_id come from its meta.properties."""

    directory_id: str
    incarnation: str
    roles: tuple[str, ...]
    host: str
    port: int
    rack: str | None
    node_id: int | None = None
    cluster_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """partitions and replication_factor: -1 means the broker's default. Settings are checked.

    With a topic_id the request can be repeated: a topic of that name and id is the one it made.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)
    topic_id: UUID | None = None


def create_topic(
    image: MetadataImage,
    topic: NewTopic,
    *,
    topic_id: UUID,
    start: int,
    default_partitions: int,
    default_replication_factor: int,
) -> list[MetadataRecord]:
    """Records of a new topic, its partitions spread from node number `start` on.

    Raises:
        InvalidTopicException, TopicAlreadyExists, InvalidPartitions, InvalidReplicationFactor,
        InvalidReplicaAssignment: nothing is created.
    """
    check_topic_name(topic.name, image.topics)
    if topic.name in image.topics:
        raise TopicAlreadyExists(f"topic {topic.name!r} already exists")
    nodes = spread_over_racks(image.live_nodes(role_for(topic.name)))
    if topic.assignments:
        replicas = check_assignment(topic.assignments, {node.node_id for node in nodes})
    else:
        count = default_partitions if topic.partitions == -1 else topic.partitions
        if not 1 <= count <= MAX_PARTITIONS_PER_TOPIC:
            raise InvalidPartitions(
                f"a topic has 1 to {MAX_PARTITIONS_PER_TOPIC} partitions, not {count}"
            )
        factor = topic.replication_factor
        _check_replication_factor(
            default_replication_factor if factor == -1 else factor, len(nodes)
        )
        replicas = [(nodes[(start + index) % len(nodes)].node_id,) for index in range(count)]
    records: list[MetadataRecord] = [TopicRecord(topic_id=str(topic_id), name=topic.name)]
    records += [
        PartitionRecord(
            topic_id=str(topic_id),
            partition=index,
            replicas=ids,
            isr=ids,
            leader=ids[0],
            leader_epoch=0,
            partition_epoch=0,
        )
        for index, ids in enumerate(replicas)
    ]
    records += [
        ConfigRecord(resource="topic", name=topic.name, key=key, value=value)
        for key, value in topic.configs.items()
    ]
    return records


def _check_replication_factor(factor: int, node_count: int) -> None:
    if factor < 1:
        raise InvalidReplicationFactor(f"replication factor {factor} is not at least 1")
    if node_count == 0:
        raise InvalidReplicationFactor("no node that can hold partitions is registered")
    if factor > 1:
        raise InvalidReplicationFactor(
            f"replication factor {factor}: Bradbury keeps one replica for now; use 1"
        )


def role_for(topic: str) -> str:
    """The role of the nodes that hold the partitions of `topic`."""
    return "group" if topic in INTERNAL_TOPICS else "partition"


def check_assignment(
    assignments: Mapping[int, tuple[int, ...]], known: set[int], first: int = 0
) -> list[tuple[int, ...]]:
    """The replicas of the partitions from `first` on, in order.

    Raises InvalidReplicaAssignment, InvalidReplicationFactor.
    """
    if sorted(assignments) != list(range(first, first + len(assignments))):
        raise InvalidReplicaAssignment(f"partitions must be assigned consecutively from {first}")
    for partition, ids in assignments.items():
        if not ids or len(set(ids)) != len(ids):
            raise InvalidReplicaAssignment(f"partition {partition} has none or repeated replicas")
        if len(ids) > 1:
            raise InvalidReplicationFactor("Bradbury keeps one replica for now; assign one node")
        if not known.issuperset(ids):
            raise InvalidReplicaAssignment(f"partition {partition} names an unknown node: {ids}")
    return [assignments[partition] for partition in sorted(assignments)]


def spread_over_racks(nodes: Sequence[NodeImage]) -> list[NodeImage]:
    """Nodes in an order that alternates racks, so neighbours in it are on different machines."""
    by_rack: dict[str | None, list[NodeImage]] = {}
    for node in nodes:
        by_rack.setdefault(node.rack, []).append(node)
    ordered = []
    racks = list(by_rack.values())
    for index in range(max((len(rack) for rack in racks), default=0)):
        ordered += [rack[index] for rack in racks if index < len(rack)]
    return ordered


def delete_topic(
    image: MetadataImage, *, name: str | None = None, topic_id: UUID | None = None
) -> list[MetadataRecord]:
    """Raises UnknownTopicOrPartition or UnknownTopicId."""
    if topic_id is not None:
        found = image.topic_by_id(topic_id)
        if found is None:
            raise UnknownTopicId(f"there is no topic with id {topic_id}")
    else:
        found = image.topics.get(name or "")
        if found is None:
            raise UnknownTopicOrPartition(f"topic {name!r} does not exist")
    return [RemoveTopicRecord(topic_id=str(found.topic_id))]


def register_node(
    image: MetadataImage, request: NodeRegistration
) -> tuple[int, list[MetadataRecord]]:
    """The node's id and the records that put it (back) in service.

    The caller holds the lock of its directory, so an earlier incarnation of it is dead; if that one
    led partitions, their leader epochs grow, or two incarnations would lead in one epoch.

    Raises:
        InconsistentClusterId: the directory belongs to another cluster.
        BrokerIdNotRegistered: the directory says it is a node this cluster never knew.
    """
    if request.cluster_id not in (None, image.cluster_id):
        raise InconsistentClusterId(
            f"the data directory belongs to cluster {request.cluster_id}, this cluster is "
            f"{image.cluster_id}; start with the right data directory, or an empty one"
        )
    node_id = request.node_id
    for node in image.nodes.values():
        if node.directory_id == request.directory_id:
            node_id = node.node_id
    if node_id is None:
        node_id = max(image.nodes, default=0) + 1
    elif node_id not in image.nodes:
        raise BrokerIdNotRegistered(
            f"the data directory says node {node_id}, which this cluster's metadata does not know; "
            "the metadata is older than the data: start the node that holds the newest metadata"
        )
    records: list[MetadataRecord] = [
        RegisterNodeRecord(
            node_id=node_id,
            directory_id=request.directory_id,
            incarnation=request.incarnation,
            roles=request.roles,
            host=request.host,
            port=request.port,
            rack=request.rack,
            epoch=image.offset,
        )
    ]
    for topic_id, index, partition in _partitions_of(image, node_id):
        if partition.leader == node_id or _may_lead(partition, node_id):
            records.append(_with_leader(topic_id, index, partition, node_id))
    return node_id, records


def _may_lead(partition: PartitionImage, node_id: int) -> bool:
    return partition.leader == NO_LEADER and node_id in partition.isr


def _partitions_of(image: MetadataImage, node_id: int) -> list[tuple[UUID, int, PartitionImage]]:
    return [
        (topic.topic_id, index, partition)
        for topic in image.topics.values()
        for index, partition in enumerate(topic.partitions)
        if node_id in partition.replicas
    ]


def _with_leader(
    topic_id: UUID, index: int, partition: PartitionImage, leader: int
) -> PartitionRecord:
    return PartitionRecord(
        topic_id=str(topic_id),
        partition=index,
        replicas=partition.replicas,
        isr=partition.isr,
        leader=leader,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
    )


def check_session(image: MetadataImage, node_id: int, incarnation: str) -> NodeImage:
    """The node, if this incarnation is the registered one.

    Raises:
        BrokerIdNotRegistered: unknown; register first.
        StaleBrokerEpoch: a newer incarnation of the node has taken over.
    """
    node = image.nodes.get(node_id)
    if node is None:
        raise BrokerIdNotRegistered(f"node {node_id} is not registered")
    if node.incarnation != incarnation:
        raise StaleBrokerEpoch(f"node {node_id} has been taken over by a newer incarnation")
    return node


def fence_node(image: MetadataImage, node_id: int, *, fenced: bool) -> list[MetadataRecord]:
    """The node fell silent (or is heard again). Its partitions lose (regain) their leader."""
    node = image.nodes[node_id]
    if node.fenced == fenced:
        return []
    records: list[MetadataRecord] = [
        FenceNodeRecord(node_id=node_id, epoch=node.epoch, fenced=fenced)
    ]
    for topic_id, index, partition in _partitions_of(image, node_id):
        if fenced and partition.leader == node_id:
            records.append(_with_leader(topic_id, index, partition, NO_LEADER))
        elif not fenced and _may_lead(partition, node_id):
            records.append(_with_leader(topic_id, index, partition, node_id))
    return records


def allocate_producer_ids(image: MetadataImage) -> tuple[int, list[MetadataRecord]]:
    """The first id of a block of PRODUCER_ID_BLOCK ids that no one else will ever get."""
    first = image.next_producer_id
    return first, [ProducerIdsRecord(next_producer_id=first + PRODUCER_ID_BLOCK)]


@dataclass(slots=True)
class Sessions:
    """When each node was last heard of, on the controller's monotonic clock. Soft state."""

    timeout_ms: int
    _last_contact: dict[int, int] = field(default_factory=dict)

    def on_contact(self, node_id: int, *, now_ms: int) -> None:
        self._last_contact[node_id] = now_ms

    def expired(self, image: MetadataImage, *, now_ms: int) -> list[int]:
        """Unfenced nodes silent for a full session.

        A node not heard of yet begins its session now: a fresh controller must not fence everybody.
        """
        silent = []
        for node_id, node in image.nodes.items():
            contact = self._last_contact.setdefault(node_id, now_ms)
            if not node.fenced and now_ms - contact > self.timeout_ms:
                silent.append(node_id)
        return silent
