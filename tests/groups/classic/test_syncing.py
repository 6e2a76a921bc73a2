"""Who gets which assignment, and when?"""

import pytest

from bradbury.groups.group_effects import TimerKey, TimerKind
from bradbury.protocol.error_code import ErrorCode
from bradbury.tests.support.groups.group_driver import GroupDriver


def test_everyone_waits_for_the_leaders_assignment() -> None:
    driver = GroupDriver()
    leader, follower = driver.enter(2)
    waiting = driver.sync(follower, 1)
    assert driver.is_parked(waiting)
    leaders = driver.sync(leader, 1, {leader: b"A", follower: b"B"})
    assert driver.synced(waiting).assignment == b"B"
    assert driver.synced(leaders).assignment == b"A"
    assert (driver.synced(leaders).protocol_type, driver.synced(leaders).protocol_name) == (
        "consumer",
        "range",
    )
    assert driver.state == "Stable"


def test_nobody_gets_an_assignment_before_it_is_committed() -> None:
    driver = GroupDriver()
    leader, follower = driver.enter(2)
    driver.hold_commits = True
    requests = [driver.sync(follower, 1), driver.sync(leader, 1, {leader: b"A"})]
    assert all(map(driver.is_parked, requests))
    assert driver.state == "CompletingRebalance"
    driver.commit_next()
    assert driver.state == "Stable"
    assert [driver.error(request) for request in requests] == [ErrorCode.NONE] * 2


def test_a_member_that_the_leader_forgot_gets_nothing() -> None:
    driver = GroupDriver()
    leader, follower = driver.enter(2)
    waiting = driver.sync(follower, 1)
    driver.sync(leader, 1, {leader: b"A", "ghost": b"G"})
    assert driver.synced(waiting).assignment == b""
    assert [m.member_assignment for m in driver.describe().members] == [b"A", b""]


def test_a_follower_cannot_assign() -> None:
    driver = GroupDriver()
    leader, follower = driver.enter(2)
    waiting = driver.sync(follower, 1, {leader: b"stolen", follower: b"all"})
    assert driver.is_parked(waiting)
    driver.sync(leader, 1, {leader: b"A", follower: b"B"})
    assert driver.synced(waiting).assignment == b"B"


def test_of_two_assignments_of_one_generation_the_first_counts() -> None:
    driver = GroupDriver()
    leader, follower = driver.enter(2)
    waiting = driver.sync(follower, 1)
    driver.hold_commits = True
    first = driver.sync(leader, 1, {leader: b"A", follower: b"B"})
    second = driver.sync(leader, 1, {leader: b"B", follower: b"A"})
    assert driver.error(first) == ErrorCode.REBALANCE_IN_PROGRESS
    driver.commit_next()
    assert not driver.uncommitted
    assert driver.synced(second).assignment == b"A"
    assert driver.synced(waiting).assignment == b"B"


def test_a_stable_member_may_fetch_its_assignment_again() -> None:
    driver = GroupDriver()
    _, follower = driver.stable(2)
    assert driver.synced(driver.sync(follower, 1)).assignment == follower.encode()


def test_a_sync_during_a_rebalance_is_answered_to_rejoin() -> None:
    driver = GroupDriver()
    leader, follower = driver.stable(2)
    driver.join(leader)
    assert driver.error(driver.sync(follower, 1)) == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("generation", [-1, 0, 2])
def test_a_sync_of_another_generation_is_refused(generation: int) -> None:
    driver = GroupDriver()
    (member,) = driver.enter(1)
    assert driver.error(driver.sync(member, generation)) == ErrorCode.ILLEGAL_GENERATION


def test_a_sync_of_an_unknown_member_or_group_is_refused() -> None:
    driver = GroupDriver()
    assert driver.error(driver.sync("ghost", 1)) == ErrorCode.UNKNOWN_MEMBER_ID
    driver.enter(1)
    assert driver.error(driver.sync("ghost", 1)) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("other", [{"protocol_type": "connect"}, {"protocol_name": "sticky"}])
def test_a_sync_for_another_protocol_is_refused(other: dict[str, str]) -> None:
    driver = GroupDriver()
    (member,) = driver.enter(1)
    refused = driver.sync(member, 1, **other)
    assert driver.error(refused) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_members_that_never_sync_are_removed_after_the_rebalance_timeout() -> None:
    driver = GroupDriver()
    leader, follower = driver.enter(2, rebalance_ms=20_000, session_ms=60_000)
    driver.sync(leader, 1, {})
    driver.advance(19_999)
    assert driver.state == "Stable"
    driver.advance(1)
    assert driver.state == "PreparingRebalance"
    assert driver.heartbeat(follower, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_never_syncs_is_removed_and_the_waiting_ones_rejoin() -> None:
    driver = GroupDriver()
    leader, follower = driver.enter(2, rebalance_ms=20_000, session_ms=60_000)
    waiting = driver.sync(follower, 1)
    driver.advance(20_000)
    assert driver.error(waiting) == ErrorCode.REBALANCE_IN_PROGRESS
    rejoined = driver.join(follower)
    assert driver.joined(rejoined).leader == follower
    assert driver.heartbeat(leader, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_assignment_that_cannot_be_stored_is_handed_to_nobody() -> None:
    driver = GroupDriver()
    leader, follower = driver.enter(2)
    driver.hold_commits = True
    requests = [driver.sync(follower, 1), driver.sync(leader, 1, {leader: b"A", follower: b"B"})]
    driver.fail_next(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert [driver.error(request) for request in requests] == [ErrorCode.NOT_COORDINATOR] * 2
    assert [driver.synced(request).assignment for request in requests] == [b"", b""]
    assert driver.state == "PreparingRebalance"


def test_an_assignment_that_a_rebalance_overtakes_is_handed_to_nobody() -> None:
    driver = GroupDriver()
    leader, follower = driver.enter(2)
    driver.hold_commits = True
    waiting = driver.sync(leader, 1, {leader: b"A", follower: b"B"})
    driver.leave((follower, None))
    assert driver.error(waiting) == ErrorCode.REBALANCE_IN_PROGRESS
    driver.commit_next()
    assert driver.state == "PreparingRebalance"
    rejoined = driver.join(leader)
    assert driver.joined(rejoined).generation_id == 2


def test_the_stable_generation_is_written_with_its_assignments() -> None:
    driver = GroupDriver()
    leader, follower = driver.stable(2)
    value = driver.records()[-1].value
    assert (value.generation, value.protocol, value.leader) == (1, "range", leader)
    assert [(m.member_id, m.assignment) for m in value.members] == [
        (leader, leader.encode()),
        (follower, follower.encode()),
    ]


def test_a_sync_timer_that_comes_when_nobody_is_late_changes_nothing() -> None:
    """It was cancelled, and came all the same."""
    driver = GroupDriver()
    leader, follower = driver.enter(2)
    waiting = driver.sync(follower, 1)
    driver.sync(leader, 1, {leader: b"A", follower: b"B"})
    assert driver.synced(waiting).assignment == b"B"
    key = TimerKey(TimerKind.SYNC, driver.describe().group_id)
    assert driver.coordinator.on_timer(key, now_ms=driver.now_ms) == []
    assert driver.state == "Stable"
