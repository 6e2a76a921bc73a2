"""AlterPartition: a leader proposes an ISR, and the controller accepts or refuses it.

From the request to the response the leader uses the maximal ISR (the current and the proposed one
together), so every ISR that may result has all acknowledged records. An error tells the leader what
to do: wait for newer metadata (fenced, version), keep the old ISR (ineligible), or retry (others).
Source: validateAlterPartitionData in apache/kafka ReplicationControlManager.java; KIP-497, KIP-841,
KIP-903.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final, NamedTuple
from uuid import UUID

from ...protocol.error_code import ErrorCode
from ...protocol.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    NotController,
    StaleBrokerEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ..metadata.metadata_image import MetadataImage, PartitionImage
from ..metadata.metadata_records import MetadataRecord
from ..partition.leader_state import LeaderState
from ..partition.partition_change import next_partition
from .controller_request import DONE, ConfigRules, ControllerRequest, RequestOutcome
from .partition_control import min_insync_replicas

ANY_EPOCH: Final = -1


class Insync(NamedTuple):
    """A replica in a proposed ISR, with the broker epoch it fetches with; ANY_EPOCH from versions
    without one.
    """

    node_id: int
    broker_epoch: int


class ProposedIsr(NamedTuple):
    topic_id: UUID
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[Insync, ...]
    is_recovering: bool = False


class PartitionState(NamedTuple):
    """Answer for one partition: the outcome, and the current partition if the outcome is DONE."""

    outcome: RequestOutcome
    partition: PartitionImage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartition(ControllerRequest[tuple[PartitionState, ...]]):
    """Request of a leader to change ISRs; answered for every partition, in order.

    Raises StaleBrokerEpoch for all: the asking node has been registered again.
    """

    # The leader goes back to the ISR that it knows; another controller may have changed it.
    needs_confirmation: ClassVar[bool] = True
    node_id: int
    broker_epoch: int
    partitions: tuple[ProposedIsr, ...]

    def decide(
        self, image: MetadataImage, rules: ConfigRules
    ) -> tuple[list[MetadataRecord], tuple[PartitionState, ...]]:
        node = image.nodes.get(self.node_id)
        if node is None or node.epoch != self.broker_epoch:
            current = "not registered" if node is None else f"current is {node.epoch}"
            raise StaleBrokerEpoch(
                f"node {self.node_id}: broker epoch {self.broker_epoch} is stale, {current}"
            )
        records: list[MetadataRecord] = []
        answers = []
        for proposed in self.partitions:
            try:
                changed, is_new = self._change(image, rules, proposed)
            except KafkaError as error:
                answers.append(PartitionState(RequestOutcome.of(error)))
                continue
            if is_new:
                records.append(changed.to_record(proposed.topic_id, proposed.partition))
            answers.append(PartitionState(DONE, changed))
        return records, tuple(answers)

    def _change(
        self, image: MetadataImage, rules: ConfigRules, proposed: ProposedIsr
    ) -> tuple[PartitionImage, bool]:
        topic = image.topic_by_id(proposed.topic_id)
        if topic is None:
            raise UnknownTopicId(f"there is no topic {proposed.topic_id}")
        if not 0 <= proposed.partition < len(topic.partitions):
            raise UnknownTopicOrPartition(f"there is no {topic.name}-{proposed.partition}")
        partition = topic.partitions[proposed.partition]
        where = f"{topic.name}-{proposed.partition}"
        _check_epochs(partition, proposed, where)
        if partition.leader != self.node_id:
            raise InvalidRequest(f"{where} is led by node {partition.leader}")
        if proposed.partition_epoch < partition.partition_epoch:
            raise InvalidUpdateVersion(
                f"{where} is in partition epoch {partition.partition_epoch}, "
                f"not {proposed.partition_epoch}"
            )
        isr = tuple(each.node_id for each in proposed.isr)
        if len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas):
            raise InvalidRequest(
                f"{where}: ISR {isr} is not a subset of its replicas {partition.replicas}"
            )
        if partition.leader not in isr:
            raise InvalidRequest(f"{where}: leader {partition.leader} is not in the ISR {isr}")
        if proposed.is_recovering and (len(isr) > 1 or not partition.recovering):
            raise InvalidRequest(f"{where}: only a leader alone in the ISR can stay recovering")
        _check_eligible(image, proposed, where)
        active = {node.node_id for node in image.live_nodes()}
        settled = partition.with_recovering(recovering=proposed.is_recovering)
        changed = next_partition(
            settled,
            is_active=active.__contains__,
            min_insync_replicas=min_insync_replicas(image, rules, topic),
            isr=isr,
        )
        if changed is settled and settled is not partition:
            changed = settled.in_next_epoch()
        return changed, changed is not partition


def _check_epochs(partition: PartitionImage, proposed: ProposedIsr, where: str) -> None:
    if (
        proposed.leader_epoch > partition.leader_epoch
        or proposed.partition_epoch > partition.partition_epoch
    ):
        # The leader knows a newer controller's decision: this one is behind.
        raise NotController(f"{where}: this controller does not know the leader's epoch yet")
    if proposed.leader_epoch < partition.leader_epoch:
        raise FencedLeaderEpoch(
            f"{where}: leader epoch {proposed.leader_epoch} is stale, "
            f"current is {partition.leader_epoch}"
        )


def _check_eligible(image: MetadataImage, proposed: ProposedIsr, where: str) -> None:
    """Raise IneligibleReplica if the ISR has a fenced node, or one that restarted since the leader
    learned of it (KIP-903).
    """
    for node_id, broker_epoch in proposed.isr:
        node = image.nodes.get(node_id)
        if node is None or node.fenced:
            raise IneligibleReplica(f"{where}: node {node_id} is not in service")
        if broker_epoch not in (ANY_EPOCH, node.epoch):
            raise IneligibleReplica(
                f"{where}: broker epoch {broker_epoch} of node {node_id} is stale, "
                f"current is {node.epoch}"
            )


# Final rejection: the controller's ISR may still be the one from before the proposal.
REFUSED: Final = (
    ErrorCode.INELIGIBLE_REPLICA,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
)
# Obsolete: newer metadata that is on its way to the leader has the current ISR.
SUPERSEDED: Final = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class Verdict(Enum):
    """Reaction of a leader to the answer to its proposal."""

    ADOPT = "the ISR is what the answer says"
    KEEP_ISR = "the ISR stays what it was"
    WAIT = "the proposal is obsolete, or newer metadata will decide"
    RETRY = "the outcome is unknown: send the same proposal again"


def verdict_on(
    leader: LeaderState | None, proposed: ProposedIsr, answer: PartitionState
) -> Verdict:
    """Reaction to an answer. `leader`: the leader's state when the answer arrives; None: it no
    longer leads.
    """
    if leader is None or leader.leader_epoch != proposed.leader_epoch:
        return Verdict.WAIT
    if answer.outcome == DONE and answer.partition is not None:
        if answer.partition.partition_epoch <= leader.partition_epoch:
            return Verdict.KEEP_ISR  # it has changed nothing
        if answer.partition.leader_epoch == leader.leader_epoch:
            return Verdict.ADOPT
        return Verdict.WAIT
    if answer.outcome.code in REFUSED:
        is_same = leader.partition_epoch == proposed.partition_epoch
        return Verdict.KEEP_ISR if is_same else Verdict.WAIT
    return Verdict.WAIT if answer.outcome.code in SUPERSEDED else Verdict.RETRY
