"""What does a node hand over before its machine ends, in which order, and until when?

The step alone: the test answers for the controller, and says what time it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from bradbury.cluster.control.reassignment import ListPartitionReassignments
from bradbury.cluster.control.rebalance import Rebalance
from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.cluster.metadata.metadata_records import (
    ClusterRecord,
    FenceNodeRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterNodeRecord,
    TopicRecord,
)
from bradbury.cluster.quorum.voter_change import VoterChange
from bradbury.controller.controller_effects import (
    AskController,
    CloseNode,
    EndProcess,
    HandOver,
    Instant,
)
from bradbury.controller.node.node_departure import DeparturePhase, DepartureTimes, NodeDeparture
from bradbury.protocol.errors import NotController

TIMES = DepartureTimes(retry=10, hand_over=100, vote=200, longest=10_000, voter=50)
TOPIC_ID = str(UUID(int=1))


class Machine:
    """Node 1, a broker on m1, with nodes 2 to 4 on machines of their own; node 1 to 3 vote."""

    def __init__(self, *, is_broker: bool = True, moves_replicas: bool = True) -> None:
        self.now_ms = 0
        self.effects: list[Any] = []
        self.image = MetadataImage()
        self.apply(
            *(self.node(number, f"m{number}") for number in (1, 2, 3, 4)),
            ClusterRecord(cluster_id="c", voters=("d1", "d2", "d3")),
            TopicRecord(topic_id=TOPIC_ID, name="t"),
            self.partition(1, 2, 3),
        )
        self.step = NodeDeparture(
            "m1",
            self.effects,
            node_id=lambda: 1,
            image=lambda: self.image,
            is_broker=is_broker,
            moves_replicas=moves_replicas,
            times=TIMES,
        )

    @staticmethod
    def node(node_id: int, machine: str) -> RegisterNodeRecord:
        return RegisterNodeRecord(
            node_id=node_id,
            directory_id=f"d{node_id}",
            metadata_directory_id=f"d{node_id}",
            incarnation=f"{node_id}",
            roles=("broker", "partition"),
            host="h",
            port=node_id,
            rack=None,
            machine=machine,
            epoch=1,
        )

    @staticmethod
    def partition(*replicas: int) -> PartitionRecord:
        return PartitionRecord(
            topic_id=TOPIC_ID,
            partition=0,
            replicas=replicas,
            isr=replicas,
            leader=replicas[0],
            leader_epoch=0,
            partition_epoch=len(replicas),
        )

    def apply(self, *records: MetadataRecord) -> None:
        self.image = self.image.apply(records, offset=self.image.offset + len(records))

    def vote(self, *voters: str) -> None:
        self.apply(ClusterRecord(cluster_id="c", voters=voters))

    @property
    def now(self) -> Instant:
        return Instant(self.now_ms, self.now_ms)

    def drain(self, left_ms: int | None = None, *leaving: str, is_serving: bool = True) -> None:
        self.step.on_notice(
            left_ms, is_serving=is_serving, now=self.now, leaving=frozenset(leaving)
        )

    def pass_time(self, ms: int) -> None:
        """Tick by tick."""
        until_ms = self.now_ms + ms
        while (next_ms := self.step.next_deadline_ms) is not None and next_ms <= until_ms:
            self.now_ms = max(self.now_ms, next_ms)
            self.step.on_tick(self.now)
            if self.step.next_deadline_ms == next_ms:
                break
        self.now_ms = until_ms

    def take(self) -> Any:
        """The one effect there is: of a question to the controller, the question."""
        [effect] = self.effects
        return getattr(effect, "call", effect)

    def answer(self, result: Any) -> None:
        effect = self.effects.pop(0)
        self.step.on_done(effect, result, self.now)

    def answer_vote(self) -> None:
        """The vote goes to node 4."""
        assert self.take().change == VoterChange(is_addition=True, node_id=4, is_repeated=True)
        self.answer(None)
        self.vote("d1", "d2", "d3", "d4")
        assert self.take().change == VoterChange(is_addition=False, node_id=1, is_repeated=True)
        self.answer(None)
        self.vote("d2", "d3", "d4")


def test_the_vote_goes_first_then_replicas_then_leadership_then_it_closes() -> None:
    machine = Machine()
    machine.drain()
    machine.answer_vote()
    assert machine.take().request == Rebalance(leave="m1")
    machine.answer(("a move",))
    assert machine.effects == []
    machine.apply(machine.partition(4, 2, 3))
    machine.pass_time(TIMES.retry)
    assert machine.step.has_left_nothing
    assert isinstance(machine.take(), HandOver)
    machine.answer(result=True)
    assert isinstance(machine.take(), CloseNode)
    machine.answer(None)
    assert isinstance(machine.take(), EndProcess)


def test_a_node_whose_machine_comes_back_only_hands_over() -> None:
    machine = Machine(moves_replicas=False)
    machine.drain(5_000)
    assert isinstance(machine.take(), HandOver)
    assert not machine.step.has_left_nothing


def test_a_node_that_does_not_serve_has_nothing_to_hand_over() -> None:
    machine = Machine()
    machine.drain(5_000, is_serving=False)
    assert isinstance(machine.take(), EndProcess)


def test_replicas_that_no_other_machine_can_take_are_not_waited_for() -> None:
    machine = Machine()
    machine.drain()
    machine.answer_vote()
    machine.answer(())
    assert isinstance(machine.take().request, ListPartitionReassignments)
    machine.answer(())
    assert isinstance(machine.take(), HandOver)
    assert not machine.step.has_left_nothing


def test_machines_that_are_drained_at_once_give_each_other_neither_a_vote_nor_replicas() -> None:
    machine = Machine()
    machine.drain(1_000, "m1", "m4")
    leave = machine.take().request
    assert leave == Rebalance(leave="m1", leaving=frozenset({"m4"})), "m4 alone could have voted"
    machine.answer(())
    assert isinstance(machine.take().request, ListPartitionReassignments)
    machine.answer(())
    assert machine.effects == [], "others may join in the place of those that go"
    machine.drain(1_000, "m4", "m3")
    machine.pass_time(TIMES.retry)
    assert machine.take().request.leaving == {"m3", "m4"}
    machine.effects.clear()  # the controller does not answer
    machine.pass_time(1_000 - TIMES.hand_over - machine.now_ms)
    assert isinstance(machine.take(), HandOver)


@pytest.mark.parametrize("answer", [NotController("none"), OSError("lost")])
def test_whatever_the_controller_says_it_is_asked_again(answer: Exception) -> None:
    machine = Machine()
    machine.drain()
    machine.answer(answer)
    assert machine.effects == []
    machine.pass_time(TIMES.retry)
    machine.answer_vote()


def test_the_last_of_a_deadline_is_kept_for_the_hand_over() -> None:
    machine = Machine()
    machine.drain(1_000)
    machine.answer_vote()
    machine.answer(("a move",))
    machine.pass_time(TIMES.retry)
    machine.effects.clear()  # the controller does not answer
    machine.pass_time(1_000 - TIMES.hand_over - machine.now_ms)
    assert isinstance(machine.take(), HandOver)
    machine.answer(result=False)
    machine.pass_time(TIMES.retry)
    machine.effects.clear()  # nobody answers
    machine.pass_time(1_000 - machine.now_ms)
    assert isinstance(machine.take(), CloseNode), "the deadline has come"


def test_however_late_the_notice_the_controller_is_asked_once() -> None:
    machine = Machine()
    machine.drain(0)
    assert isinstance(machine.take(), HandOver)
    machine.pass_time(TIMES.retry - 1)
    assert machine.step.phase is DeparturePhase.HANDS_OVER
    machine.effects.clear()
    machine.pass_time(1)
    assert isinstance(machine.take(), CloseNode)


def test_where_the_vote_cannot_be_passed_on_replicas_move_and_it_is_tried_again() -> None:
    machine = Machine()
    machine.drain(10_000)
    machine.effects.clear()  # the others that vote are not there
    machine.pass_time(TIMES.vote)
    assert machine.take().request == Rebalance(leave="m1")
    machine.answer(("a move",))
    machine.apply(machine.partition(4, 2, 3))
    machine.pass_time(TIMES.retry)
    machine.answer_vote()
    machine.pass_time(TIMES.retry)  # the image shows it
    assert isinstance(machine.take(), HandOver)
    assert machine.step.has_left_nothing


def test_a_vote_that_nobody_can_take_is_not_waited_for() -> None:
    machine = Machine()
    machine.vote("d1", "d2", "d3", "d4")
    machine.apply(machine.partition(4, 2, 3))
    machine.drain()
    assert isinstance(machine.take(), HandOver)
    assert not machine.step.has_left_nothing


def test_a_node_that_was_not_closed_cleanly_says_so_and_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = Machine(moves_replicas=False)
    machine.drain(5_000)
    machine.answer(result=True)
    machine.answer(OSError("the disk is gone"))
    assert isinstance(machine.take(), EndProcess)
    assert [str(one.exc_info and one.exc_info[1]) for one in caplog.records] == ["the disk is gone"]


def test_a_new_voter_that_dies_before_it_votes_is_replaced() -> None:
    machine = Machine()
    machine.apply(machine.node(5, "m5"))
    machine.drain()
    machine.answer(NotController("none"))
    machine.apply(FenceNodeRecord(node_id=4, epoch=1, fenced=True))
    machine.pass_time(TIMES.retry)
    assert machine.take().change.node_id == 5


def test_a_vote_that_another_drained_machine_gives_back_is_passed_on_again() -> None:
    machine = Machine()
    machine.drain()
    machine.answer_vote()
    machine.answer(("a move",))
    machine.pass_time(TIMES.retry)  # it sees that it votes no more
    machine.answer(("a move",))
    machine.apply(machine.node(5, "m5"), machine.partition(4, 2, 3))
    machine.vote("d1", "d3", "d4")
    machine.pass_time(TIMES.retry)
    assert machine.take().change == VoterChange(is_addition=True, node_id=2, is_repeated=True)


def test_an_image_that_is_late_is_waited_for_and_no_second_voter_is_added() -> None:
    machine = Machine()
    machine.apply(machine.node(5, "m5"), machine.partition(4, 2, 3))
    machine.drain()
    machine.answer(None)
    machine.answer(None)  # the image shows neither change yet
    assert machine.effects == []
    machine.pass_time(TIMES.retry)
    assert machine.effects == []
    machine.vote("d2", "d3", "d4")
    machine.pass_time(TIMES.retry)
    assert isinstance(machine.take(), HandOver)
    assert machine.step.has_left_nothing


def test_what_is_withdrawn_stops_and_may_begin_again() -> None:
    machine = Machine()
    machine.drain()
    machine.answer_vote()
    machine.step.on_withdrawn(machine.now)
    assert machine.step.phase is DeparturePhase.STAYS
    machine.answer(("a move",))
    machine.pass_time(20_000)
    assert machine.effects == []
    machine.drain(500)
    assert machine.take().request == Rebalance(leave="m1")


def test_a_change_of_voters_that_was_begun_is_finished_when_the_drain_is_withdrawn() -> None:
    machine = Machine()
    machine.drain()
    machine.step.on_withdrawn(machine.now)
    machine.answer_vote()
    assert (machine.step.phase, machine.effects) == (DeparturePhase.STAYS, [])


def test_a_node_that_hands_over_goes_on_though_the_drain_is_withdrawn() -> None:
    machine = Machine(moves_replicas=False)
    machine.drain()
    machine.step.on_withdrawn(machine.now)
    machine.answer(result=True)
    assert isinstance(machine.take(), CloseNode)


def siblings(machine: Machine, *, are_fenced: bool) -> None:
    records: Sequence[MetadataRecord] = [machine.node(5, "m1")]
    machine.apply(
        *records, *([FenceNodeRecord(node_id=5, epoch=1, fenced=True)] if are_fenced else [])
    )


def test_a_broker_hands_over_last_of_its_machine() -> None:
    machine = Machine(moves_replicas=False)
    siblings(machine, are_fenced=False)
    machine.drain()
    machine.pass_time(TIMES.retry)
    assert machine.effects == []
    siblings(machine, are_fenced=True)
    machine.pass_time(TIMES.retry)
    assert isinstance(machine.take(), HandOver)


def test_a_broker_hands_over_in_time_whoever_of_its_machine_is_still_there() -> None:
    machine = Machine(moves_replicas=False)
    siblings(machine, are_fenced=False)
    machine.drain()
    machine.pass_time(TIMES.hand_over - TIMES.retry)
    assert isinstance(machine.take(), HandOver)


def test_another_node_of_the_machine_moves_replicas_and_leaves_the_vote_to_the_broker() -> None:
    machine = Machine(is_broker=False)
    machine.drain()
    assert isinstance(machine.effects[0], AskController)
    assert machine.take().request == Rebalance(leave="m1")
