"""Decisions of the controller about nodes: requests and the current image in, records out.

Pure functions. Their caller, controller/active/change_queue, runs them one at a time on the newest
image, makes the records durable on a majority of voters, applies them, and only then answers.

    hard state   the MetadataImage; changes only through records
    soft state   Sessions: when each node last sent a heartbeat; empty for a new controller

Source: apache/kafka metadata/.../controller/ClusterControlManager.java. Not here: topics
(topic_control), their partitions (partition_control), settings (config_control).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ...protocol.errors import (
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    StaleBrokerEpoch,
)
from ..metadata.listener_address import ListenerAddress
from ..metadata.metadata_image import MetadataImage, NodeImage, TopicImage
from ..metadata.metadata_records import (
    FenceNodeRecord,
    MetadataRecord,
    ProducerIdsRecord,
    RegisterNodeRecord,
)
from ..partition.partition_change import next_partition

PRODUCER_ID_BLOCK = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRegistration:
    """Registration of a starting node. node_id and cluster_id come from its meta.properties."""

    directory_id: str
    incarnation: str
    roles: tuple[str, ...]
    host: str
    port: int
    rack: str | None
    machine: str = ""
    metadata_directory_id: str = ""
    listeners: tuple[ListenerAddress, ...] = ()
    """All listeners; host and port are those of the first."""
    name: str = ""
    """Name of the process. A node with a new directory replaces the former one of the same name."""
    node_id: int | None = None
    cluster_id: str | None = None
    has_all_data: bool = True
    """Whether its logs have all acknowledged records for certain, e.g. as its machine was not
    restarted since its last run.
    """


MinInsync = Callable[[TopicImage], int]
IsUnclean = Callable[[TopicImage], bool]
"""Predicate: whether an out-of-sync replica of the topic may lead when no other can."""


def own_min_insync(topic: TopicImage) -> int:
    """Value of min.insync.replicas that the topic sets itself; 1 if it sets none."""
    return int(topic.configs.get("min.insync.replicas", 1))


def never_unclean(topic: TopicImage) -> bool:
    del topic
    return False


def register_node(
    image: MetadataImage,
    request: NodeRegistration,
    *,
    min_insync: MinInsync = own_min_insync,
    is_unclean: IsUnclean = never_unclean,
) -> tuple[int, list[MetadataRecord]]:
    """Register a node: its id and the records that put it (back) in service.

    The caller holds the lock of the node's directory, so its earlier incarnation is dead; the
    leader epochs of partitions that it leads grow, or two incarnations would lead in one epoch. A
    node that may have lost data is removed from every ISR and ELR (KIP-966).

    Raises:
        InconsistentClusterId: the directory belongs to another cluster.
        BrokerIdNotRegistered: the directory has a node id that is not in this cluster's metadata.
        DuplicateBrokerRegistration: a node of this name is in service, with another directory.
    """
    if request.cluster_id not in (None, image.cluster_id):
        raise InconsistentClusterId(
            f"the data directory belongs to cluster {request.cluster_id}, this cluster is "
            f"{image.cluster_id}; start with the right data directory, or an empty one; if the "
            "metadata was lost, `bradbury metadata recover DATA_DIR` makes it again"
        )
    node_id = request.node_id
    for node in image.nodes.values():
        if node.directory_id == request.directory_id:
            node_id = node.node_id
    if node_id is None:
        node_id = _successor_of(image, request.name)
    has_all_data = request.has_all_data
    if node_id is None:
        node_id = image.next_node_id
    elif node_id not in image.nodes:
        raise BrokerIdNotRegistered(
            f"the data directory says node {node_id}, which this cluster's metadata does not know; "
            "the metadata is older than the data: start the node that holds the newest metadata, "
            "or, if it was lost, make it again with `bradbury metadata recover DATA_DIR`"
        )
    else:
        # Another directory was registered as this node, before or meanwhile.
        has_all_data &= image.nodes[node_id].directory_id == request.directory_id
    records: list[MetadataRecord] = [
        RegisterNodeRecord(
            node_id=node_id,
            directory_id=request.directory_id,
            incarnation=request.incarnation,
            roles=request.roles,
            host=request.host,
            port=request.port,
            rack=request.rack,
            machine=request.machine,
            name=request.name,
            metadata_directory_id=request.metadata_directory_id,
            listeners=tuple(map(str, request.listeners)),
            epoch=image.offset,
        )
    ]
    active = {node.node_id for node in image.live_nodes()} | {node_id}
    records += _follow_change(
        image,
        node_id,
        is_active=active.__contains__,
        min_insync=min_insync,
        is_unclean=is_unclean,
        begins_anew=True,
        has_all_data=has_all_data,
    )
    return node_id, records


def _successor_of(image: MetadataImage, name: str) -> int | None:
    """Id of the registered node of this name, whose directories were lost; None: there is none."""
    for node in image.nodes.values():
        if not name or node.name != name:
            continue
        if not node.fenced:
            raise DuplicateBrokerRegistration(
                f"node {node.node_id} is {name!r} with directory {node.directory_id}, and its "
                "session is not over: if another process has the same name, give one of them "
                "another; if that directory was lost, wait for broker.session.timeout.ms"
            )
        return node.node_id
    return None


def _follow_change(
    image: MetadataImage,
    node_id: int,
    *,
    is_active: Callable[[int], bool],
    min_insync: MinInsync,
    is_unclean: IsUnclean,
    begins_anew: bool = False,
    has_all_data: bool = True,
) -> list[MetadataRecord]:
    """Partition changes after a node with replicas was unfenced, fenced, or registered again."""
    records: list[MetadataRecord] = []
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            if node_id not in partition.replicas:
                continue
            changed = next_partition(
                partition,
                is_active=is_active,
                min_insync_replicas=min_insync(topic),
                lost=() if has_all_data else (node_id,),
                begins_anew=node_id if begins_anew else None,
                is_unclean=is_unclean(topic),
            )
            if changed is not partition:
                records.append(changed.to_record(topic.topic_id, index))
    return records


def check_session(image: MetadataImage, node_id: int, incarnation: str) -> NodeImage:
    """The registered node. Raises unless `incarnation` is the registered one.

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


def fence_node(
    image: MetadataImage,
    node_id: int,
    *,
    fenced: bool,
    min_insync: MinInsync = own_min_insync,
    is_unclean: IsUnclean = never_unclean,
) -> list[MetadataRecord]:
    """Records that fence a silent node, or unfence it, and elect other leaders where possible."""
    node = image.nodes[node_id]
    if node.fenced == fenced:
        return []
    active = {each.node_id for each in image.live_nodes()}
    active = active - {node_id} if fenced else active | {node_id}
    return [
        FenceNodeRecord(node_id=node_id, epoch=node.epoch, fenced=fenced),
        *_follow_change(
            image,
            node_id,
            is_active=active.__contains__,
            min_insync=min_insync,
            is_unclean=is_unclean,
        ),
    ]


def allocate_producer_ids(image: MetadataImage) -> tuple[int, list[MetadataRecord]]:
    """Allocate a block of PRODUCER_ID_BLOCK producer ids, never allocated again: its first id
    and the records.
    """
    first = image.next_producer_id
    return first, [ProducerIdsRecord(next_producer_id=first + PRODUCER_ID_BLOCK)]


STALL_MS = 2_000
"""Longest gap between two checks of sessions before the controller counts as having been suspended;
longer than the delays on a busy machine.
"""


@dataclass(slots=True)
class Sessions:
    """Time of the last heartbeat of each node, on the controller's monotonic clock. Soft state."""

    timeout_ms: int
    _last_contact: dict[int, int] = field(default_factory=dict)
    _checked_ms: int | None = None

    def on_contact(self, node_id: int, *, now_ms: int) -> None:
        self._last_contact[node_id] = now_ms

    def expired(self, image: MetadataImage, *, now_ms: int) -> list[int]:
        """Unfenced nodes that were silent for a full session.

        The session of a node that has sent no heartbeat yet starts now: a new controller must not
        fence all nodes. Nor must one whose process was suspended (with its machine): heartbeats
        that arrived meanwhile are not read yet. Sessions are checked several times a second, so a
        longer gap between checks is not counted as silence.
        """
        if self._checked_ms is None:
            self._last_contact = dict.fromkeys(self._last_contact, now_ms)
        elif now_ms - self._checked_ms > STALL_MS:
            stalled = now_ms - self._checked_ms
            for node_id, contact in self._last_contact.items():
                self._last_contact[node_id] = min(contact + stalled, now_ms)
        self._checked_ms = now_ms
        silent = []
        for node_id, node in image.nodes.items():
            contact = self._last_contact.setdefault(node_id, now_ms)
            if not node.fenced and now_ms - contact > self.timeout_ms:
                silent.append(node_id)
        return silent
