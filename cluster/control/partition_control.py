"""Requests that add partitions and elect leaders of existing topics.

Not here: other replicas for partitions that exist (reassignment).
Source: apache/kafka metadata/.../controller/ReplicationControlManager.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from ...protocol.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    KafkaError,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from ..metadata.metadata_image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from ..metadata.metadata_records import MetadataRecord
from ..partition.partition_change import next_partition
from ..partition.replica_placement import place_replicas
from ..quotas.mutation_quotas import MutationMeter
from .config_control import TOPIC
from .controller_request import DONE, ConfigRules, ControllerRequest, RequestOutcome
from .metered_request import MeteredRequest
from .topic_control import (
    MAX_PARTITIONS_PER_TOPIC,
    check_assignment,
    check_partition_count,
    new_partitions,
    role_for,
)

MIN_INSYNC: Final = "min.insync.replicas"
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
PREFERRED: Final = 0
UNCLEAN: Final = 1


MAX_ELECTIONS_PER_IMBALANCE: Final = 1_000
"""Maximum number of leader elections at once."""


class PartitionOutcome(NamedTuple):
    partition: int
    outcome: RequestOutcome


TopicOutcomes = tuple[tuple[str, tuple[PartitionOutcome, ...]], ...]


class NewPartitions(NamedTuple):
    """Partitions to add. total: partitions of the topic afterwards. assignments: replicas of each
    new one, or none.
    """

    topic: str
    total: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitions(MeteredRequest[tuple[RequestOutcome, ...]]):
    """Adds partitions; answered with an outcome per topic, in order."""

    topics: tuple[NewPartitions, ...]

    def decide_metered(
        self, image: MetadataImage, rules: ConfigRules, meter: MutationMeter
    ) -> tuple[list[MetadataRecord], tuple[RequestOutcome, ...]]:
        check_partition_count(
            wanted.total - len(image.topics[wanted.topic].partitions)
            for wanted in self.topics
            if wanted.topic in image.topics
        )
        records: list[MetadataRecord] = []
        outcomes = []
        for topic in self.topics:
            try:
                added = create_partitions(image, topic, is_repeated=self.is_repeated)
                if added:
                    meter.take(len(added))
                records += added
            except KafkaError as error:
                outcomes.append(RequestOutcome.of(error))
            else:
                outcomes.append(DONE)
        return records, tuple(outcomes)


def create_partitions(
    image: MetadataImage, wanted: NewPartitions, *, is_repeated: bool = False
) -> list[MetadataRecord]:
    """Records of the added partitions.

    Raises:
        UnknownTopicOrPartition, InvalidPartitions, InvalidReplicaAssignment,
        InvalidReplicationFactor: nothing is added.
    """
    topic = image.topics.get(wanted.topic)
    if topic is None:
        raise UnknownTopicOrPartition(f"topic {wanted.topic!r} does not exist")
    if topic.is_internal:
        raise InvalidPartitions(
            f"partitions cannot be added to {topic.name!r}: groups and transactional ids would "
            "get other coordinators, which do not have their state"
        )
    present = len(topic.partitions)
    if wanted.total == present and is_repeated:
        return []
    if wanted.total <= present:
        raise InvalidPartitions(
            f"topic {topic.name!r} has {present} partitions already; {wanted.total} would not be "
            "more, and partitions cannot be taken away"
        )
    if wanted.total > MAX_PARTITIONS_PER_TOPIC:
        raise InvalidPartitions(
            f"a topic has 1 to {MAX_PARTITIONS_PER_TOPIC} partitions, not {wanted.total}"
        )
    added = wanted.total - present
    nodes = image.nodes_for(role_for(topic.name))
    replicas: list[tuple[int, ...]]
    factor = len(topic.partitions[0].replicas)
    if wanted.assignments is None:
        replicas = place_replicas(nodes, added, factor=factor, start=present)
    else:
        if len(wanted.assignments) != added:
            raise InvalidReplicaAssignment(
                f"{added} partitions are to be added, {len(wanted.assignments)} are assigned"
            )
        replicas = check_assignment(dict(enumerate(wanted.assignments, present)), nodes, present)
        if len(replicas[0]) != factor:
            raise InvalidReplicaAssignment(
                f"the partitions of topic {topic.name!r} have {factor} replicas, "
                f"not {len(replicas[0])}"
            )
    return new_partitions(str(topic.topic_id), replicas, first=present)


def min_insync_replicas(image: MetadataImage, rules: ConfigRules, topic: TopicImage) -> int:
    """Effective min.insync.replicas of the topic: its own, or the brokers' default."""
    return int(topic.configs.get(MIN_INSYNC) or rules.default_of(image, TOPIC, MIN_INSYNC))


def may_be_unclean(image: MetadataImage, rules: ConfigRules, topic: TopicImage) -> bool:
    """Effective unclean.leader.election.enable of the topic: its own, or the brokers' default."""
    value = topic.configs.get(UNCLEAN_ELECTION) or rules.default_of(image, TOPIC, UNCLEAN_ELECTION)
    return value == "true"


def partition_of(image: MetadataImage, topic: str, index: int) -> PartitionImage:
    partition = image.partition(topic, index)
    if partition is None:
        raise UnknownTopicOrPartition(f"there is no {topic}-{index}")
    return partition


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeaders(ControllerRequest[TopicOutcomes]):
    """Elects leaders. election_type: PREFERRED or UNCLEAN. partitions None: all; the answer then
    omits partitions that needed no election.
    """

    election_type: int
    partitions: tuple[tuple[str, tuple[int, ...]], ...] | None

    def decide(
        self, image: MetadataImage, rules: ConfigRules
    ) -> tuple[list[MetadataRecord], TopicOutcomes]:
        if self.election_type not in (PREFERRED, UNCLEAN):
            raise InvalidRequest(f"there is no election type {self.election_type}")
        asked = self.partitions
        if asked is None:
            asked = tuple(
                (topic.name, tuple(range(len(topic.partitions)))) for topic in image.topics.values()
            )
        active = {node.node_id for node in image.live_nodes()}
        records: list[MetadataRecord] = []
        answers = []
        for topic, indexes in asked:
            outcomes = []
            for index in indexes:
                try:
                    records.append(self._elect(image, rules, topic, index, active))
                except KafkaError as error:
                    outcomes.append(PartitionOutcome(index, RequestOutcome.of(error)))
                else:
                    outcomes.append(PartitionOutcome(index, DONE))
            if self.partitions is None:
                outcomes = [
                    each for each in outcomes if each.outcome.code != ElectionNotNeeded.code
                ]
            if outcomes or self.partitions is not None:
                answers.append((topic, tuple(outcomes)))
        return records, tuple(answers)

    def _elect(
        self, image: MetadataImage, rules: ConfigRules, name: str, index: int, active: set[int]
    ) -> MetadataRecord:
        partition = partition_of(image, name, index)
        topic = image.topics[name]
        where = f"{name}-{index}"
        is_preferred = self.election_type == PREFERRED
        if partition.leader == (partition.replicas[0] if is_preferred else partition.leader) and (
            partition.leader != NO_LEADER
        ):
            raise ElectionNotNeeded(f"{where} is led by node {partition.leader}")
        changed = next_partition(
            partition,
            is_active=active.__contains__,
            min_insync_replicas=min_insync_replicas(image, rules, topic),
            prefers_first=is_preferred,
            is_unclean=not is_preferred,
        )
        if is_preferred and changed.leader != partition.replicas[0]:
            raise PreferredLeaderNotAvailable(
                f"node {partition.replicas[0]} is not in service, or not in sync: "
                f"the ISR of {where} is {partition.isr}"
            )
        if changed.leader == NO_LEADER:
            raise EligibleLeadersNotAvailable(
                f"no replica of {where} is in service: {partition.replicas}"
            )
        return changed.to_record(topic.topic_id, index)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicLeaderElection(ControllerRequest[int]):
    """Periodic request of the controller itself to elect leaders; answered with the number of
    changes.

    is_balancing: True: preferred replicas in the ISR become leaders; False: partitions without a
    leader get one by unclean election, where their topic allows it.
    """

    is_balancing: bool

    def decide(self, image: MetadataImage, rules: ConfigRules) -> tuple[list[MetadataRecord], int]:
        active = {node.node_id for node in image.live_nodes()}
        records: list[MetadataRecord] = []
        for topic in image.topics.values():
            wanted = [
                (index, partition)
                for index, partition in enumerate(topic.partitions)
                if self._is_wanted(partition)
            ]
            if not wanted:
                continue
            is_unclean = not self.is_balancing and may_be_unclean(image, rules, topic)
            if not (is_unclean or self.is_balancing):
                continue
            minimum = min_insync_replicas(image, rules, topic)
            for index, partition in wanted[: MAX_ELECTIONS_PER_IMBALANCE - len(records)]:
                changed = next_partition(
                    partition,
                    is_active=active.__contains__,
                    min_insync_replicas=minimum,
                    prefers_first=self.is_balancing,
                    is_unclean=is_unclean,
                )
                if changed is not partition:
                    records.append(changed.to_record(topic.topic_id, index))
        return records, len(records)

    def _is_wanted(self, partition: PartitionImage) -> bool:
        if self.is_balancing:
            first = partition.replicas[0]
            return partition.leader not in (first, NO_LEADER) and first in partition.isr
        return partition.leader == NO_LEADER
