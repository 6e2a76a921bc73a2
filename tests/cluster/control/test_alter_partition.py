"""A leader asks for other in-sync replicas: what it gets, and what each refusal tells it."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from bradbury.cluster.control import controller_state
from bradbury.cluster.control.alter_partition import (
    AlterPartition,
    Insync,
    PartitionState,
    ProposedIsr,
    Verdict,
    verdict_on,
)
from bradbury.cluster.control.controller_request import DONE, RequestOutcome
from bradbury.cluster.control.partition_control import PREFERRED, UNCLEAN, ElectLeaders
from bradbury.cluster.metadata.metadata_image import NO_LEADER, MetadataImage, PartitionImage
from bradbury.cluster.metadata.metadata_records import TopicRecord
from bradbury.cluster.partition.leader_state import LeaderState
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import StaleBrokerEpoch
from tests.support.metadata import TOPIC_ID, applied, cluster, decide, registration


def replicated() -> MetadataImage:
    """Topic t with one partition on nodes 1, 2 and 3, led by 1."""
    image = cluster("a", "b", "c")
    partition = PartitionImage((1, 2, 3), (1, 2, 3), 1, 0, 0)
    return applied(
        image,
        [
            TopicRecord(topic_id=str(TOPIC_ID), name="t"),
            partition.to_record(TOPIC_ID, 0),
        ],
    )


def ask(image: MetadataImage, *isr: int, **changes: Any) -> tuple[MetadataImage, PartitionState]:
    now = image.topics["t"].partitions[0]
    proposed = ProposedIsr(
        topic_id=TOPIC_ID,
        partition=0,
        leader_epoch=now.leader_epoch,
        partition_epoch=now.partition_epoch,
        isr=tuple(Insync(node, image.nodes[node].epoch) for node in isr),
    )
    node_id = changes.pop("node_id", now.leader)
    request = AlterPartition(
        node_id=node_id,
        broker_epoch=image.nodes[node_id].epoch,
        partitions=(proposed._replace(**changes),),
    )
    records, (answer,) = decide(image, request)
    return applied(image, records), answer


def test_the_isr_becomes_what_the_leader_asks_for() -> None:
    image, answer = ask(replicated(), 1, 3)
    assert answer.outcome.code == ErrorCode.NONE
    assert answer.partition == image.topics["t"].partitions[0]
    assert (answer.partition.isr, answer.partition.partition_epoch) == ((1, 3), 1)
    assert answer.partition.leader_epoch == 0


def test_asking_for_what_is_already_so_changes_nothing() -> None:
    before = replicated()
    after, answer = ask(before, 1, 2, 3)
    assert answer.outcome.code == ErrorCode.NONE
    assert after.offset == before.offset


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic_id": UUID(int=7)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"partition": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"node_id": 2}, ErrorCode.INVALID_REQUEST),
        ({"isr": ()}, ErrorCode.INVALID_REQUEST),
        ({"isr": (Insync(2, -1),)}, ErrorCode.INVALID_REQUEST),
        ({"isr": (Insync(1, -1), Insync(1, -1))}, ErrorCode.INVALID_REQUEST),
        ({"isr": (Insync(1, -1), Insync(9, -1))}, ErrorCode.INVALID_REQUEST),
        ({"isr": (Insync(1, -1), Insync(2, 99))}, ErrorCode.INELIGIBLE_REPLICA),
        ({"is_recovering": True}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_each_refusal_has_its_code_and_changes_nothing(
    changes: dict[str, Any], code: ErrorCode
) -> None:
    before = replicated()
    after, answer = ask(before, 1, 2, **changes)
    assert answer.outcome.code == code, answer.outcome.message
    assert answer.partition is None
    assert after.offset == before.offset


def test_a_node_that_is_not_in_service_joins_no_isr() -> None:
    image, _ = ask(replicated(), 1, 2)
    image = applied(image, controller_state.fence_node(image, 3, fenced=True))
    _, answer = ask(image, 1, 2, 3)
    assert answer.outcome.code == ErrorCode.INELIGIBLE_REPLICA


def test_a_leader_of_a_former_life_is_refused_whatever_it_asks() -> None:
    image = replicated()
    request = AlterPartition(node_id=1, broker_epoch=image.nodes[1].epoch, partitions=())
    _, records = controller_state.register_node(image, registration("a", incarnation="new"))
    image = applied(image, records)
    with pytest.raises(StaleBrokerEpoch):
        decide(image, request)


def test_a_node_that_lost_its_data_waits_outside_until_the_leader_lets_it_in_again() -> None:
    image = replicated()
    request = replace(registration("a", incarnation="new"), has_all_data=False)
    image = applied(image, controller_state.register_node(image, request)[1])
    partition = image.topics["t"].partitions[0]
    assert (partition.leader, partition.isr) == (2, (2, 3))
    image, answer = ask(image, 2, 3, 1)
    assert answer.partition.isr == (2, 3, 1)


def test_the_preferred_leader_is_elected_when_it_is_in_sync() -> None:
    image = replicated()
    image = applied(image, controller_state.fence_node(image, 1, fenced=True))
    image = applied(image, controller_state.fence_node(image, 1, fenced=False))
    elect = ElectLeaders(election_type=PREFERRED, partitions=(("t", (0,)),))
    records, ((_, (outcome,)),) = decide(image, elect)
    assert (records, outcome.outcome.code) == ([], ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    image, _ = ask(image, 2, 3, 1)
    records, ((_, (outcome,)),) = decide(image, elect)
    image = applied(image, records)
    assert outcome.outcome.code == ErrorCode.NONE
    assert image.topics["t"].partitions[0].leader == 1
    _, ((_, (outcome,)),) = decide(image, elect)
    assert outcome.outcome.code == ErrorCode.ELECTION_NOT_NEEDED


def test_an_unclean_election_is_made_only_when_it_is_asked_for() -> None:
    image, _ = ask(replicated(), 1, 2)
    for node in (1, 2):
        image = applied(image, controller_state.fence_node(image, node, fenced=True))
    assert image.topics["t"].partitions[0].leader == NO_LEADER
    elect = ElectLeaders(election_type=UNCLEAN, partitions=None)
    records, ((name, (outcome,)),) = decide(image, elect)
    image = applied(image, records)
    partition = image.topics["t"].partitions[0]
    assert (name, outcome.outcome.code) == ("t", ErrorCode.NONE)
    assert (partition.leader, partition.isr, partition.recovering) == (3, (3,), True)
    image, answer = ask(image, 3)
    assert answer.partition.recovering is False
    assert answer.partition.partition_epoch == partition.partition_epoch + 1


@pytest.mark.parametrize(
    ("code", "partition_epoch", "verdict"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, 7, Verdict.KEEP_ISR),
        (ErrorCode.INELIGIBLE_REPLICA, 8, Verdict.WAIT),
        (ErrorCode.INVALID_UPDATE_VERSION, 7, Verdict.WAIT),
        (ErrorCode.FENCED_LEADER_EPOCH, 7, Verdict.WAIT),
        (ErrorCode.NOT_CONTROLLER, 7, Verdict.RETRY),
        (ErrorCode.REQUEST_TIMED_OUT, 7, Verdict.RETRY),
    ],
)
def test_an_error_is_final_only_if_it_says_so_of_what_was_asked(
    code: ErrorCode, partition_epoch: int, verdict: Verdict
) -> None:
    leader = LeaderState(5, partition_epoch, 0, node_id=1, replicas=(1, 2), isr=(1,))
    proposed = ProposedIsr(UUID(int=1), 0, 5, 7, (Insync(1, -1), Insync(2, 9)))
    assert verdict_on(leader, proposed, PartitionState(RequestOutcome(code, "no"))) is verdict
    assert verdict_on(None, proposed, PartitionState(RequestOutcome(code, "no"))) is Verdict.WAIT


@pytest.mark.parametrize(
    ("leader_epoch", "partition_epoch", "verdict"),
    [(5, 8, Verdict.ADOPT), (5, 7, Verdict.KEEP_ISR), (6, 8, Verdict.WAIT)],
)
def test_an_answer_counts_for_the_epoch_it_speaks_of(
    leader_epoch: int, partition_epoch: int, verdict: Verdict
) -> None:
    leader = LeaderState(5, 7, 0, node_id=1, replicas=(1, 2), isr=(1,))
    proposed = ProposedIsr(UUID(int=1), 0, 5, 7, (Insync(1, -1), Insync(2, 9)))
    partition = PartitionImage((1, 2), (1, 2), 1, leader_epoch, partition_epoch)
    assert verdict_on(leader, proposed, PartitionState(DONE, partition)) is verdict
