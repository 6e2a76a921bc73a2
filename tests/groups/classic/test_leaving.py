"""When is a member out, and what does that do to the others?"""

import pytest

from bradbury.protocol.error_code import ErrorCode
from bradbury.tests.support.groups.group_driver import G, GroupDriver


def left(driver: GroupDriver, *members: tuple[str, str | None]) -> list[ErrorCode]:
    return [ErrorCode(answer.error_code) for answer in driver.leave(*members).members]


def test_a_heartbeat_keeps_a_member_in() -> None:
    driver = GroupDriver()
    (member,) = driver.stable(1, session_ms=10_000)
    for _ in range(5):
        driver.advance(9_999)
        assert driver.heartbeat(member, 1) == ErrorCode.NONE


def test_silence_for_the_session_timeout_puts_a_member_out() -> None:
    driver = GroupDriver()
    leader, follower = driver.stable(2, session_ms=10_000)
    driver.advance(9_000)
    driver.heartbeat(leader, 1)
    driver.advance(1_000)
    assert driver.heartbeat(follower, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("what", ["sync", "join", "commit"])
def test_any_request_of_a_member_shows_that_it_lives(what: str) -> None:
    driver = GroupDriver()
    leader, follower = driver.stable(2, session_ms=10_000)
    driver.advance(9_000)
    driver.heartbeat(leader, 1)
    if what == "sync":
        driver.sync(follower, 1)
    elif what == "join":
        driver.join(follower)
    else:
        driver.commit({("t", 0): 5}, follower, 1)
    driver.advance(9_000)
    driver.heartbeat(leader, 1)
    assert driver.heartbeat(follower, 1) == ErrorCode.NONE


def test_a_member_whose_join_is_parked_does_not_expire() -> None:
    driver = GroupDriver()
    waits, silent = driver.stable(2, session_ms=10_000, rebalance_ms=60_000)
    request = driver.join(waits, session_ms=10_000, rebalance_ms=60_000)
    for _ in range(5):
        driver.advance(9_000)
        driver.heartbeat(silent, 1)
    assert driver.is_parked(request)


def test_a_member_whose_sync_is_parked_does_not_expire_and_then_has_a_full_session() -> None:
    driver = GroupDriver()
    leader, follower = driver.enter(2, session_ms=10_000, rebalance_ms=60_000)
    request = driver.sync(follower, 1)
    for _ in range(3):
        driver.advance(9_000)
        driver.heartbeat(leader, 1)
    driver.sync(leader, 1, {})
    assert driver.error(request) == ErrorCode.NONE
    driver.advance(9_999)
    assert driver.heartbeat(follower, 1) == ErrorCode.NONE


@pytest.mark.parametrize("generation", [-1, 0, 2])
def test_a_heartbeat_of_another_generation_is_refused(generation: int) -> None:
    driver = GroupDriver()
    (member,) = driver.stable(1)
    assert driver.heartbeat(member, generation) == ErrorCode.ILLEGAL_GENERATION


def test_a_heartbeat_while_the_group_waits_for_syncs_is_in_order() -> None:
    driver = GroupDriver()
    (member,) = driver.enter(1)
    assert driver.heartbeat(member, 1) == ErrorCode.NONE


def test_heartbeats_of_strangers_are_refused() -> None:
    driver = GroupDriver()
    assert driver.heartbeat("ghost", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    driver.commit({("t", 0): 5}, group="")  # which is allowed, and makes no group to be a member of
    assert driver.heartbeat("ghost", 1, group="") == ErrorCode.INVALID_GROUP_ID
    (member,) = driver.stable(1)
    driver.leave((member, None))
    assert driver.heartbeat(member, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_makes_the_others_rebalance_at_once() -> None:
    driver = GroupDriver()
    leader, follower = driver.stable(2)
    assert left(driver, (leader, None)) == [ErrorCode.NONE]
    assert driver.heartbeat(follower, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    rejoined = driver.join(follower)
    assert driver.joined(rejoined).leader == follower


def test_when_the_last_one_leaves_the_group_is_empty_in_a_new_generation() -> None:
    driver = GroupDriver()
    (member,) = driver.stable(1)
    driver.leave((member, None))
    assert driver.state == "Empty"
    value = driver.records()[-1].value
    assert (value.generation, value.members, value.protocol, value.leader) == (2, [], None, None)
    assert value.protocol_type == "consumer"
    assert value.current_state_timestamp == driver.now_ms


def test_several_may_leave_at_once_with_an_error_each() -> None:
    driver = GroupDriver()
    members = driver.stable(3)
    assert left(driver, (members[0], None), ("ghost", None), (members[1], None)) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    assert [member.member_id for member in driver.describe().members] == members[2:]


def test_an_id_that_was_given_out_may_leave_and_nobody_rebalances() -> None:
    driver = GroupDriver()
    driver.stable(1)
    pending = driver.joined(driver.join()).member_id
    assert left(driver, (pending, None)) == [ErrorCode.NONE]
    assert driver.state == "Stable"
    assert driver.error(driver.join(pending)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_unused_id_that_leaves_completes_the_rebalance() -> None:
    driver = GroupDriver()
    (member,) = driver.stable(1)
    pending = driver.joined(driver.join()).member_id
    rejoined = driver.join(member)
    assert driver.is_parked(rejoined)
    driver.leave((pending, None))
    assert driver.error(rejoined) == ErrorCode.NONE


def test_the_join_that_a_leaving_member_waits_for_is_answered() -> None:
    driver = GroupDriver()
    driver.stable(1)
    newcomer = driver.joined(driver.join()).member_id
    waiting = driver.join(newcomer)
    driver.leave((newcomer, None))
    assert driver.error(waiting) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_sync_that_a_leaving_member_waits_for_is_answered() -> None:
    driver = GroupDriver()
    _, follower = driver.enter(2)
    waiting = driver.sync(follower, 1)
    driver.leave((follower, None))
    assert driver.error(waiting) == ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_an_unknown_group_is_an_error_of_each_member() -> None:
    driver = GroupDriver()
    assert left(driver, ("ghost", None)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert driver.leave(("ghost", None), group="").error_code == ErrorCode.INVALID_GROUP_ID


def test_a_group_that_all_have_left_can_be_entered_again() -> None:
    driver = GroupDriver()
    (member,) = driver.stable(1)
    driver.leave((member, None))
    (again,) = driver.enter(1)
    assert driver.coordinator.groups[G].metadata.generation == 3
    driver.stabilise([again], 3)
    assert driver.state == "Stable"
