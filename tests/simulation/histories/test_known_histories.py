"""Histories in which Kafka once lost or forked records, and Raft would: do we keep them?

Each is told step by step, with the mistake planted, too: then the history must go wrong, or it
would prove nothing.
"""

import contextlib
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from bradbury.cluster.control import controller_state
from bradbury.cluster.control.alter_partition import AlterPartition, Insync, ProposedIsr
from bradbury.cluster.control.controller_request import DONE
from bradbury.cluster.control.controller_state import NodeRegistration
from bradbury.cluster.metadata.metadata_image import NO_LEADER, MetadataImage, PartitionImage
from bradbury.cluster.metadata.metadata_records import (
    ConfigRecord,
    RegisterNodeRecord,
    TopicRecord,
)
from bradbury.cluster.partition.leader_state import FollowerFetch
from bradbury.cluster.quorum.voter import Candidate
from bradbury.controller import log_replication
from bradbury.controller.controller_effects import AskVoter, Instant
from bradbury.controller.metadata_leader import MetadataLeader
from bradbury.controller.quorum_times import QuorumTimes
from bradbury.controller.voter_requests import FormatVoter
from bradbury.handlers.ports.context import RequestContext
from bradbury.handlers.records import fetch_reading
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import FencedLeaderEpoch, NotLeaderOrFollower, UnknownLeaderEpoch
from bradbury.protocol.records.record_batch import stamp
from bradbury.protocol.records.records import encode_records
from bradbury.tests.simulation.planted.planted_faults import planted
from bradbury.tests.simulation.world.controllers.simulated_voter import ask_at_once, open_voter
from bradbury.tests.simulation.world.simulated_bench import PARTITION, Bench
from bradbury.tests.simulation.world.simulated_cluster import TOPIC, TOPIC_ID
from bradbury.tests.support.storage.memory_file_system import MemoryFileSystem


def goes_wrong_with(fault: str, history: Callable[[], None]) -> bool:
    with planted(fault), contextlib.suppress(AssertionError):
        history()
        return False
    return True


# --- KIP-101: where to truncate -------------------------------------------------------------------


def a_follower_restarts_and_leads() -> None:
    """The leader has committed; the follower does not know yet, restarts, and must lead."""
    bench = Bench()
    bench.separate({1}, {3})
    bench.decide(1, 1, (1, 2))
    bench.run()
    answers = bench.append(1)
    for _ in range(100):
        if not answers:
            bench.run(1)
    assert bench.log(2).high_watermark == 0, "it has the record, and does not know its fate"
    bench.separate({1}, {2, 3})
    bench.restart(2)
    bench.tell(2)
    bench.run()
    bench.decide(2, 2, (2,), to=(2, 3))
    bench.run()
    assert bench.epochs(2) == [1], "an acknowledged record is gone"
    assert bench.epochs(3) == [1]


def test_kip_101_a_follower_that_restarts_keeps_what_it_does_not_know_to_be_committed() -> None:
    a_follower_restarts_and_leads()


def test_kip_101_truncating_to_the_high_watermark_would_lose_it() -> None:
    fault = "followers truncate to the high watermark"
    assert goes_wrong_with(fault, a_follower_restarts_and_leads)


def a_former_leader_comes_back() -> None:
    """It has a record that nobody else got; another one was written in its place."""
    bench = Bench()
    bench.decide(1, 1, (1, 2, 3))
    bench.run()
    bench.append(1, 2)
    bench.run()
    bench.separate({1}, {2, 3})
    bench.append(1)
    bench.decide(2, 2, (2, 3), to=(2, 3))
    bench.append(2, 3)
    bench.run()
    bench.join()
    bench.tell(1)
    bench.run()
    assert bench.epochs(1) == [1, 1, 2, 2, 2]
    assert bench.records(1) == bench.records(2) == bench.records(3)


def test_kip_101_a_former_leader_drops_what_nobody_else_has() -> None:
    a_former_leader_comes_back()


def test_kip_101_logs_would_diverge_forever_without_epochs() -> None:
    assert goes_wrong_with("followers do not truncate", a_former_leader_comes_back)


# --- KIP-279: two elections within one fetch ------------------------------------------------------


def two_quick_elections() -> None:
    """1 writes alone in epoch 1, 2 alone in epoch 2; then 1 leads again, in epoch 3."""
    bench = Bench()
    bench.decide(1, 1, (1, 2, 3))
    bench.run()
    bench.append(1, 2)
    bench.run()
    bench.separate({1}, {2, 3})
    bench.separate({2}, {3})
    bench.append(1, 3)
    bench.decide(2, 2, (1, 2, 3), to=(2,))
    bench.append(2, 4)
    bench.decide(1, 3, (1, 2, 3), to=(1,))
    bench.append(1, 2)
    assert (bench.epochs(1), bench.epochs(2)) == ([1, 1, 1, 1, 1, 3, 3], [1, 1, 2, 2, 2, 2])
    bench.join()
    bench.tell(2, 3)
    bench.run()
    assert bench.epochs(2) == [1, 1, 1, 1, 1, 3, 3]
    assert bench.records(2) == bench.records(1) == bench.records(3)


def test_kip_279_the_own_end_of_the_common_epoch_counts_too() -> None:
    two_quick_elections()


def test_kip_279_the_leaders_end_alone_would_leave_a_forked_log() -> None:
    fault = "the own end of an epoch is not looked at"
    assert goes_wrong_with(fault, two_quick_elections)


# --- KIP-320: who speaks of another epoch is not listened to --------------------------------------


def fetches_of_other_epochs() -> None:
    bench = Bench()
    bench.decide(1, 1, (1, 2, 3))
    bench.run()
    bench.append(1, 2)
    bench.run()
    bench.decide(1, 2, (1, 2, 3), to=(1,))
    node = bench.nodes[1]
    with pytest.raises(FencedLeaderEpoch):
        node.partitions.leader_of(*PARTITION, current_leader_epoch=1)
    with pytest.raises(UnknownLeaderEpoch):
        node.partitions.leader_of(*PARTITION, current_leader_epoch=3)


def test_kip_320_a_fetch_of_another_leader_epoch_is_refused() -> None:
    fetches_of_other_epochs()
    with planted("an old leader epoch may fetch"), pytest.raises(pytest.fail.Exception):
        fetches_of_other_epochs()


def a_fetch_from_before_the_restart() -> None:
    """Sent before node 2 lost its disk; it arrives when the leader knows the new life."""
    bench = Bench()
    bench.decide(1, 1, (1, 2))
    bench.run()
    bench.append(1, 2)
    bench.run()
    former = bench.nodes[2].broker_epoch
    bench.register(2, to=(1,))
    with pytest.raises(NotLeaderOrFollower):
        check(bench, former)
    check(bench, bench.image.nodes[2].epoch)


def check(bench: Bench, broker_epoch: int) -> None:
    context = RequestContext(bench.nodes[1], 17, "follower", "n2", 0)
    fetch_reading._check_broker_epoch(2, broker_epoch, context)


def test_kip_903_a_fetch_from_a_former_life_is_refused() -> None:
    a_fetch_from_before_the_restart()
    with planted("an old broker epoch may fetch"), pytest.raises(pytest.fail.Exception):
        a_fetch_from_before_the_restart()


def a_parted_log_asks() -> None:
    """Node 2's last records are of an epoch that the leader never had: nothing is acknowledged."""
    bench = Bench()
    bench.separate({1}, {2, 3})
    bench.decide(1, 3, (1, 2))
    answers = bench.append(1, 2)
    fetch = FollowerFetch(2, bench.nodes[1].broker_epoch, 2, 2)
    assert bench.replica(1).hosted.on_follower_fetch(fetch) is not None
    assert answers == []
    assert bench.log(1).high_watermark == 0


def test_kip_595_a_fetch_of_a_log_that_parts_from_the_leaders_acknowledges_nothing() -> None:
    a_parted_log_asks()
    assert goes_wrong_with("a parted log counts as having all", a_parted_log_asks)


# --- the controller's side ------------------------------------------------------------------------


def image_of(state: PartitionImage, *, min_insync: int = 2) -> MetadataImage:
    nodes = [
        RegisterNodeRecord(
            node_id=n,
            directory_id=f"d{n}",
            incarnation=f"{n}",
            roles=("partition",),
            host="",
            port=0,
            rack=None,
            epoch=n,
        )
        for n in (1, 2, 3)
    ]
    topic = TopicRecord(topic_id=str(TOPIC_ID), name=TOPIC)
    config = ConfigRecord(
        resource="topic", name=TOPIC, key="min.insync.replicas", value=str(min_insync)
    )
    return MetadataImage().apply([*nodes, topic, config, state.to_record(TOPIC_ID, 0)], offset=10)


def partition(image: MetadataImage) -> PartitionImage:
    found = image.partition(TOPIC, 0)
    assert found is not None
    return found


def registered(image: MetadataImage, node_id: int, *, has_all_data: bool) -> MetadataImage:
    request = NodeRegistration(
        directory_id=f"d{node_id}",
        incarnation=f"again {image.offset}",
        roles=("partition",),
        host="",
        port=0,
        rack=None,
        has_all_data=has_all_data,
    )
    _, records = controller_state.register_node(image, request)
    return image.apply(records, offset=image.offset + len(records))


def fenced(image: MetadataImage, node_id: int) -> MetadataImage:
    records = controller_state.fence_node(image, node_id, fenced=True)
    return image.apply(records, offset=image.offset + len(records))


def expand(image: MetadataImage, proposed: PartitionImage, broker_epoch: int) -> int:
    """Node 1 asks to take node 3 into the ISR; the error code of the answer."""
    isr = (Insync(1, -1), Insync(2, 2), Insync(3, broker_epoch))
    request = AlterPartition(
        node_id=1,
        broker_epoch=image.nodes[1].epoch,
        partitions=(
            ProposedIsr(
                UUID(int=TOPIC_ID.int),
                0,
                proposed.leader_epoch,
                proposed.partition_epoch,
                isr,
            ),
        ),
    )
    [answer] = request.decide(image, None)[1]  # type: ignore[arg-type]  # the topic says it itself
    return answer.outcome.code


@pytest.mark.parametrize("order", ["register, ask", "ask, register"])
def test_kip_903_a_replica_that_lost_its_disk_is_not_in_sync_whenever_it_was_proposed(
    order: str,
) -> None:
    image = image_of(PartitionImage((1, 2, 3), (1, 2), 1, 5, 7))
    proposed = partition(image)
    if order == "register, ask":
        image = registered(image, 3, has_all_data=False)
        assert expand(image, proposed, 3) == ErrorCode.INELIGIBLE_REPLICA
        with planted("a former life may join"):
            assert expand(image, proposed, 3) == DONE.code, "as before KIP-903"
        return
    image = image_of(PartitionImage((1, 2, 3), (1, 2, 3), 1, 5, 8))  # the question was answered
    image = registered(image, 3, has_all_data=False)
    assert partition(image).isr == (1, 2)


def test_kip_966_the_last_in_sync_that_lost_its_data_does_not_lead() -> None:
    image = image_of(PartitionImage((1, 2, 3), (1, 2, 3), 1, 5, 7))
    image = fenced(fenced(image, 3), 2)
    assert (partition(image).isr, partition(image).elr) == ((1,), (2,))
    image = registered(image, 1, has_all_data=False)
    state = partition(image)
    assert (state.isr, state.elr, state.leader) == ((), (2,), NO_LEADER)
    image = registered(image, 2, has_all_data=True)
    assert (partition(image).leader, partition(image).isr) == (2, (2,))
    assert not partition(image).recovering


def test_kip_966_the_high_watermark_stands_still_while_too_few_are_in_sync() -> None:
    def history() -> None:
        bench = Bench(min_insync=2)
        bench.decide(1, 1, (1, 2, 3))
        bench.run()
        bench.append(1)
        bench.run()
        bench.separate({1}, {2, 3})
        bench.append(1)
        bench.decide(1, 1, (1,), to=(1,))
        assert bench.log(1).high_watermark == 1

    history()
    assert goes_wrong_with("high watermark below min insync", history)


# --- Raft, figure 8 -------------------------------------------------------------------------------

NOW = Instant(0, 0)


class ScriptedLeader:
    """A controller's step, whose requests arrive at whom the history says, and at nobody else."""

    def __init__(self, epoch: int, holders: str, voters: dict[str, Any]) -> None:
        self._voters = voters
        self._effects: list[Any] = []
        me = Candidate(epoch=epoch, owner=str(epoch))
        self._step = MetadataLeader(me, tuple(voters), self._effects, QuorumTimes())
        self._step.lead({name: name for name in holders})
        self._deliver(holders, lambda: self._step.adopted is not None)
        self.adopted = self._step.batches_from(0)
        batch = encode_records([(0, None, b"%d" % epoch, ())])
        stamp(batch, base_offset=len(self.adopted), leader_epoch=epoch)
        self._step.append(bytes(batch), 1, NOW)

    @property
    def committed(self) -> list[bytes]:
        return self._step.batches_from(0)[: self._step.committed]

    def bring(self, to: str, *, end: int) -> None:
        """The log up to there."""
        for name in to:
            self._deliver(name, lambda name=name: self._step.acknowledged.get(name) == end)

    def _deliver(self, to: str, is_enough: Callable[[], bool]) -> None:
        while not is_enough():
            effect = next(
                each for each in self._effects if isinstance(each, AskVoter) and each.voter in to
            )
            self._effects.remove(effect)
            effect.then(ask_at_once(*self._voters[effect.voter], effect.request), NOW)


def figure_8() -> None:
    """An entry of epoch 2 reaches a majority in epoch 4, and is overwritten in epoch 5."""
    voters = {name: open_voter(MemoryFileSystem(), name, name) for name in "abcde"}
    for voter in voters.values():
        ask_at_once(*voter, FormatVoter("c", tuple(voters)))
    ScriptedLeader(1, "abcde", voters).bring("abcde", end=1)
    ScriptedLeader(2, "abc", voters).bring("ab", end=2)
    ScriptedLeader(3, "cde", voters).bring("e", end=2)
    fourth = ScriptedLeader(4, "abc", voters)
    fourth.bring("abc", end=2)  # the entry of epoch 2 is on a majority now
    fifth = ScriptedLeader(5, "cde", voters)
    assert fifth.adopted[: len(fourth.committed)] == fourth.committed, "it is overwritten"
    assert len(fourth.committed) < 2, "an entry of a former epoch was committed by counting"


def test_raft_figure_8_an_entry_of_a_former_epoch_is_not_committed_by_counting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_replication, "MOST_BYTES", 1)  # an entry at a time
    figure_8()
    assert goes_wrong_with("entries of former epochs are counted", figure_8)
