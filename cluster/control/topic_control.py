"""Requests that create and delete topics.

Topics of one request are created in order, each with the names of the former ones taken, so that
two of them cannot have one name. A topic is created completely or not at all; other topics of the
request do not depend on it. Placement of the replicas: replica_placement.
Source: apache/kafka metadata/.../controller/ReplicationControlManager.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from ...protocol.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    KafkaError,
    PolicyViolation,
    ThrottlingQuotaExceeded,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ...protocol.topic_name import (
    INTERNAL_TOPICS,
    can_collide,
    check_collision,
    check_topic_name,
    fold,
)
from ..metadata.metadata_image import MetadataImage, NodeImage, TopicImage
from ..metadata.metadata_records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ..partition.replica_placement import check_replicas, place_replicas
from ..quotas.mutation_quotas import MutationMeter
from .controller_request import DONE, ConfigRules, RequestOutcome
from .metered_request import MeteredRequest

MAX_PARTITIONS_PER_REQUEST = 10_000
"""Most new partitions in one request, all topics together, as in Kafka."""
MAX_PARTITIONS_PER_TOPIC = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicToCreate:
    """A topic to create. partitions and replication_factor: -1 means the broker's default.

    topic_id: chosen by the sender, so that a request whose answer was lost can be repeated: a topic
    of that name and id was created by the first attempt.
    """

    name: str
    topic_id: UUID
    partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)


class TopicOutcome(NamedTuple):
    """Outcome for one topic. The other fields are set if the outcome is DONE."""

    outcome: RequestOutcome
    name: str | None = None
    topic_id: UUID | None = None
    partitions: int = -1
    replication_factor: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopics(MeteredRequest[tuple[TopicOutcome, ...]]):
    """Creates topics; answered with an outcome per topic, in order."""

    topics: tuple[TopicToCreate, ...]

    def decide_metered(
        self, image: MetadataImage, rules: ConfigRules, meter: MutationMeter
    ) -> tuple[list[MetadataRecord], tuple[TopicOutcome, ...]]:
        default, _ = rules.topic_defaults(image)
        check_partition_count(
            len(topic.assignments) or (default if topic.partitions == -1 else topic.partitions)
            for topic in self.topics
        )
        records: list[MetadataRecord] = []
        outcomes: list[TopicOutcome] = []
        # Only names with dots or underscores can collide, so few requests have to check all topics.
        colliding = any(can_collide(topic.name) for topic in self.topics)
        taken = {fold(name): name for name in image.topics} if colliding else {}
        for topic in self.topics:
            number = len(image.topics) + len(outcomes)
            try:
                made, outcome = _create(image, topic, taken, number, rules)
                if made:
                    meter.take(outcome.partitions)
            except KafkaError as error:
                outcomes.append(TopicOutcome(RequestOutcome.of(error)))
                continue
            records += made
            outcomes.append(outcome)
            taken[fold(topic.name)] = topic.name
        return records, tuple(outcomes)


def check_partition_count(counts: Iterable[int]) -> None:
    """Check the number of new partitions of one request. Raises PolicyViolation.

    They are one metadata change, which every node applies in one go.
    """
    total = sum(max(count, 0) for count in counts)
    if total > MAX_PARTITIONS_PER_REQUEST:
        raise PolicyViolation(
            f"{total} partitions are too many for one request; make {MAX_PARTITIONS_PER_REQUEST} "
            "at a time: a topic can be given more partitions later"
        )


def _create(
    image: MetadataImage,
    topic: TopicToCreate,
    taken: Mapping[str, str],
    number: int,
    rules: ConfigRules,
) -> tuple[list[MetadataRecord], TopicOutcome]:
    present = image.topics.get(topic.name)
    if present is not None and present.topic_id == topic.topic_id:
        return [], _outcome_of(present)
    check_topic_name(topic.name)
    if present is not None or taken.get(fold(topic.name)) == topic.name:
        raise TopicAlreadyExists(f"topic {topic.name!r} already exists")
    check_collision(topic.name, taken)
    rules.check_topic(image, topic.configs)
    records = create_topic(image, topic, start=number, defaults=rules.topic_defaults(image))
    partitions = [record for record in records if isinstance(record, PartitionRecord)]
    return records, TopicOutcome(
        DONE, topic.name, topic.topic_id, len(partitions), len(partitions[0].replicas)
    )


def _outcome_of(topic: TopicImage) -> TopicOutcome:
    replicas = topic.partitions[0].replicas
    return TopicOutcome(DONE, topic.name, topic.topic_id, len(topic.partitions), len(replicas))


def create_topic(
    image: MetadataImage, topic: TopicToCreate, *, start: int, defaults: tuple[int, int]
) -> list[MetadataRecord]:
    """Records of a new topic, its partitions spread from node number `start` on.

    Args:
        image: the newest.
        topic: its name and settings are checked already.
        start: number, modulo their count, of the node that leads the first partition, so that
            topics with one partition each are spread, too.
        defaults: partitions and replication factor of a topic that sets none.

    Raises:
        InvalidPartitions, InvalidReplicationFactor, InvalidReplicaAssignment.
    """
    nodes = image.nodes_for(role_for(topic.name))
    if topic.assignments:
        replicas = check_assignment(topic.assignments, nodes)
    else:
        count = defaults[0] if topic.partitions == -1 else topic.partitions
        if not 1 <= count <= MAX_PARTITIONS_PER_TOPIC:
            raise InvalidPartitions(
                f"a topic has 1 to {MAX_PARTITIONS_PER_TOPIC} partitions, not {count}"
            )
        factor = defaults[1] if topic.replication_factor == -1 else topic.replication_factor
        replicas = place_replicas(nodes, count, factor=factor, start=start)
    topic_id = str(topic.topic_id)
    records: list[MetadataRecord] = [TopicRecord(topic_id=topic_id, name=topic.name)]
    records += new_partitions(topic_id, replicas, first=0)
    records += [
        ConfigRecord(resource="topic", name=topic.name, key=key, value=value)
        for key, value in topic.configs.items()
    ]
    return records


def new_partitions(
    topic_id: str, replicas: Sequence[tuple[int, ...]], *, first: int
) -> list[MetadataRecord]:
    """Records of partitions from number `first` on, each led by its first replica."""
    return [
        PartitionRecord(
            topic_id=topic_id,
            partition=index,
            replicas=ids,
            isr=ids,
            leader=ids[0],
            leader_epoch=0,
            partition_epoch=0,
        )
        for index, ids in enumerate(replicas, first)
    ]


def role_for(topic: str) -> str:
    """Role of the nodes that hold the partitions of `topic`."""
    return "group" if topic in INTERNAL_TOPICS else "partition"


def check_assignment(
    assignments: Mapping[int, tuple[int, ...]], nodes: Sequence[NodeImage], first: int = 0
) -> list[tuple[int, ...]]:
    """Check the assigned replicas of the partitions from `first` on; returns them in order.

    Raises InvalidReplicaAssignment.
    """
    if sorted(assignments) != list(range(first, first + len(assignments))):
        raise InvalidReplicaAssignment(f"partitions must be assigned consecutively from {first}")
    if len({len(ids) for ids in assignments.values()}) > 1:
        raise InvalidReplicaAssignment("all partitions of a topic have as many replicas")
    known = {node.node_id: node for node in nodes}
    for partition, ids in assignments.items():
        check_replicas(ids, known, f"partition {partition}")
    return [assignments[partition] for partition in sorted(assignments)]


class TopicKey(NamedTuple):
    """A topic, by exactly one of its name and its id."""

    name: str | None = None
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopics(MeteredRequest[tuple[TopicOutcome, ...]]):
    """Deletes topics; answered with an outcome per topic, in order, with the partition count."""

    topics: tuple[TopicKey, ...]

    def decide_metered(
        self, image: MetadataImage, rules: ConfigRules, meter: MutationMeter
    ) -> tuple[list[MetadataRecord], tuple[TopicOutcome, ...]]:
        records: list[MetadataRecord] = []
        outcomes: list[TopicOutcome] = []
        gone: set[UUID] = set()
        for key in self.topics:
            try:
                topic = _find(image, key)
                if topic.is_internal:
                    raise InvalidRequest(f"{topic.name!r} is internal and cannot be deleted")
                if topic.topic_id in gone:
                    raise InvalidRequest(f"topic {topic.name!r} is named twice in the request")
                meter.take(len(topic.partitions))
            except (InvalidRequest, ThrottlingQuotaExceeded) as error:
                outcomes.append(TopicOutcome(RequestOutcome.of(error), key.name, key.topic_id))
            except (UnknownTopicOrPartition, UnknownTopicId) as error:
                # The first attempt, whose answer was lost, has deleted it.
                outcome = DONE if self.is_repeated else RequestOutcome.of(error)
                outcomes.append(TopicOutcome(outcome, key.name, key.topic_id))
            else:
                gone.add(topic.topic_id)
                records.append(RemoveTopicRecord(topic_id=str(topic.topic_id)))
                outcomes.append(_outcome_of(topic))
        return records, tuple(outcomes)


def _find(image: MetadataImage, key: TopicKey) -> TopicImage:
    if key.topic_id is not None:
        found = image.topic_by_id(key.topic_id)
        if found is None:
            raise UnknownTopicId(f"there is no topic with id {key.topic_id}")
    else:
        found = image.topics.get(key.name or "")
        if found is None:
            raise UnknownTopicOrPartition(f"topic {key.name!r} does not exist")
    return found
