"""Recovery of lost metadata: from the readable records of the old log and from partition
directories.

    known     records of a snapshot and of the readable parts of the log, also behind a damaged
              part: each has the complete state of its subject, so it needs no earlier record
    found     directories of partitions: topic and its id, node, leader epochs, end of the log

Invariants: a directory that was found has its partition in the result, unless its topic's
name is another topic's now, or its topic id is unknown; both are reported. Leader epochs only grow,
so no log is truncated. A topic whose settings are unknown deletes nothing until retention is set.

Pure: the files are read and written by controller/voter_files/metadata_rebuild.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, assert_never
from uuid import UUID

from ...protocol.security.scram import ScramCredential
from ..quotas.quota_entity import QuotaEntity
from .client_quotas import apply_client_quota, client_quota_records
from .metadata_image import NO_LEADER, MetadataImage
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
    UserScramCredentialRecord,
    apply_scram,
    apply_token,
    scram_records,
)

MORE_PRODUCER_IDS = 1_000_000
MORE_NODE_IDS = 100
"""Node ids skipped, as the lost part of the log may have assigned them."""
KEPT = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Retention settings of a topic whose own settings are lost, so that no default deletes records."""


class FoundPartition(NamedTuple):
    """Directory of one replica. topic_id: None if it is not recorded there."""

    topic: str
    partition: int
    topic_id: UUID | None
    node_id: int
    leader_epoch: int
    end_offset: int

    @property
    def progress(self) -> tuple[int, int]:
        return self.leader_epoch, self.end_offset


class FoundNode(NamedTuple):
    """A node found by the meta.properties of its directories."""

    node_id: int
    directory_ids: tuple[str, ...]


@dataclass(slots=True)
class KnownMetadata:
    """Metadata known from the readable records, however many are missing."""

    topics: dict[UUID, str] = field(default_factory=dict)
    topic_ids: dict[str, UUID] = field(default_factory=dict)
    partitions: dict[tuple[UUID, int], PartitionRecord] = field(default_factory=dict)
    nodes: dict[int, RegisterNodeRecord] = field(default_factory=dict)
    configs: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    draining: set[str] = field(default_factory=set)
    scram: dict[str, Mapping[str, ScramCredential]] = field(default_factory=dict)
    tokens: dict[str, DelegationTokenRecord] = field(default_factory=dict)
    acls: dict[str, AccessControlEntryRecord] = field(default_factory=dict)
    client_quotas: dict[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    next_node_id: int = 1
    next_producer_id: int = 0
    cluster_id: str = ""
    voters: tuple[str, ...] = ()
    epoch: int = -1

    def apply(self, records: Iterable[MetadataRecord]) -> None:
        for record in records:
            self._apply(record)

    def _apply(self, record: MetadataRecord) -> None:
        match record:
            case PartitionRecord():
                self.partitions[UUID(record.topic_id), record.partition] = record
            case TopicRecord():
                # Two topics never have one name: the record that removed the former one is lost.
                if (former := self.topic_ids.get(record.name)) is not None:
                    self._remove(former)
                self.configs.pop(("topic", record.name), None)
                topic_id = UUID(record.topic_id)
                self.topics[topic_id], self.topic_ids[record.name] = record.name, topic_id
            case RemoveTopicRecord():
                self._remove(UUID(record.topic_id))
            case ConfigRecord():
                self._apply_config(record)
            case RegisterNodeRecord():
                self.nodes[record.node_id] = record
                self.next_node_id = max(self.next_node_id, record.node_id + 1)
            case RemoveNodeRecord():
                self.nodes.pop(record.node_id, None)
                self.next_node_id = max(self.next_node_id, record.node_id + 1)
            case DrainRecord():
                (self.draining.add if record.is_draining else self.draining.discard)(record.machine)
            case UserScramCredentialRecord() | RemoveUserScramCredentialRecord():
                apply_scram(self.scram, record)
            case DelegationTokenRecord() | RemoveDelegationTokenRecord():
                apply_token(self.tokens, record)
            case AccessControlEntryRecord():
                self.acls[record.id] = record
            case RemoveAccessControlEntryRecord():
                self.acls.pop(record.id, None)
            case ClientQuotaRecord():
                apply_client_quota(self.client_quotas, record)
            case ProducerIdsRecord():
                self.next_producer_id = max(self.next_producer_id, record.next_producer_id)
            case EpochRecord():
                self.epoch = max(self.epoch, record.epoch)
            case ClusterRecord():
                self.cluster_id, self.voters = record.cluster_id, record.voters
            case VotersRecord():
                self.voters = record.voters
            case FenceNodeRecord():
                pass  # all nodes are fenced until they register
            case _:
                assert_never(record)  # a record type without a case would be lost

    def _apply_config(self, record: ConfigRecord) -> None:
        configs = self.configs.setdefault((record.resource, record.name), {})
        if record.value is None:
            configs.pop(record.key, None)
        else:
            configs[record.key] = record.value

    def _remove(self, topic_id: UUID) -> None:
        name = self.topics.pop(topic_id, None)
        if name is not None:
            self.topic_ids.pop(name, None)
            self.configs.pop(("topic", name), None)
        for key in [key for key in self.partitions if key[0] == topic_id]:
            del self.partitions[key]


class NewLog(NamedTuple):
    """Beginning of the log that replaces the old one.

    Epoch and offset are greater than all former ones: offsets are broker epochs, too.
    """

    cluster_id: str
    voters: tuple[str, ...]
    epoch: int
    offset: int


class RecoveredMetadata(NamedTuple):
    image: MetadataImage
    notes: list[str]
    """Messages about what could not be recovered."""


def recover_metadata(
    known: KnownMetadata,
    partitions: Sequence[FoundPartition],
    nodes: Sequence[FoundNode],
    new: NewLog,
    *,
    is_whole: bool,
    highest_producer_id: int,
    internal_configs: Callable[[str], Mapping[str, str] | None],
) -> RecoveredMetadata:
    """Recover the image that the new log starts with.

    Args:
        known: the metadata of the old log.
        partitions: all partition directories that were found.
        nodes: all nodes whose directories were searched.
        new: the beginning of the new log.
        is_whole: no record of the old log is missing.
        highest_producer_id: the highest one found in a partition's log; -1: none.
        internal_configs: the settings of a topic of this name, if it is an internal one.
    """
    recovery = _Recovery(known, nodes, is_whole=is_whole)
    records: list[MetadataRecord] = [
        ClusterRecord(cluster_id=new.cluster_id, voters=new.voters),
        EpochRecord(epoch=new.epoch, owner=""),
        ProducerIdsRecord(
            next_producer_id=max(known.next_producer_id, highest_producer_id + 1)
            + (0 if is_whole else MORE_PRODUCER_IDS)
        ),
        *recovery.node_records(),
        *(DrainRecord(machine=each, is_draining=True) for each in sorted(known.draining)),
        *recovery.topic_records(partitions, internal_configs),
        *recovery.other_configs(),
        *scram_records(known.scram),
        *known.tokens.values(),
        *known.acls.values(),
        *client_quota_records(known.client_quotas),
    ]
    recovery.note_access()
    image = MetadataImage().apply(records, offset=new.offset)
    return RecoveredMetadata(image, recovery.notes)


class _Recovery:
    def __init__(self, known: KnownMetadata, nodes: Sequence[FoundNode], *, is_whole: bool) -> None:
        self._known = known
        self._nodes = nodes
        self._is_whole = is_whole
        self.notes: list[str] = []

    # --- nodes -----------------------------------------------------------------------------------

    def node_records(self) -> list[MetadataRecord]:
        """Registration records; all nodes are fenced until they register."""
        nodes = dict(self._known.nodes)
        for found in self._nodes:
            record = nodes.get(found.node_id)
            if record is None:
                record = RegisterNodeRecord(
                    node_id=found.node_id,
                    directory_id=found.directory_ids[0],
                    incarnation="",
                    roles=("partition",),
                    host="",
                    port=0,
                    rack=None,
                    epoch=0,
                )
            elif record.directory_id not in found.directory_ids:
                record = replace(record, directory_id=found.directory_ids[0])
            nodes[found.node_id] = record
        records: list[MetadataRecord] = []
        for node_id, record in sorted(nodes.items()):
            records += [
                record,
                FenceNodeRecord(node_id=node_id, epoch=record.epoch, fenced=True),
            ]
        highest = max(self._known.next_node_id - 1, *nodes, 0)
        records.append(RemoveNodeRecord(node_id=highest + (0 if self._is_whole else MORE_NODE_IDS)))
        return [each for each in records if not _removes(each, nodes)]

    # --- topics ----------------------------------------------------------------------------------

    def topic_records(
        self,
        partitions: Sequence[FoundPartition],
        internal_configs: Callable[[str], Mapping[str, str] | None],
    ) -> list[MetadataRecord]:
        found = self._by_topic(partitions)
        names = self._names(found)
        records: list[MetadataRecord] = []
        for topic_id, name in sorted(names.items(), key=lambda item: item[1]):
            here = found.get(topic_id, {})
            if not here and not self._is_elsewhere(topic_id):
                self.notes.append(
                    f"topic {name} has no directory here: deleted, or lost; it is left out"
                )
                continue
            records.append(TopicRecord(topic_id=str(topic_id), name=name))
            records += self._partition_records(topic_id, name, here)
            for key, value in self._configs(topic_id, name, internal_configs).items():
                records.append(ConfigRecord(resource="topic", name=name, key=key, value=value))
        return records

    def _by_topic(
        self, partitions: Sequence[FoundPartition]
    ) -> dict[UUID, dict[int, list[FoundPartition]]]:
        ids = {name: topic_id for topic_id, name in self._known.topics.items()}
        for each in partitions:
            if each.topic_id is not None:
                ids.setdefault(each.topic, each.topic_id)
        found: dict[UUID, dict[int, list[FoundPartition]]] = defaultdict(lambda: defaultdict(list))
        for each in partitions:
            topic_id = each.topic_id or ids.get(each.topic)
            if topic_id is None:
                self.notes.append(
                    f"{each.topic}-{each.partition} of node {each.node_id} does not say its topic "
                    "id, and nothing else does: it is left out"
                )
                continue
            found[topic_id][each.partition].append(each)
        return found

    def _names(self, found: Mapping[UUID, Mapping[int, list[FoundPartition]]]) -> dict[UUID, str]:
        """Names by topic id, one topic per name: the known one with a directory, or else the one
        with the most records.

        If no record is missing a known topic comes first even without a directory: another topic
        of its name was deleted, whatever directories it has.
        """
        candidates: dict[str, list[UUID]] = defaultdict(list)
        for topic_id, name in self._known.topics.items():
            candidates[name].append(topic_id)
        for topic_id, indexes in found.items():
            name = next(iter(indexes.values()))[0].topic
            if topic_id not in self._known.topics:
                candidates[name].append(topic_id)
        names: dict[UUID, str] = {}
        for name, ids in candidates.items():
            best = max(
                ids,
                key=lambda each: (
                    self._is_whole and each in self._known.topics,
                    each in found,
                    each in self._known.topics,
                    sum(one.end_offset for some in found.get(each, {}).values() for one in some),
                ),
            )
            names[best] = name
            self.notes += [
                f"there are two topics {name}: {each} is left out, and its directories are "
                "renamed to -stray"
                for each in ids
                if each != best and each in found
            ]
        return names

    def _is_elsewhere(self, topic_id: UUID) -> bool:
        """Whether the topic may be on other nodes, or exists for certain: no record is missing."""
        here = {node.node_id for node in self._nodes}
        return self._is_whole or any(
            set(record.replicas) - here
            for (owner, _), record in self._known.partitions.items()
            if owner == topic_id
        )

    def _partition_records(
        self, topic_id: UUID, name: str, here: Mapping[int, list[FoundPartition]]
    ) -> list[PartitionRecord]:
        known = {i: record for (owner, i), record in self._known.partitions.items()
                 if owner == topic_id}  # fmt: skip
        records = []
        for index in range(max((*known, *here), default=-1) + 1):
            replicas = sorted(here.get(index, []), key=lambda each: each.node_id)
            record = known.get(index)
            if record is None and not replicas:
                somebody = min(each.node_id for some in here.values() for each in some)
                self.notes.append(
                    f"{name}-{index} was found nowhere: recreated empty on node {somebody}"
                )
                record = _new_record(topic_id, index, (somebody,), (somebody,))
            elif record is None:
                nodes = tuple(each.node_id for each in replicas)
                record = _new_record(topic_id, index, nodes, _best(replicas))
            elif not self._is_whole:
                record = _corrected(record, replicas)
            epoch = max((record.leader_epoch, *(each.leader_epoch for each in replicas)))
            # The last known leader may lead even without proof that it has all data (has_all_data).
            last = record.last_known_leader if record.leader == NO_LEADER else record.leader
            if last == NO_LEADER and record.isr:
                last = record.isr[0]
            records.append(
                replace(
                    record,
                    leader=NO_LEADER,
                    last_known_leader=last,
                    leader_epoch=epoch + 1,
                    partition_epoch=record.partition_epoch + 1,
                )
            )
        return records

    def _configs(
        self,
        topic_id: UUID,
        name: str,
        internal_configs: Callable[[str], Mapping[str, str] | None],
    ) -> Mapping[str, str]:
        if topic_id in self._known.topics:
            return self._known.configs.get(("topic", name), {})
        # Settings are stored by topic name: the known ones may be those of a former topic.
        internal = internal_configs(name)
        if internal is not None:
            return internal
        self.notes.append(
            f"the settings of topic {name} are not known: it keeps everything until they are set"
        )
        return KEPT

    def note_access(self) -> None:
        """Note that ACLs or credentials may be lost, also if none are known: a deny rule, or the
        removal of a user.
        """
        if self._is_whole:
            return
        nothing_is_known = self._known.epoch < 0
        self.notes.append(
            "ACLs, users' credentials and tokens are lost, if there were any; set them "
            "before clients come back"
            if nothing_is_known
            else "ACLs, users' credentials and tokens may not be the latest: look at "
            "`bradbury acls list` and `bradbury users list` before clients come back"
        )

    def other_configs(self) -> list[MetadataRecord]:
        return [
            ConfigRecord(resource=resource, name=name, key=key, value=value)
            for (resource, name), configs in self._known.configs.items()
            for key, value in configs.items()
            if resource != "topic"
        ]


def _removes(record: MetadataRecord, nodes: Mapping[int, RegisterNodeRecord]) -> bool:
    return isinstance(record, RemoveNodeRecord) and record.node_id in nodes


def _best(replicas: Sequence[FoundPartition]) -> tuple[int, ...]:
    """Node ids of the replicas that have all records that any of them has."""
    most = max(each.progress for each in replicas)
    return tuple(each.node_id for each in replicas if each.progress == most)


def _new_record(
    topic_id: UUID, index: int, replicas: tuple[int, ...], isr: tuple[int, ...]
) -> PartitionRecord:
    return PartitionRecord(
        topic_id=str(topic_id),
        partition=index,
        replicas=replicas,
        isr=isr,
        leader=NO_LEADER,
        leader_epoch=0,
        partition_epoch=0,
    )


def _corrected(record: PartitionRecord, found: Sequence[FoundPartition]) -> PartitionRecord:
    """A partition record that may not be the last one, with the ISR derived from the directories
    found.
    """
    if not found:
        return record
    more = [each.node_id for each in found if each.node_id not in record.replicas]
    best = _best(found)
    unseen = [node for node in record.isr if node not in {each.node_id for each in found}]
    return replace(
        record,
        replicas=(*record.replicas, *more),
        isr=(*best, *unseen) if set(best) & set(record.isr) else best,
        elr=(),
        adding=(),
        removing=(),
    )
