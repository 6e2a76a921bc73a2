"""How do replicas of a partition become other ones?"""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from bradbury.cluster.control import controller_state
from bradbury.cluster.control.alter_partition import AlterPartition, Insync, ProposedIsr
from bradbury.cluster.control.reassignment import (
    AlterPartitionReassignments,
    PartitionReassignment,
    begun,
)
from bradbury.cluster.metadata.metadata_image import MetadataImage, PartitionImage
from bradbury.protocol.error_code import ErrorCode
from tests.support.metadata import applied, cluster, create, decide


def reassigned(
    image: MetadataImage, replicas: tuple[int, ...] | None, *, index: int = 0, **options: bool
) -> tuple[MetadataImage, ErrorCode]:
    request = AlterPartitionReassignments(
        topics=(("t", (PartitionReassignment(index, replicas),)),), **options
    )
    records, ((_, (answer,)),) = decide(image, request)
    return applied(image, records), ErrorCode(answer.outcome.code)


def with_isr(image: MetadataImage, *isr: int) -> MetadataImage:
    """The leader has asked for these in-sync replicas."""
    topic = image.topics["t"]
    partition = topic.partitions[0]
    request = AlterPartition(
        node_id=partition.leader,
        broker_epoch=image.nodes[partition.leader].epoch,
        partitions=(
            ProposedIsr(
                topic.topic_id,
                0,
                partition.leader_epoch,
                partition.partition_epoch,
                tuple(Insync(node, image.nodes[node].epoch) for node in isr),
            ),
        ),
    )
    records, (answer,) = decide(image, request)
    assert answer.outcome.code == ErrorCode.NONE, answer.outcome.message
    return applied(image, records)


def partition_of(image: MetadataImage) -> PartitionImage:
    return image.topics["t"].partitions[0]


@pytest.fixture
def image() -> MetadataImage:
    """Four nodes on four machines, and t-0 on the first two."""
    image = cluster("a1", "b1", "c1", "d1")
    return applied(image, create(image, "t", assignments={0: (1, 2)}))


@pytest.mark.parametrize(
    ("replicas", "index", "error"),
    [
        (None, 0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ((1, 2), 0, ErrorCode.NONE),
        ((9,), 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((), 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1,), 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_changes_nothing(
    image: MetadataImage, replicas: tuple[int, ...] | None, index: int, error: ErrorCode
) -> None:
    assert reassigned(image, replicas, index=index) == (image, error)


def test_two_replicas_are_never_put_on_one_machine() -> None:
    image = cluster("a1", "b1")
    image = applied(image, create(image, "t", assignments={0: (1,)}))
    twin = replace(image.nodes[2], machine="a1")
    nodes = {**image.nodes, 2: twin}
    image = replace(image, nodes=nodes)
    assert reassigned(image, (1, 2))[1] is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_another_number_of_replicas_can_be_ruled_out(image: MetadataImage) -> None:
    _, error = reassigned(image, (1, 2, 3), allows_other_factor=False)
    assert error is ErrorCode.INVALID_REPLICATION_FACTOR
    image, error = reassigned(image, (1, 3), allows_other_factor=False)
    assert error is ErrorCode.NONE
    _, error = reassigned(image, (1, 4), allows_other_factor=False)
    assert error is ErrorCode.NONE, "the replica that is on its way does not count"


def test_a_move_is_complete_when_the_new_one_is_in_sync(image: MetadataImage) -> None:
    image, _ = reassigned(image, (3, 1))
    began = partition_of(image)
    assert (began.replicas, began.adding, began.removing) == ((3, 1, 2), (3,), (2,))
    assert (began.isr, began.leader) == ((1, 2), 1)
    image = with_isr(image, 1, 2, 3)
    done = partition_of(image)
    assert (done.replicas, done.adding, done.removing) == ((3, 1), (), ())
    assert (done.isr, done.leader) == ((1, 3), 1)
    assert done.leader_epoch == began.leader_epoch + 1, "the one that is gone may not know it"


def test_asked_for_once_more_it_changes_nothing(image: MetadataImage) -> None:
    """Another partition epoch would refuse what the leader is asking for."""
    image, _ = reassigned(image, (3, 1))
    again, error = reassigned(image, (3, 1))
    assert error == ErrorCode.NONE
    assert partition_of(again) is partition_of(image)


def test_when_the_leader_goes_another_one_leads(image: MetadataImage) -> None:
    image, _ = reassigned(image, (3, 4))
    image = with_isr(image, 1, 2, 3)
    assert partition_of(image).leader == 1, "one of the two is not there yet"
    image = with_isr(image, 1, 2, 3, 4)
    done = partition_of(image)
    assert (done.replicas, done.isr, done.leader) == ((3, 4), (3, 4), 3)


def test_more_and_fewer_replicas(image: MetadataImage) -> None:
    image, _ = reassigned(image, (1, 2, 3))
    image = with_isr(image, 1, 2, 3)
    assert (partition_of(image).replicas, partition_of(image).adding) == ((1, 2, 3), ())
    image, _ = reassigned(image, (2,))
    done = partition_of(image)
    assert (done.replicas, done.isr, done.leader, done.is_reassigned) == ((2,), (2,), 2, False)


def test_removed_replicas_stay_until_all_remaining_ones_are_in_sync(image: MetadataImage) -> None:
    """Else all copies but one would go, where min.insync.replicas has promised two."""
    image, _ = reassigned(image, (1, 2, 3))
    image = with_isr(image, 1, 2, 3)
    image = with_isr(image, 1, 3)
    image, _ = reassigned(image, (1, 2))
    assert partition_of(image).removing == (3,)
    assert partition_of(image).isr == (1, 3)
    image = with_isr(image, 1, 2, 3)
    assert (partition_of(image).replicas, partition_of(image).isr) == ((1, 2), (1, 2))


def test_what_is_given_up_is_as_it_was(image: MetadataImage) -> None:
    before = partition_of(image)
    image, _ = reassigned(image, (3, 4))
    image = with_isr(image, 1, 2, 3)
    image, error = reassigned(image, None)
    after = partition_of(image)
    assert error is ErrorCode.NONE
    assert (after.replicas, after.isr, after.leader) == (before.replicas, (1, 2), 1)
    assert not after.is_reassigned


def test_it_is_not_given_up_while_too_few_of_those_who_stay_have_everything() -> None:
    """Else what was acknowledged under min.insync.replicas=2 would be on one machine alone."""
    image = cluster("a1", "b1", "c1", "d1")
    configs = {"min.insync.replicas": "2"}
    image = applied(image, create(image, "t", assignments={0: (1, 2)}, configs=configs))
    image, _ = reassigned(image, (3, 4, 1))
    image = with_isr(image, 1, 2, 3)
    image = with_isr(image, 1, 3)
    assert reassigned(image, None) == (image, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    image, error = reassigned(image, (1, 2))
    assert (error, partition_of(image).removing) == (ErrorCode.NONE, (3, 4))
    image = with_isr(image, 1, 2, 3)
    assert (partition_of(image).replicas, partition_of(image).isr) == ((1, 2), (1, 2))


def test_eligible_replicas_count_when_it_is_cancelled() -> None:
    image = cluster("a1", "b1", "c1", "d1")
    configs = {"min.insync.replicas": "2"}
    image = applied(image, create(image, "t", assignments={0: (1, 2)}, configs=configs))
    image, _ = reassigned(image, (3, 1))
    image = with_isr(image, 1)
    assert partition_of(image).elr == (2,)
    image, error = reassigned(image, None)
    assert (error, partition_of(image).replicas) == (ErrorCode.NONE, (1, 2))


def test_another_plan_replaces_the_one_in_progress(image: MetadataImage) -> None:
    image, _ = reassigned(image, (3, 1))
    image, _ = reassigned(image, (3, 4))
    now = partition_of(image)
    assert (now.replicas, now.adding, now.removing) == ((3, 4, 1, 2), (3, 4), (1, 2))


def test_a_new_replica_whose_node_dies_is_waited_for(image: MetadataImage) -> None:
    image, _ = reassigned(image, (3, 1))
    image = applied(image, controller_state.fence_node(image, 3, fenced=True))
    assert partition_of(image).is_reassigned
    image = applied(image, controller_state.fence_node(image, 3, fenced=False))
    assert partition_of(with_isr(image, 1, 2, 3)).replicas == (3, 1)


def test_one_of_the_nodes_of_a_plan_has_to_be_in_service(image: MetadataImage) -> None:
    image = applied(image, controller_state.fence_node(image, 4, fenced=True))
    assert reassigned(image, (3, 4))[1] == ErrorCode.NONE
    image = applied(image, controller_state.fence_node(image, 3, fenced=True))
    assert reassigned(image, (3, 4)) == (image, ErrorCode.INVALID_REPLICA_ASSIGNMENT)


@given(
    plans=st.lists(
        st.lists(st.integers(1, 4), min_size=1, max_size=3, unique=True).map(tuple), max_size=5
    )
)
def test_no_plan_takes_away_what_is_in_sync_before_its_own_are(plans: list[tuple]) -> None:
    image = cluster("a1", "b1", "c1", "d1")
    image = applied(image, create(image, "t", assignments={0: (1, 2)}))
    partition = partition_of(image)
    for plan in plans:
        changed = begun(partition, plan)
        assert set(partition.isr) <= set(changed.replicas)
        assert set(changed.adding) <= set(plan) - set(partition.isr)
        assert not set(changed.removing) & set(plan)
        partition = changed
