"""Reassignment of partitions to other replicas: more, fewer, or on other nodes (KIP-455).

    requested    replicas = the target replicas, then those to remove; see `adding`, `removing`
    under way    the added replicas follow the leader until they are in sync
    complete     with the ISR change that adds the last of them (partition_change)
    cancelled    the added replicas are removed again

The partition has a leader and accepts writes all the time; the rules of the ISR do not change.
Source: PartitionReassignmentReplicas, ReplicationControlManager in apache/kafka; KIP-860.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...protocol.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    KafkaError,
    NoReassignmentInProgress,
)
from ..metadata.metadata_image import MetadataImage, PartitionImage
from ..metadata.metadata_records import MetadataRecord
from ..partition.partition_change import next_partition
from ..partition.replica_placement import check_replicas
from .controller_request import DONE, ConfigRules, ControllerRequest, RequestOutcome
from .partition_control import (
    PartitionOutcome,
    TopicOutcomes,
    min_insync_replicas,
    partition_of,
)
from .topic_control import role_for


class PartitionReassignment(NamedTuple):
    """A reassignment of one partition. replicas None: cancel the one that is under way."""

    partition: int
    replicas: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReassignments(ControllerRequest[TopicOutcomes]):
    """Starts or cancels reassignments; answered with an outcome per partition.

    allows_other_factor: whether a partition may get more or fewer replicas than it has.
    """

    topics: tuple[tuple[str, tuple[PartitionReassignment, ...]], ...]
    allows_other_factor: bool = True

    def decide(
        self, image: MetadataImage, rules: ConfigRules
    ) -> tuple[list[MetadataRecord], TopicOutcomes]:
        records: list[MetadataRecord] = []
        answers = []
        for topic, partitions in self.topics:
            outcomes = []
            for wanted in partitions:
                try:
                    records += self._reassign(image, rules, topic, wanted)
                except KafkaError as error:
                    outcomes.append(PartitionOutcome(wanted.partition, RequestOutcome.of(error)))
                else:
                    outcomes.append(PartitionOutcome(wanted.partition, DONE))
            answers.append((topic, tuple(outcomes)))
        return records, tuple(answers)

    def _reassign(
        self, image: MetadataImage, rules: ConfigRules, name: str, wanted: PartitionReassignment
    ) -> list[MetadataRecord]:
        partition = partition_of(image, name, wanted.partition)
        topic = image.topics[name]
        where = f"{name}-{wanted.partition}"
        if wanted.replicas is None:
            changed = given_up(partition, where, min_insync_replicas(image, rules, topic))
        else:
            self._check(image, name, where, partition, wanted.replicas)
            changed = begun(partition, wanted.replicas)
        active = {node.node_id for node in image.live_nodes()}
        settled = next_partition(
            changed,
            is_active=active.__contains__,
            min_insync_replicas=min_insync_replicas(image, rules, topic),
        )
        if settled is changed and changed is not partition:
            settled = changed.in_next_epoch()
        if settled is partition:
            return []
        if not {*partition.replicas} <= {*settled.replicas} and (
            settled.leader_epoch == partition.leader_epoch
        ):
            # In a new leader epoch, so that a removed replica is not accepted as a follower.
            settled = replace(settled, leader_epoch=settled.leader_epoch + 1)
        return [settled.to_record(topic.topic_id, wanted.partition)]

    def _check(
        self,
        image: MetadataImage,
        name: str,
        where: str,
        partition: PartitionImage,
        replicas: tuple[int, ...],
    ) -> None:
        known = {
            node_id: node for node_id, node in image.nodes.items() if role_for(name) in node.roles
        }
        check_replicas(replicas, known, where)
        factor = len(partition.replicas) - len(partition.adding)
        if not self.allows_other_factor and len(replicas) != factor:
            raise InvalidReplicationFactor(
                f"{where} has {factor} replicas and would have {len(replicas)}"
            )
        if all(image.nodes[node].fenced for node in replicas):  # then none is in the ISR either
            raise InvalidReplicaAssignment(f"{where}: none of the nodes {replicas} is in service")


class OngoingReassignment(NamedTuple):
    topic: str
    number: int
    partition: PartitionImage


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionReassignments(ControllerRequest[tuple[OngoingReassignment, ...]]):
    """Lists reassignments. topics: (name, partitions) to list; None: all. Sent to the controller,
    as a node may not have applied yet a reassignment that it has just forwarded.
    """

    topics: tuple[tuple[str, tuple[int, ...]], ...] | None

    def decide(
        self, image: MetadataImage, rules: ConfigRules
    ) -> tuple[list[MetadataRecord], tuple[OngoingReassignment, ...]]:
        del rules
        asked: Iterable[tuple[str, Iterable[int]]] = self.topics or ()
        if self.topics is None:
            asked = ((name, range(len(each.partitions))) for name, each in image.topics.items())
        return [], tuple(
            OngoingReassignment(name, index, partition)
            for name, indexes in asked
            for index in indexes
            if (partition := image.partition(name, index)) is not None and partition.is_reassigned
        )


def begun(partition: PartitionImage, wanted: tuple[int, ...]) -> PartitionImage:
    """The partition with a reassignment to `wanted` started: new replicas are being added, others
    are to be removed.
    """
    removing = tuple(node for node in partition.replicas if node not in wanted)
    settled = {*partition.replicas} - {*partition.adding}
    changed = replace(
        partition,
        replicas=wanted + removing,
        adding=tuple(node for node in wanted if node not in settled),
        removing=removing,
    )
    # The same one is under way already: a new partition epoch would only make the controller refuse
    # the leader's ISR changes.
    return partition if changed == partition else changed


def given_up(partition: PartitionImage, where: str, min_insync: int) -> PartitionImage:
    """The partition with its reassignment cancelled, without the replicas that were being added.

    The ISR and the ELR have all committed records. If too few of their replicas would stay, these
    records would be on fewer than `min_insync` replicas, though they must survive the loss of
    `min_insync` - 1. Apache Kafka cancels in that case, too: it requires only one to stay in sync.

    Raises:
        NoReassignmentInProgress: there is nothing to cancel.
        InvalidReplicaAssignment: too few of the replicas that would stay have all committed
            records.
    """
    if not partition.is_reassigned:
        raise NoReassignmentInProgress(f"no reassignment of {where} is under way")
    isr = tuple(node for node in partition.isr if node not in partition.adding)
    if not isr:
        raise InvalidReplicaAssignment(
            f"{where}: only the replicas being added are in sync, so it cannot be cancelled"
        )
    replicas = tuple(node for node in partition.replicas if node not in partition.adding)
    elr = tuple(node for node in partition.elr if node not in partition.adding)
    have_all, had_all = {*isr, *elr}, {*partition.isr, *partition.elr}
    if len(have_all) < min(min_insync, len(replicas)) and have_all != had_all:
        raise InvalidReplicaAssignment(
            f"{where}: of the replicas {replicas} that would stay only {sorted(have_all)} have all "
            f"that is committed, and min.insync.replicas is {min_insync}: let it continue, or ask "
            "for these replicas instead, which waits for them"
        )
    return replace(
        partition,
        replicas=replicas,
        isr=isr,
        elr=elr,
        adding=(),
        removing=(),
    )
