"""The cluster's metadata at one offset of the metadata log: an immutable value.

Nodes, topics with their partitions, settings, ACLs, the producer id counter. A new image
shares every part that did not change with the former one, so holding an old image is free and
comparing parts by identity shows what changed.

Invariants: the image is a pure function of the records up to `offset`; nothing here
decides (controller_state does). Source: apache/kafka metadata/.../image/MetadataImage.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any
from uuid import UUID

from ...protocol.security.acl_binding import AclBinding
from ...protocol.topic_name import INTERNAL_TOPICS
from ..quotas.quota_entity import QuotaEntity
from .client_quotas import apply_client_quota, client_quota_records
from .listener_address import ListenerAddress
from .metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ClusterRecord,
    ConfigRecord,
    DrainRecord,
    EpochRecord,
    FenceNodeRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterNodeRecord,
    RemoveAccessControlEntryRecord,
    RemoveNodeRecord,
    RemoveTopicRecord,
    TopicRecord,
    VotersRecord,
)
from .user_records import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    ScramCredentials,
    UserScramCredentialRecord,
    apply_scram,
    apply_token,
    scram_records,
)

NO_LEADER = -1
_EMPTY: Mapping[Any, Any] = MappingProxyType({})
_CONFIGS = {
    "broker": "broker_configs",
    "group": "group_configs",
    "client_metrics": "client_metrics",
}
"""Fields of the image by resource type, for resource types that consist of settings only."""


@dataclass(frozen=True, slots=True)
class NodeImage:
    """A listening process: one Kafka node. Roles: broker, partition, group."""

    node_id: int
    directory_id: str
    incarnation: str
    roles: tuple[str, ...]
    host: str
    port: int
    rack: str | None
    epoch: int
    fenced: bool = False
    machine: str = ""
    name: str = ""
    metadata_directory_id: str = ""
    listeners: tuple[ListenerAddress, ...] = ()
    """Listeners; empty for a node that was registered by a version with one listener."""

    def endpoint(self, listener: str) -> ListenerAddress | None:
        """Address of the listener of this name; of the first one if the name is "" or no names are
        registered. None: no such listener.
        """
        if not listener or not self.listeners:
            return ListenerAddress(listener, self.host, self.port)
        for endpoint in self.listeners:
            if endpoint.listener == listener:
                return endpoint
        return None

    @property
    def machine_name(self) -> str:
        """Name of the failure unit: the machine, else the rack, else the node id."""
        return self.machine or self.rack or str(self.node_id)


@dataclass(frozen=True, slots=True)
class PartitionImage:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    elr: tuple[int, ...] = ()
    last_known_leader: int = NO_LEADER
    recovering: bool = False
    """Whether the leader may lack committed records, as it was elected uncleanly."""
    adding: tuple[int, ...] = ()
    """Replicas that a reassignment adds; when all are in sync, those in `removing` are removed."""
    removing: tuple[int, ...] = ()

    @property
    def is_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    def with_recovering(self, *, recovering: bool) -> PartitionImage:
        return self if recovering == self.recovering else replace(self, recovering=recovering)

    def in_next_epoch(self) -> PartitionImage:
        return replace(self, partition_epoch=self.partition_epoch + 1)

    def to_record(self, topic_id: UUID, index: int) -> PartitionRecord:
        return PartitionRecord(
            topic_id=str(topic_id),
            partition=index,
            replicas=self.replicas,
            isr=self.isr,
            leader=self.leader,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            elr=self.elr,
            last_known_leader=self.last_known_leader,
            recovering=self.recovering,
            adding=self.adding,
            removing=self.removing,
        )


@dataclass(frozen=True, slots=True)
class TopicImage:
    topic_id: UUID
    name: str
    partitions: tuple[PartitionImage, ...] = ()
    configs: Mapping[str, str] = field(default_factory=lambda: _EMPTY)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """`offset` is the next offset of the metadata log: everything below it is applied."""

    offset: int = 0
    epoch: int = -1
    cluster_id: str = ""
    voters: tuple[str, ...] = ()
    nodes: Mapping[int, NodeImage] = field(default_factory=lambda: _EMPTY)
    topics: Mapping[str, TopicImage] = field(default_factory=lambda: _EMPTY)
    topic_names: Mapping[UUID, str] = field(default_factory=lambda: _EMPTY)
    draining: frozenset[str] = frozenset()
    """Machines that get no new replicas; see rebalance."""
    next_node_id: int = 1
    """Next node id; greater than every id that was ever assigned."""
    next_producer_id: int = 0
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: _EMPTY)
    """Settings changed at run time, by node id as text; "" for all nodes."""
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: _EMPTY)
    """Settings of single groups, by group id."""
    client_metrics: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: _EMPTY)
    """Subscriptions to metrics of clients, by name."""
    scram_credentials: ScramCredentials = field(default_factory=lambda: _EMPTY)
    delegation_tokens: Mapping[str, DelegationTokenRecord] = field(default_factory=lambda: _EMPTY)
    acls: Mapping[str, AclBinding] = field(default_factory=lambda: _EMPTY)
    """ACLs by id; no two are equal."""
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=lambda: _EMPTY)
    """Client quotas by entity; see client_quotas."""

    def live_nodes(self, role: str | None = None) -> list[NodeImage]:
        """Unfenced nodes in id order, of one role or of all."""
        return [
            node
            for _, node in sorted(self.nodes.items())
            if not node.fenced and (role is None or role in node.roles)
        ]

    def nodes_for(self, role: str) -> list[NodeImage]:
        """Nodes that may get new replicas, in id order."""
        return [node for node in self.live_nodes(role) if node.machine_name not in self.draining]

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        image = self.topics.get(topic)
        if image is None or not 0 <= partition < len(image.partitions):
            return None
        return image.partitions[partition]

    def live_leader(self, topic: str, partition: int) -> int | None:
        """Node id of the leader, if that node is not fenced; None: there is no live leader."""
        found = self.partition(topic, partition)
        node = None if found is None else self.nodes.get(found.leader)
        return None if node is None or node.fenced else node.node_id

    def topics_deleted_since(self, before: MetadataImage) -> set[str]:
        """Names of topics that were deleted, also when there are new topics of that name."""
        if before.topics is self.topics:
            return set()
        deleted = set()
        for name, topic in before.topics.items():
            now = self.topics.get(name)
            if now is not topic and (now is None or now.topic_id != topic.topic_id):
                deleted.add(name)
        return deleted

    def to_records(self) -> list[MetadataRecord]:
        """Records that build this image from nothing: sent to a joining node."""
        records: list[MetadataRecord] = [
            ClusterRecord(cluster_id=self.cluster_id, voters=self.voters),
            EpochRecord(epoch=self.epoch, owner=""),
            ProducerIdsRecord(next_producer_id=self.next_producer_id),
        ]
        for node in self.nodes.values():
            records.append(
                RegisterNodeRecord(
                    node_id=node.node_id,
                    directory_id=node.directory_id,
                    incarnation=node.incarnation,
                    roles=node.roles,
                    host=node.host,
                    port=node.port,
                    rack=node.rack,
                    epoch=node.epoch,
                    machine=node.machine,
                    name=node.name,
                    metadata_directory_id=node.metadata_directory_id,
                    listeners=tuple(map(str, node.listeners)),
                )
            )
            if node.fenced:
                records.append(FenceNodeRecord(node_id=node.node_id, epoch=node.epoch, fenced=True))
        if self.next_node_id > max(self.nodes, default=0) + 1:
            records.append(RemoveNodeRecord(node_id=self.next_node_id - 1))
        records += [DrainRecord(machine=each, is_draining=True) for each in sorted(self.draining)]
        for topic in self.topics.values():
            records.append(TopicRecord(topic_id=str(topic.topic_id), name=topic.name))
            records += [
                partition.to_record(topic.topic_id, index)
                for index, partition in enumerate(topic.partitions)
            ]
            records += [
                ConfigRecord(resource="topic", name=topic.name, key=key, value=value)
                for key, value in topic.configs.items()
            ]
        records += [
            ConfigRecord(resource=resource, name=name, key=key, value=value)
            for resource, part in _CONFIGS.items()
            for name, configs in getattr(self, part).items()
            for key, value in configs.items()
        ]
        records += scram_records(self.scram_credentials)
        records += self.delegation_tokens.values()
        records += [AccessControlEntryRecord.of(*each) for each in self.acls.items()]
        records += client_quota_records(self.client_quotas)
        return records

    def apply(self, records: Iterable[MetadataRecord], *, offset: int) -> MetadataImage:
        """The image after `records`, which end just below `offset`.

        Cost: one copy of each mapping that changed (nodes, topics), and of the partitions of each
        topic that did, so apply many records at once.
        """
        change = _Change(self)
        for record in records:
            change.apply(record)
        return change.finish(offset)


class _Change:
    """Builder of the next image: copies each mapping of the image once, on its first write."""

    def __init__(self, base: MetadataImage) -> None:
        self._values: dict[str, Any] = {}
        self._base = base
        self._partitions: dict[str, list[PartitionImage]] = {}
        """Partitions of changed topics; finish() puts them into their topics."""

    def _writable(self, name: str) -> Any:
        if name not in self._values:
            self._values[name] = dict(getattr(self._base, name))
        return self._values[name]

    def _read(self, name: str) -> Any:
        return self._values.get(name, getattr(self._base, name))

    def apply(self, record: MetadataRecord) -> None:
        match record:
            case PartitionRecord():
                self._apply_partition(record)
            case TopicRecord():
                topic_id = UUID(record.topic_id)
                self._writable("topics")[record.name] = TopicImage(topic_id, record.name)
                self._writable("topic_names")[topic_id] = record.name
            case ConfigRecord():
                self._apply_config(record)
            case RemoveTopicRecord():
                name = self._writable("topic_names").pop(UUID(record.topic_id), None)
                if name is not None:
                    del self._writable("topics")[name]
                    self._partitions.pop(name, None)
            case RegisterNodeRecord():
                self._note_node_id(record.node_id)
                self._writable("nodes")[record.node_id] = NodeImage(
                    record.node_id,
                    record.directory_id,
                    record.incarnation,
                    record.roles,
                    record.host,
                    record.port,
                    record.rack,
                    record.epoch,
                    machine=record.machine,
                    name=record.name,
                    metadata_directory_id=record.metadata_directory_id,
                    listeners=tuple(map(ListenerAddress.parse, record.listeners)),
                )
            case RemoveNodeRecord():
                self._writable("nodes").pop(record.node_id, None)
                self._note_node_id(record.node_id)
            case DrainRecord():
                change = {record.machine}
                now = self._read("draining")
                self._values["draining"] = now | change if record.is_draining else now - change
            case FenceNodeRecord():
                node = self._read("nodes").get(record.node_id)
                if node is not None and node.epoch == record.epoch:
                    self._writable("nodes")[record.node_id] = replace(node, fenced=record.fenced)
            case UserScramCredentialRecord() | RemoveUserScramCredentialRecord():
                apply_scram(self._writable("scram_credentials"), record)
            case DelegationTokenRecord() | RemoveDelegationTokenRecord():
                apply_token(self._writable("delegation_tokens"), record)
            case AccessControlEntryRecord():
                self._writable("acls")[record.id] = record.binding
            case RemoveAccessControlEntryRecord():
                self._writable("acls").pop(record.id, None)
            case ProducerIdsRecord():
                self._values["next_producer_id"] = record.next_producer_id
            case ClientQuotaRecord():
                apply_client_quota(self._writable("client_quotas"), record)
            case EpochRecord():
                self._values["epoch"] = record.epoch
            case ClusterRecord():
                self._values["cluster_id"] = record.cluster_id
                self._values["voters"] = record.voters
            case VotersRecord():
                self._values["voters"] = record.voters

    def _note_node_id(self, node_id: int) -> None:
        self._values["next_node_id"] = max(self._read("next_node_id"), node_id + 1)

    def _apply_partition(self, record: PartitionRecord) -> None:
        name = self._read("topic_names").get(UUID(record.topic_id))
        if name is None:
            return  # its topic was removed by an earlier record
        partitions = self._partitions.get(name)
        if partitions is None:
            partitions = list(self._read("topics")[name].partitions)
            self._partitions[name] = partitions
        image = PartitionImage(
            record.replicas,
            record.isr,
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            record.elr,
            record.last_known_leader,
            record.recovering,
            record.adding,
            record.removing,
        )
        if record.partition == len(partitions):
            partitions.append(image)
        else:
            partitions[record.partition] = image

    def _apply_config(self, record: ConfigRecord) -> None:
        if record.resource in _CONFIGS:
            named = self._writable(_CONFIGS[record.resource])
            named[record.name] = _with_value(named.get(record.name, _EMPTY), record)
            if not named[record.name]:
                del named[record.name]
            return
        topic = self._read("topics").get(record.name)
        if record.resource != "topic" or topic is None:
            return
        configs = _with_value(topic.configs, record)
        self._writable("topics")[record.name] = replace(topic, configs=configs)

    def finish(self, offset: int) -> MetadataImage:
        for name, partitions in self._partitions.items():
            topics = self._writable("topics")
            topics[name] = replace(topics[name], partitions=tuple(partitions))
        frozen: dict[str, Any] = {
            name: MappingProxyType(value) if isinstance(value, dict) else value
            for name, value in self._values.items()
        }
        return replace(self._base, offset=offset, **frozen)


def _with_value(configs: Mapping[str, str], record: ConfigRecord) -> Mapping[str, str]:
    changed = dict(configs)
    if record.value is None:
        changed.pop(record.key, None)
    else:
        changed[record.key] = record.value
    return MappingProxyType(changed)
