"""Do the leaders of a transaction's partitions get to know how it has ended, whatever happens?"""

import logging
from typing import Any

import pytest

from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import ConnectionFailed
from bradbury.tests.transactions.marker_world import PAID, SENT, THIRD, MarkerWorld
from bradbury.transactions import transaction_markers
from bradbury.transactions.transaction_effects import SendMarkers
from bradbury.transactions.transaction_markers import RETRY_MS

E = ErrorCode
LOST = ConnectionFailed("the answer was lost")
PASSING = [
    E.UNKNOWN_TOPIC_OR_PARTITION,
    E.NOT_LEADER_OR_FOLLOWER,
    E.NOT_ENOUGH_REPLICAS,
    E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    E.REQUEST_TIMED_OUT,
    E.KAFKA_STORAGE_ERROR,
    E.NOT_COORDINATOR,
    E.COORDINATOR_NOT_AVAILABLE,
    E.COORDINATOR_LOAD_IN_PROGRESS,
    E.CORRUPT_MESSAGE,
]


@pytest.fixture
def world() -> MarkerWorld:
    """Node 1 leads PAID, node 2 leads SENT and THIRD."""
    return MarkerWorld({PAID: 1, SENT: 2, THIRD: 2})


def test_each_leader_gets_its_markers_and_the_end_comes_when_all_have_them(
    world: MarkerWorld,
) -> None:
    world.send("id", PAID, SENT, THIRD)
    world.tick()
    assert world.sent == {1: [("id", {PAID})], 2: [("id", {SENT, THIRD})]}
    world.answer(1)
    assert world.written == []
    world.answer(2)
    assert world.written == ["id"]
    assert len(world.manager) == 0
    assert world.manager.next_deadline_ms is None


def test_a_marker_says_all_that_the_decision_says(world: MarkerWorld) -> None:
    world.manager.send(7, 3, SendMarkers("id", 4_000, 5, True, frozenset({PAID}), 2))
    world.tick()
    (marker,) = world.requests[1].markers
    assert (marker.producer_id, marker.producer_epoch) == (4_000, 5)
    assert marker.transaction_result
    assert marker.coordinator_epoch == 3
    assert marker.transaction_version == 2


def test_a_transaction_without_partitions_is_at_its_end_at_once(world: MarkerWorld) -> None:
    world.send("id")
    world.carry_out()
    assert world.written == ["id"]


def test_what_comes_while_a_request_is_on_its_way_goes_together_in_the_next(
    world: MarkerWorld,
) -> None:
    world.send("first", PAID)
    world.tick()
    world.send("second", PAID)
    world.send("third", PAID)
    world.tick()
    assert world.sent == {1: [("first", {PAID})]}, "a second request at once"
    world.answer(1)
    world.tick()
    assert world.sent == {1: [("second", {PAID}), ("third", {PAID})]}


def test_a_slow_node_holds_up_no_other(world: MarkerWorld) -> None:
    world.send("first", PAID)
    world.tick()
    world.send("second", SENT)
    world.tick()
    world.answer(2)
    assert world.written == ["second"]


@pytest.mark.parametrize("error", PASSING, ids=lambda error: error.name)
def test_what_passes_is_tried_again_until_it_has_passed(
    world: MarkerWorld, error: ErrorCode
) -> None:
    world.send("id", SENT, THIRD)
    for _ in range(3):
        world.tick()
        world.answer(2, {SENT: error})
        assert not world.sent
        assert world.manager.next_deadline_ms == world.now_ms + RETRY_MS
        world.now_ms += RETRY_MS
    world.tick()
    assert world.sent == {2: [("id", {SENT})]}
    world.answer(2)
    assert world.written == ["id"]


def test_the_log_says_which_marker_is_sent_again_and_why(
    world: MarkerWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world.send("id", SENT, THIRD)
    world.tick()
    world.answer(2, {SENT: E.CORRUPT_MESSAGE}, silent={THIRD})
    said = {record.getMessage(): record.levelname for record in caplog.records}
    assert said == {
        "id: sent-0 returned CORRUPT_MESSAGE for a marker; sending it again": "ERROR",
        "id: third-0 returned nothing for a marker; sending it again": "ERROR",
    }


def test_a_marker_whose_answer_was_lost_is_sent_to_whoever_leads_then(world: MarkerWorld) -> None:
    world.send("id", PAID)
    world.tick()
    world.leaders[PAID] = 3
    world.fail(1, LOST)
    world.now_ms += RETRY_MS
    world.tick()
    assert world.sent == {3: [("id", {PAID})]}


def test_a_partition_that_the_answer_does_not_name_is_asked_again(world: MarkerWorld) -> None:
    world.send("id", SENT, THIRD)
    world.tick()
    world.answer(2, silent={THIRD})
    assert world.manager.unknown_leader_count == 0, "its leader is known, and will be asked"
    world.now_ms += RETRY_MS
    world.tick()
    assert world.sent == {2: [("id", {THIRD})]}


def test_without_a_leader_it_waits_for_other_metadata(world: MarkerWorld) -> None:
    world.leaders[PAID] = None
    world.send("id", PAID)
    world.tick()
    assert world.manager.next_deadline_ms is None
    assert world.manager.unknown_leader_count == 1
    world.move(PAID, 2)
    world.tick()
    assert world.sent == {2: [("id", {PAID})]}


def test_when_the_leader_moves_what_is_queued_goes_to_the_next_one(world: MarkerWorld) -> None:
    world.send("first", PAID)
    world.tick()
    world.send("second", PAID)
    world.move(PAID, 2)
    world.tick()
    assert world.sent[2] == [("second", {PAID}), ("first", {PAID})]


def test_a_former_leader_that_stands_still_is_not_waited_for(world: MarkerWorld) -> None:
    world.send("id", PAID)
    world.tick()
    world.move(PAID, 2)
    world.tick()
    world.answer(2)
    assert world.written == ["id"]
    world.fail(1, LOST)
    world.now_ms += RETRY_MS
    world.tick()
    assert not world.sent


def test_what_a_former_leader_says_after_the_move_counts_no_longer(world: MarkerWorld) -> None:
    world.send("id", PAID)
    world.tick()
    world.move(PAID, 2)
    world.answer(1)
    assert world.written == []


def test_a_topic_that_was_deleted_needs_no_marker(world: MarkerWorld) -> None:
    world.leaders.pop(PAID)
    world.send("gone before", PAID)
    world.carry_out()
    assert world.written == ["gone before"]
    world.leaders[SENT] = None
    world.send("gone while it waits", SENT)
    world.delete(SENT)
    assert world.written == ["gone before", "gone while it waits"]
    world.send("gone while it is asked", THIRD)
    world.tick()
    world.delete(THIRD)
    assert world.written[-1] == "gone while it is asked"


@pytest.mark.parametrize("error", [E.UNSUPPORTED_FOR_MESSAGE_FORMAT, E.UNSUPPORTED_VERSION])
def test_a_log_without_transactions_needs_no_marker(world: MarkerWorld, error: ErrorCode) -> None:
    world.send("id", PAID)
    world.tick()
    world.answer(1, {PAID: error})
    assert world.written == ["id"]


@pytest.mark.parametrize("error", [E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED])
def test_a_coordinator_that_was_overtaken_says_no_more(
    world: MarkerWorld, error: ErrorCode
) -> None:
    world.leaders[THIRD] = None
    world.send("id", PAID, SENT, THIRD)
    world.tick()
    world.answer(1, {PAID: error})
    world.answer(2, {SENT: E.NOT_LEADER_OR_FOLLOWER})
    world.move(THIRD, 2)
    world.now_ms += RETRY_MS
    world.tick()
    assert not world.sent
    assert world.written == []
    assert len(world.manager) == 0


def test_a_coordinator_that_has_moved_away_drops_its_own_and_no_other(world: MarkerWorld) -> None:
    world.leaders[THIRD] = None
    world.send("mine", PAID, SENT, THIRD, partition=0)
    world.send("other", PAID, partition=1)
    world.tick()
    world.send("mine too", SENT, partition=0)
    world.manager.on_resigned(0)
    world.answer(1)
    world.answer(2)
    world.move(THIRD, 2)
    world.tick()
    assert world.written == ["other"]
    assert not world.sent


def test_the_next_coordinator_begins_again_with_its_own_epoch(world: MarkerWorld) -> None:
    world.send("id", PAID, epoch=3)
    world.tick()
    world.manager.on_resigned(0)
    world.send("id", PAID, epoch=5)
    world.tick()
    world.answer(1)
    assert world.written == [], "what the former one was answered counts for the next one"
    world.tick()
    assert [marker.coordinator_epoch for marker in world.requests[1].markers] == [5]
    world.answer(1)
    assert world.written == ["id"]


def test_a_former_coordinator_does_not_replace_the_present_one(world: MarkerWorld) -> None:
    world.send("id", PAID, epoch=5)
    world.send("id", SENT, epoch=3)
    world.tick()
    assert world.sent == {1: [("id", {PAID})]}


def test_a_new_coordinator_ends_what_former_ones_of_its_partition_send(world: MarkerWorld) -> None:
    """Though nobody said that they had resigned."""
    world.leaders[THIRD] = None
    world.send("former", PAID, THIRD, partition=0, epoch=3)
    world.send("other", PAID, partition=1, epoch=3)
    world.tick()
    world.send("queued", SENT, partition=0, epoch=4)
    world.manager.on_elected(0, 5)
    world.send("present", SENT, partition=0, epoch=5)
    world.manager.on_elected(0, 5)
    world.tick()
    world.answer(1)
    world.answer(2)
    world.move(THIRD, 2)
    world.tick()
    assert world.written == ["other", "present"]
    assert len(world.manager) == 0


def test_a_request_is_bounded_and_the_rest_follows(
    world: MarkerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_markers, "MOST_PARTITIONS", 3)
    many: list[Any] = [("wide", index) for index in range(5)]
    world.leaders.update(dict.fromkeys(many, 1))
    world.send("first", PAID)
    world.send("id", *many)
    world.tick()
    assert world.sent == {1: [("first", {PAID}), ("id", {*many[:2]})]}
    world.answer(1)
    world.tick()
    assert world.sent == {1: [("id", {*many[2:]})]}
    world.answer(1)
    assert world.written == ["first", "id"]
