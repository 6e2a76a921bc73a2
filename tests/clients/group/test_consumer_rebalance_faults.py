"""Does a member do what Kafka's consumer does when its coordinator refuses, moves, or falls silent?

The coordinator is scripted, since each refusal is wanted at one moment.
"""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import bradbury
from bradbury.clients.group.consumer_protocol import (
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from bradbury.protocol.errors import (
    FencedInstanceId,
    GroupAuthorizationFailed,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    RebalanceInProgress,
    UnknownMemberId,
)
from bradbury.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from bradbury.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from bradbury.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
)
from bradbury.protocol.messages.leave_group import LeaveGroupRequest
from bradbury.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from bradbury.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from bradbury.tests.support.groups.group_members import RecordingListener
from bradbury.tests.support.groups.scripted_group import ScriptedGroup
from bradbury.tests.support.wire.scripted_broker import HANG_UP, SILENCE, ScriptedBroker

UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS = 25, 22, 27
FENCED_INSTANCE_ID, NOT_COORDINATOR, LOADING, NOT_AVAILABLE = 82, 16, 14, 15
MEMBER_ID_REQUIRED = 79
SECONDS = 60.0
TAKEN_OVER = "^group 'g'.*: another consumer has group_instance_id='i' now; close this one"


@pytest.fixture
def group() -> Iterator[ScriptedGroup]:
    with ScriptedGroup() as broker:
        yield broker


def member(group: ScriptedGroup, **options: Any) -> bradbury.Consumer:
    settings: dict[str, Any] = {
        "bootstrap": group.address,
        "group": "g",
        "heartbeat_interval_ms": 20,
        "retry_backoff_ms": 1,
        **options,
    }
    return bradbury.Consumer("t", **settings)


def poll_until(happened: Callable[[], bool], consumer: bradbury.Consumer) -> None:
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        consumer.poll(10)


def know_positions(consumer: bradbury.Consumer) -> None:
    poll_until(lambda: len(consumer.assignment()) == 2, consumer)
    assert [consumer.position(one) for one in consumer.assignment()] == [5, 5]


# --- joining -----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [LOADING, NOT_AVAILABLE, NOT_COORDINATOR])
def test_a_coordinator_that_loads_or_has_moved_is_asked_again(
    group: ScriptedGroup, code: int
) -> None:
    group.on(JoinGroupRequest, JoinGroupResponse(error_code=code), group.join)
    group.on(SyncGroupRequest, SyncGroupResponse(error_code=code), group.sync)
    with member(group) as consumer:
        know_positions(consumer)
    searches = len([one for one in group.requests if isinstance(one, FindCoordinatorRequest)])
    assert (searches > 1) == (code != LOADING)


def test_a_coordinator_that_dies_while_members_wait_is_looked_up_again(
    group: ScriptedGroup,
) -> None:
    group.on(JoinGroupRequest, HANG_UP, group.join)
    group.on(SyncGroupRequest, HANG_UP, group.sync)
    group.on(HeartbeatRequest, HANG_UP, HeartbeatResponse())
    with member(group) as consumer:
        know_positions(consumer)
        heartbeats = len(group.wait_for(HeartbeatRequest, 1))
        group.wait_for(HeartbeatRequest, heartbeats + 3)
        consumer.poll(10)
        assert len(consumer.assignment()) == 2


def test_the_id_that_the_coordinator_gives_is_used_from_then_on(group: ScriptedGroup) -> None:
    group.on(
        JoinGroupRequest,
        JoinGroupResponse(error_code=MEMBER_ID_REQUIRED, member_id="given"),
        group.join,
    )
    with member(group) as consumer:
        know_positions(consumer)
        assert consumer.group_metadata().member_id == "given"
    assert group.wait_for(LeaveGroupRequest)[0].members[0].member_id == "given"


@pytest.mark.parametrize("code", [UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS])
def test_a_sync_that_comes_too_late_joins_again(group: ScriptedGroup, code: int) -> None:
    group.on(SyncGroupRequest, SyncGroupResponse(error_code=code), group.sync)
    with member(group) as consumer:
        know_positions(consumer)
    second = group.wait_for(JoinGroupRequest, 2)[1]
    # Only an unknown member needs a new id; the others are still who they were.
    assert second.member_id == ("" if code == UNKNOWN_MEMBER_ID else "member-0")


def test_a_final_refusal_is_raised_and_the_next_poll_tries_again(group: ScriptedGroup) -> None:
    group.on(JoinGroupRequest, JoinGroupResponse(error_code=23), group.join)
    with member(group) as consumer:
        with pytest.raises(InconsistentGroupProtocol):
            poll_until(lambda: False, consumer)
        know_positions(consumer)


def test_metadata_of_another_member_that_is_garbage_costs_nobody_else_anything(
    group: ScriptedGroup,
) -> None:
    with member(group) as consumer:
        know_positions(consumer)
    assignments = group.wait_for(SyncGroupRequest)[0].assignments
    assert [one.member_id for one in assignments] == ["member-0", "garbage"]
    assert bytes(assignments[1].assignment) == encode_assignment([])


def test_an_assignment_that_cannot_be_read_is_an_error_and_not_an_empty_one(
    group: ScriptedGroup,
) -> None:
    group.on(SyncGroupRequest, SyncGroupResponse(assignment=b"\x00\x01\x00\x00"), group.sync)
    with member(group) as consumer:
        with pytest.raises(InconsistentGroupProtocol, match="cannot be read"):
            poll_until(lambda: False, consumer)


def test_a_static_leader_that_comes_back_assigns_nothing_again(group: ScriptedGroup) -> None:
    def back(request: JoinGroupRequest) -> JoinGroupResponse:
        response = group.join(request)
        response.skip_assignment = True
        return response

    given = encode_assignment([bradbury.TopicPartition("t", 1)])
    group.on(JoinGroupRequest, back)
    group.on(SyncGroupRequest, SyncGroupResponse(assignment=given))
    with member(group, group_instance_id="i") as consumer:
        poll_until(lambda: consumer.assignment() == [("t", 1)], consumer)
    assert group.wait_for(SyncGroupRequest)[0].assignments == []
    assert not [one for one in group.requests if isinstance(one, LeaveGroupRequest)]


def test_what_is_offered_is_what_java_offers(group: ScriptedGroup) -> None:
    with member(group, client_rack="r1") as consumer:
        know_positions(consumer)
    offered = group.wait_for(JoinGroupRequest)[0].protocols
    assert [one.name for one in offered] == ["range", "cooperative-sticky"]
    assert bytes(offered[0].metadata) == encode_subscription(["t"], rack_id="r1")
    assert decode_subscription(offered[1].metadata, "m").user_data == b"\xff\xff\xff\xff"


# --- heartbeats --------------------------------------------------------------------------------


def test_a_rebalance_in_a_heartbeats_answer_revokes_and_keeps_the_member(
    group: ScriptedGroup,
) -> None:
    reported = RecordingListener()
    with member(group) as consumer:
        consumer.subscribe(["t"], listener=reported)
        know_positions(consumer)
        group.on(
            HeartbeatRequest,
            HeartbeatResponse(error_code=REBALANCE_IN_PROGRESS),
            HeartbeatResponse(),
        )
        poll_until(lambda: len(reported.events) == 3, consumer)
        assert consumer.group_metadata().member_id == "member-0"
    assert reported.events[1:3] == [("revoked", [0, 1]), ("assigned", [0, 1])]
    assert group.wait_for(OffsetCommitRequest)[0].generation_id_or_member_epoch == 1


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("code", [UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION])
def test_a_member_that_was_given_up_loses_what_it_has_and_commits_nothing_of_it(
    group: ScriptedGroup, code: int, strategy: str
) -> None:
    reported = RecordingListener()
    with member(group, partition_assignment_strategy=strategy) as consumer:
        consumer.subscribe(["t"], listener=reported)
        know_positions(consumer)
        group.on(HeartbeatRequest, HeartbeatResponse(error_code=code), HeartbeatResponse())
        poll_until(lambda: len(reported.events) == 3, consumer)
        assert reported.events == [("assigned", [0, 1]), ("lost", [0, 1]), ("assigned", [0, 1])]
        assert not [one for one in group.requests if isinstance(one, OffsetCommitRequest)]
    again = group.wait_for(JoinGroupRequest, 2)[1]
    assert again.member_id == ("" if code == UNKNOWN_MEMBER_ID else "member-0")
    assert decode_subscription(again.protocols[0].metadata, "m").owned == ()


@pytest.mark.parametrize("code", [UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION])
def test_a_cooperative_member_that_the_coordinator_forgot_loses_before_it_joins_again(
    group: ScriptedGroup, code: int
) -> None:
    reported = RecordingListener()
    with member(group, partition_assignment_strategy="cooperative-sticky") as consumer:
        consumer.subscribe(["t"], listener=reported)
        know_positions(consumer)
        group.on(JoinGroupRequest, JoinGroupResponse(error_code=code), group.join)
        consumer.enforce_rebalance()
        poll_until(lambda: len(reported.events) == 3, consumer)
    assert reported.events[1:3] == [("lost", [0, 1]), ("assigned", [0, 1])]
    joins = [
        decode_subscription(one.protocols[0].metadata, "m")
        for one in group.wait_for(JoinGroupRequest, 3)
    ]
    assert [len(one.owned) for one in joins[:3]] == [0, 2, 0]
    assert joins[1].generation == 1


def test_a_fenced_member_raises_until_it_is_closed(group: ScriptedGroup) -> None:
    group.on(HeartbeatRequest, HeartbeatResponse(error_code=FENCED_INSTANCE_ID))
    with member(group, group_instance_id="i") as consumer:
        for _ in range(2):
            with pytest.raises(FencedInstanceId, match=TAKEN_OVER):
                poll_until(lambda: False, consumer)
        with pytest.raises(UnknownMemberId):
            consumer.commit({("t", 0): 1})
    assert len([one for one in group.requests if isinstance(one, JoinGroupRequest)]) == 1


def test_a_member_that_is_fenced_as_it_joins_is_told_what_to_do(group: ScriptedGroup) -> None:
    group.on(JoinGroupRequest, JoinGroupResponse(error_code=FENCED_INSTANCE_ID))
    with member(group, group_instance_id="i") as consumer:
        with pytest.raises(FencedInstanceId, match=TAKEN_OVER):
            poll_until(lambda: False, consumer)


def test_a_final_refusal_of_a_heartbeat_is_raised_in_poll(group: ScriptedGroup) -> None:
    group.on(HeartbeatRequest, HeartbeatResponse(error_code=30), HeartbeatResponse())
    with member(group) as consumer:
        with pytest.raises(GroupAuthorizationFailed):
            poll_until(lambda: False, consumer)
        know_positions(consumer)


def test_a_finished_rebalance_that_nobody_has_polled_for_keeps_its_heartbeats(
    group: ScriptedGroup,
) -> None:
    with member(group) as consumer:
        consumer.poll(0)
        group.wait_for(SyncGroupRequest)
        group.wait_for(HeartbeatRequest, 5)  # the coordinator would give it up without
        know_positions(consumer)
        assert len(group.wait_for(JoinGroupRequest)) == 1


def test_a_poll_that_waits_for_long_is_a_poll_all_the_while(group: ScriptedGroup) -> None:
    with member(group, max_poll_interval_ms=1_500, auto_commit_interval_ms=250) as consumer:
        know_positions(consumer)
        assert consumer.poll(2_500).num_rows == 0
        assert consumer.group_metadata().generation == 1
        assert not [one for one in group.requests if isinstance(one, LeaveGroupRequest)]
        assert len(group.wait_for(OffsetCommitRequest)) >= 5


@pytest.mark.parametrize("instance", [None, "static"])
def test_a_member_that_is_not_polled_leaves_unless_it_is_static_and_falls_silent(
    group: ScriptedGroup, instance: str | None
) -> None:
    reported = RecordingListener()
    with member(group, max_poll_interval_ms=1_500, group_instance_id=instance) as consumer:
        consumer.subscribe(["t"], listener=reported)
        know_positions(consumer)
        deadline = time.monotonic() + SECONDS
        while consumer.group_metadata().generation != -1:
            assert time.monotonic() < deadline
            threading.Event().wait(0.01)
        leaves = [one for one in group.requests if isinstance(one, LeaveGroupRequest)]
        assert len(leaves) == (0 if instance else 1)
        assert all("poll" in one.members[0].reason for one in leaves)
        with pytest.raises(UnknownMemberId):
            consumer.commit()
        poll_until(lambda: len(reported.events) == 3, consumer)
    assert reported.events[1:3] == [("lost", [0, 1]), ("assigned", [0, 1])]


def test_a_coordinator_that_has_moved_is_followed_with_the_membership_as_it_is(
    group: ScriptedGroup,
) -> None:
    with ScriptedGroup() as successor, member(group, enable_auto_commit=False) as consumer:
        know_positions(consumer)
        membership = consumer.group_metadata()
        group.on(FindCoordinatorRequest, successor.coordinator)
        group.on(HeartbeatRequest, HeartbeatResponse(error_code=NOT_COORDINATOR))
        group.on(OffsetCommitRequest, group.refuse_commit(NOT_COORDINATOR))
        successor.wait_for(HeartbeatRequest, 2)
        consumer.commit()
        committed = successor.wait_for(OffsetCommitRequest)[0]
        assert committed.member_id == membership.member_id
        assert committed.generation_id_or_member_epoch == membership.generation
        assert consumer.group_metadata() == membership
        successor.on(HeartbeatRequest, HeartbeatResponse(error_code=REBALANCE_IN_PROGRESS))
        poll_until(lambda: bool(_of(successor, JoinGroupRequest)), consumer)
        assert _of(successor, JoinGroupRequest)[0].member_id == membership.member_id


def _of(broker: ScriptedBroker, kind: type[Any]) -> list[Any]:
    return [one for one in broker.requests if isinstance(one, kind)]


# --- commits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [LOADING, NOT_AVAILABLE, NOT_COORDINATOR, 7])
def test_a_commit_is_repeated_where_the_coordinator_is_to_be_found(
    group: ScriptedGroup, code: int
) -> None:
    group.on(OffsetCommitRequest, group.refuse_commit(code), HANG_UP, group.commit)
    with member(group, enable_auto_commit=False) as consumer:
        know_positions(consumer)
        consumer.commit()
    assert len(group.wait_for(OffsetCommitRequest)) == 3


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (UNKNOWN_MEMBER_ID, UnknownMemberId),
        (ILLEGAL_GENERATION, IllegalGeneration),
        (REBALANCE_IN_PROGRESS, RebalanceInProgress),
    ],
)
def test_a_commit_that_is_refused_makes_the_next_poll_join_again(
    group: ScriptedGroup, code: int, error: type[KafkaError]
) -> None:
    reported = RecordingListener()
    group.on(OffsetCommitRequest, group.refuse_commit(code), group.commit)
    with member(group, enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"], listener=reported)
        know_positions(consumer)
        with pytest.raises(error):
            consumer.commit()
        poll_until(lambda: len(reported.events) == 3, consumer)
        know_positions(consumer)  # what is not known yet is not committed
        consumer.commit()
    lost = "revoked" if code == REBALANCE_IN_PROGRESS else "lost"
    assert reported.events[:3] == [("assigned", [0, 1]), (lost, [0, 1]), ("assigned", [0, 1])]
    first, second = group.wait_for(OffsetCommitRequest, 2)
    generations = [one.generation_id_or_member_epoch for one in (first, second)]
    assert generations == [1, 2]


def test_a_commit_of_a_fenced_member_is_its_end(group: ScriptedGroup) -> None:
    group.on(OffsetCommitRequest, group.refuse_commit(FENCED_INSTANCE_ID))
    with member(group, group_instance_id="i", enable_auto_commit=False) as consumer:
        know_positions(consumer)
        with pytest.raises(FencedInstanceId, match=TAKEN_OVER):
            consumer.commit()
        with pytest.raises(FencedInstanceId, match=TAKEN_OVER):
            consumer.poll(0)


def test_while_a_member_waits_for_the_others_it_cannot_commit(group: ScriptedGroup) -> None:
    with member(group, partition_assignment_strategy="cooperative-sticky") as consumer:
        know_positions(consumer)
        group.on(JoinGroupRequest, SILENCE)
        consumer.enforce_rebalance()
        consumer.poll(10)
        assert len(consumer.assignment()) == 2  # and it goes on reading
        with pytest.raises(RebalanceInProgress, match="poll"):
            consumer.commit()
        consumer.commit({})  # of nothing
        calls: list[Any] = []
        future = consumer.commit_async(callback=lambda *call: calls.append(call))
        assert isinstance(future.exception(10), RebalanceInProgress)
        assert calls == []
        consumer.poll(0)
        assert isinstance(calls[0][1], RebalanceInProgress)
        assert consumer.committed() == {("t", 0): 5, ("t", 1): 5}


def test_a_cooperative_member_commits_what_it_keeps_before_it_asks_to_join(
    group: ScriptedGroup,
) -> None:
    with member(group, partition_assignment_strategy="cooperative-sticky") as consumer:
        know_positions(consumer)
        group.on(JoinGroupRequest, SILENCE)
        consumer.enforce_rebalance()
        consumer.poll(10)
        group.wait_for(JoinGroupRequest, 2)
    kinds = [type(one) for one in group.requests]
    committed = group.wait_for(OffsetCommitRequest)[0]
    assert kinds.index(OffsetCommitRequest) < _last(kinds, JoinGroupRequest)
    assert committed.generation_id_or_member_epoch == 1
    assert [one.committed_offset for one in committed.topics[0].partitions] == [5, 5]


def look_in_vain(group: ScriptedGroup, consumer: bradbury.Consumer) -> int:
    """A rebalance has begun, but the coordinator is not to be found; how often it was looked for."""
    nobody = Coordinator("g", node_id=-1, host="", port=-1, error_code=NOT_AVAILABLE)
    group.on(FindCoordinatorRequest, FindCoordinatorResponse(coordinators=[nobody]))
    group.on(HeartbeatRequest, HeartbeatResponse(error_code=NOT_COORDINATOR))
    searches = len(_of(group, FindCoordinatorRequest))
    group.wait_for(FindCoordinatorRequest, searches + 1)
    consumer.enforce_rebalance()
    consumer.poll(0)
    group.wait_for(FindCoordinatorRequest, searches + 4)
    group.on(JoinGroupRequest, SILENCE)
    return searches + 4


def test_a_join_that_looks_for_its_coordinator_lets_commits_go_first(group: ScriptedGroup) -> None:
    options: dict[str, Any] = {"partition_assignment_strategy": "cooperative-sticky"}
    with member(group, enable_auto_commit=False, retry_backoff_ms=200, **options) as consumer:
        know_positions(consumer)
        searches = look_in_vain(group, consumer)
        committed = consumer.commit_async()
        group.wait_for(FindCoordinatorRequest, searches + 1)
        group.on(FindCoordinatorRequest, group.coordinator)
        committed.result(SECONDS)
        group.wait_for(JoinGroupRequest, 2)
        with pytest.raises(RebalanceInProgress):
            consumer.commit()
    kinds = [type(one) for one in group.requests]
    assert kinds.index(OffsetCommitRequest) < _last(kinds, JoinGroupRequest)
    assert len(_of(group, OffsetCommitRequest)) == 1


def test_a_commit_that_has_to_be_repeated_does_not_wait_behind_a_join(group: ScriptedGroup) -> None:
    options: dict[str, Any] = {"partition_assignment_strategy": "cooperative-sticky"}
    with member(group, enable_auto_commit=False, retry_backoff_ms=100, **options) as consumer:
        know_positions(consumer)
        look_in_vain(group, consumer)
        group.on(OffsetCommitRequest, group.refuse_commit(LOADING), group.commit)
        threading.Timer(0.05, group.on, (FindCoordinatorRequest, group.coordinator)).start()
        with pytest.raises(RebalanceInProgress):
            consumer.commit()
    assert len(_of(group, OffsetCommitRequest)) == 1


def _last(kinds: list[type[Any]], kind: type[Any]) -> int:
    return len(kinds) - 1 - kinds[::-1].index(kind)


def test_a_commit_before_a_rebalance_that_is_not_answered_holds_up_no_poll(
    group: ScriptedGroup,
) -> None:
    reported = RecordingListener()
    group.on(OffsetCommitRequest, SILENCE)
    options: dict[str, Any] = {"max_poll_interval_ms": 60_000, "request_timeout_ms": 700}
    with member(group, **options) as consumer:
        consumer.subscribe(["t"], listener=reported)
        know_positions(consumer)
        consumer.enforce_rebalance()
        started = time.monotonic()
        assert consumer.poll(100).num_rows == 0
        assert time.monotonic() - started < 20
        assert reported.events == [("assigned", [0, 1])]  # they are still this member's
        group.on(OffsetCommitRequest, group.commit)
        poll_until(lambda: len(reported.events) == 3, consumer)


def test_a_lost_async_commit_is_not_sent_again(group: ScriptedGroup) -> None:
    calls: list[Any] = []
    group.on(OffsetCommitRequest, HANG_UP, group.commit)
    with member(group, enable_auto_commit=False) as consumer:
        know_positions(consumer)
        consumer.commit_async(callback=lambda *call: calls.append(call))
        poll_until(lambda: bool(calls), consumer)
        assert calls[0][1] is not None
        consumer.commit()
    assert len(group.wait_for(OffsetCommitRequest)) == 2


def test_a_commit_that_a_rebalance_overtakes_says_so_and_costs_nothing(
    group: ScriptedGroup,
) -> None:
    reported, calls, may_answer = RecordingListener(), list[Any](), threading.Event()

    def slowly(request: OffsetCommitRequest) -> OffsetCommitResponse:
        may_answer.wait(SECONDS)
        return group.commit(request, ILLEGAL_GENERATION)

    options: dict[str, Any] = {"partition_assignment_strategy": "cooperative-sticky"}
    with member(group, enable_auto_commit=False, **options) as consumer:
        consumer.subscribe(["t"], listener=reported)
        know_positions(consumer)
        group.on(OffsetCommitRequest, slowly, group.commit)
        consumer.commit_async(callback=lambda *call: calls.append(call))
        group.wait_for(OffsetCommitRequest)
        consumer.enforce_rebalance()
        consumer.poll(0)
        may_answer.set()
        poll_until(lambda: bool(calls) and len(reported.events) == 2, consumer)
        assert isinstance(calls[0][1], RebalanceInProgress)
        assert reported.events == [("assigned", [0, 1]), ("assigned", [])]
        assert len(_of(group, JoinGroupRequest)) == 2


def test_a_later_commit_waits_for_the_one_before(group: ScriptedGroup) -> None:
    order: list[int] = []
    may_answer = threading.Event()

    def slowly(request: OffsetCommitRequest) -> OffsetCommitResponse:
        if not order:
            may_answer.wait(SECONDS)
        order.append(request.topics[0].partitions[0].committed_offset)
        return group.commit(request)

    group.on(OffsetCommitRequest, slowly)
    with member(group, enable_auto_commit=False) as consumer:
        know_positions(consumer)
        consumer.commit_async({("t", 0): 6})
        group.wait_for(OffsetCommitRequest)
        threading.Timer(0.05, may_answer.set).start()
        consumer.commit({("t", 0): 7})
    assert order == [6, 7]


def test_wakeup_ends_a_commit_that_is_not_answered(group: ScriptedGroup) -> None:
    group.on(OffsetCommitRequest, SILENCE)
    with member(group, enable_auto_commit=False) as consumer:
        know_positions(consumer)
        threading.Timer(0.1, consumer.wakeup).start()
        started = time.monotonic()
        with pytest.raises(bradbury.Wakeup):
            consumer.commit()
        assert time.monotonic() - started < 30


# --- leaving -----------------------------------------------------------------------------------


def test_a_consumer_that_is_closed_while_it_joins_is_no_member_afterwards(
    group: ScriptedGroup,
) -> None:
    may_answer = threading.Event()

    def slowly(request: JoinGroupRequest) -> JoinGroupResponse:
        may_answer.wait(SECONDS)
        return group.join(request)

    group.on(JoinGroupRequest, slowly)
    with member(group) as consumer:
        consumer.poll(0)
        group.wait_for(JoinGroupRequest)
        consumer.unsubscribe()
        may_answer.set()
        left = group.wait_for(LeaveGroupRequest)[0]
        assert left.members[0].member_id == "member-0"
        assert (consumer.assignment(), consumer.poll(10).num_rows) == ([], 0)
    assert len([one for one in group.requests if isinstance(one, SyncGroupRequest)]) <= 1


def test_a_coordinator_that_is_silent_does_not_keep_close_from_ending(
    group: ScriptedGroup,
) -> None:
    consumer = member(group)
    know_positions(consumer)
    group.on(OffsetCommitRequest, SILENCE)
    group.on(LeaveGroupRequest, SILENCE)
    started = time.monotonic()
    consumer.close(timeout_ms=300)
    assert time.monotonic() - started < 20
    with pytest.raises(KafkaError, match="closed"):
        consumer.poll(0)
