"""When do committed offsets expire, and what is the time when the clock is not to be trusted? (KIP-211)"""

import pytest

from bradbury.groups.offsets.offset_retention import (
    GROUPS_AT_ONCE,
    LEAP_FACTOR,
    OFFSETS_AT_ONCE,
)
from bradbury.protocol.error_code import ErrorCode
from bradbury.tests.support.groups.group_driver import GroupDriver, subscription

DAY_MS = 24 * 60 * 60 * 1000
CHECK_MS = 600_000
P0, U0 = ("t", 0), ("u", 0)
WEEK = {"offsets_retention_minutes": 7 * 24 * 60}


def days_of_life(driver: GroupDriver, member: str, days: int) -> None:
    for _ in range(days * 72):
        driver.advance(DAY_MS // 72)
        assert driver.heartbeat(member, 1) == ErrorCode.NONE


def test_a_topic_that_a_living_group_has_given_up_expires_a_week_after_its_last_commit() -> None:
    driver = GroupDriver(**WEEK)
    (member,) = driver.stable(1, session_ms=1_800_000, protocols=(("range", subscription("t")),))
    driver.commit({P0: 1, U0: 2}, member, 1)
    days_of_life(driver, member, 6)
    assert driver.all_offsets() == {P0: 1, U0: 2}
    days_of_life(driver, member, 2)
    assert driver.all_offsets() == {P0: 1}
    assert driver.state == "Stable"


def test_a_member_that_does_not_say_what_it_subscribes_to_keeps_everything() -> None:
    driver = GroupDriver(**WEEK)
    (member,) = driver.stable(1, session_ms=1_800_000, protocols=(("range", b"?"),))
    driver.commit({U0: 2}, member, 1)
    days_of_life(driver, member, 8)
    assert driver.all_offsets() == {U0: 2}


def test_members_that_are_no_consumers_keep_everything() -> None:
    driver = GroupDriver(**WEEK)
    (member,) = driver.stable(1, session_ms=1_800_000, protocol_type="connect")
    driver.commit({U0: 2}, member, 1)
    days_of_life(driver, member, 8)
    assert driver.all_offsets() == {U0: 2}


def test_a_clock_that_leaps_ahead_and_back_expires_nothing() -> None:
    driver = GroupDriver(**WEEK)
    driver.commit({P0: 1})
    driver.leap_ms = 400 * DAY_MS
    driver.advance(5 * CHECK_MS)
    driver.leap_ms = 0
    driver.advance(5 * CHECK_MS)
    assert driver.all_offsets() == {P0: 1}


def test_a_clock_that_stays_ahead_is_believed_in_time() -> None:
    driver = GroupDriver(**WEEK)
    driver.commit({P0: 1})
    driver.leap_ms = 400 * DAY_MS
    driver.advance(7 * DAY_MS // LEAP_FACTOR - CHECK_MS)
    assert driver.all_offsets() == {P0: 1}
    driver.advance(2 * CHECK_MS)
    assert driver.all_offsets() == {}


def test_what_is_committed_while_the_clock_is_set_back_is_not_old_when_it_is_mended() -> None:
    driver = GroupDriver(**WEEK)
    driver.leap_ms = -400 * DAY_MS
    driver.commit({P0: 1})
    (member,) = driver.stable(1)
    driver.commit({U0: 1}, member, 1)
    driver.leave((member, None))
    driver.leap_ms = 0
    driver.advance(3 * CHECK_MS)
    assert driver.all_offsets() == {P0: 1, U0: 1}


def test_a_coordinator_that_starts_on_a_machine_with_a_wrong_clock_goes_by_the_log_first() -> None:
    driver = GroupDriver(**WEEK)
    driver.commit({P0: 1})
    driver.leap_ms = 400 * DAY_MS
    after = driver.failed_over()
    after.advance(5 * CHECK_MS)
    assert after.all_offsets() == {P0: 1}


def test_a_coordinator_that_starts_while_the_clock_is_set_back_goes_on_from_its_log() -> None:
    driver = GroupDriver(**WEEK)
    driver.commit({P0: 1})
    driver.leap_ms = -400 * DAY_MS
    after = driver.failed_over()
    after.commit({U0: 1})
    for days in (-1, 0):
        after.leap_ms = days * DAY_MS
        after = after.failed_over()
        after.advance(5 * CHECK_MS)
        assert after.all_offsets() == {P0: 1, U0: 1}


def test_what_was_committed_while_the_clock_was_ahead_makes_nothing_old_after_a_restart() -> None:
    driver = GroupDriver(**WEEK)
    driver.commit({P0: 1})
    driver.leap_ms = 400 * DAY_MS
    driver.commit({U0: 1})
    driver.leap_ms = 0
    after = driver.failed_over()
    after.advance(5 * CHECK_MS)
    assert after.all_offsets() == {P0: 1, U0: 1}


def test_the_newest_time_anywhere_in_the_log_counts() -> None:
    """Clocks of several machines wrote it. Nothing is stamped before that time."""
    driver = GroupDriver(**WEEK)
    driver.commit({P0: 1})
    driver.leap_ms = 10 * DAY_MS
    driver.commit({U0: 1})
    driver.leap_ms = 0
    driver.log.reverse()
    after = driver.failed_over()
    after.commit({P0: 2})
    newest, _, last = after.records()
    assert last.value.commit_timestamp == newest.value.commit_timestamp

    driver = GroupDriver(**WEEK)
    (member,) = driver.stable(1)
    driver.leap_ms = 10 * DAY_MS
    driver.leave((member, None))
    driver.leap_ms = 0
    driver.log.reverse()
    after = driver.failed_over()
    after.commit({P0: 1}, group="another")
    newest, _, last = after.records()
    assert last.value.commit_timestamp == newest.value.current_state_timestamp


def test_after_a_long_time_switched_off_what_is_committed_then_lasts_as_long_as_ever() -> None:
    driver = GroupDriver(**WEEK)
    driver.commit({P0: 1})
    driver.now_ms += 20 * DAY_MS
    after = driver.failed_over()
    after.commit({U0: 1})
    after.advance(7 * DAY_MS - 2 * CHECK_MS)
    assert after.all_offsets() == {U0: 1}
    after.advance(3 * CHECK_MS)
    assert after.all_offsets() == {}


def test_many_groups_are_looked_at_a_few_at_a_time_and_all_in_the_end() -> None:
    driver = GroupDriver(offsets_retention_minutes=1)
    count = 5 * GROUPS_AT_ONCE + 1
    for number in range(count):
        driver.commit({P0: 1}, group=f"group-{number}")
    driver.now_ms += CHECK_MS
    turns = 0
    while driver.coordinator.groups:
        before = len(driver.coordinator.groups)
        (key,) = driver.timers
        driver.perform(driver.coordinator.on_timer(key, now_ms=driver.now_ms))
        assert before - len(driver.coordinator.groups) <= GROUPS_AT_ONCE
        turns += 1
    assert turns == 6
    assert driver.counters.offsets_expired == count


@pytest.mark.thorough
def test_a_group_with_very_many_offsets_has_a_turn_of_its_own() -> None:
    driver = GroupDriver(offsets_retention_minutes=1)
    for number in range(4):
        for partition in range(OFFSETS_AT_ONCE):
            driver.commit({("t", partition): 1}, group=f"group-{number}")
    driver.now_ms += CHECK_MS
    (key,) = driver.timers
    for left in (3, 2, 1, 0):
        driver.perform(driver.coordinator.on_timer(key, now_ms=driver.now_ms))
        assert len(driver.coordinator.groups) == left
