"""What the controller decides about nodes: requests and the present image in, records out.

Pure functions. The caller (actors/controller.py) runs them one at a time on the newest image,
makes the records durable on a majority of voters, applies them, and only then answers.

    hard state   the MetadataImage; changes only through records
    soft state   Sessions: when each node was last heard of; begins afresh with every controller

Source: apache/kafka metadata/.../controller/ClusterControlManager.java. Not here: topics
(topic_control), their partitions (partition_control), settings (config_control).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from ..protocol.errors import (
    BrokerIdNotRegistered,
    InconsistentClusterId,
    StaleBrokerEpoch,
)
from .metadata_image import NO_LEADER, MetadataImage, NodeImage, PartitionImage
from .metadata_records import (
    FenceNodeRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterNodeRecord,
)

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
