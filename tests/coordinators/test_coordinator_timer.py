"""When does a timer of a coordinator fire?"""

from bradbury.coordinators.coordinator_timer import (
    LATE_MS,
    STALE_ENTRIES,
    CoordinatorTimer,
)
from bradbury.groups.group_effects import TimerKey, TimerKind


def key(name: str) -> TimerKey:
    return TimerKey(TimerKind.SESSION, "g", name)


def run(timer: CoordinatorTimer, until_ms: int) -> dict[str, int]:
    """When each timer fires for a driver that is never late."""
    fired: dict[str, int] = {}
    now_ms = 0
    while (next_ms := timer.next_deadline_ms) is not None and next_ms <= until_ms:
        now_ms = max(now_ms, next_ms)
        for due in timer.take_due(now_ms):
            assert due.member_id not in fired
            fired[due.member_id] = now_ms
    return fired


def test_timers_fire_once_and_in_the_order_of_their_deadlines() -> None:
    timer = CoordinatorTimer()
    timer.start(key("late"), 40, now_ms=0)
    timer.start(key("early"), 10, now_ms=0)
    assert list(run(timer, 1_000).items()) == [("early", 10), ("late", 40)]
    assert timer.next_deadline_ms is None


def test_a_deadline_that_is_moved_on_counts_from_the_last_move() -> None:
    timer = CoordinatorTimer()
    for now_ms in (0, 15, 30):
        timer.start(key("a"), 20, now_ms=now_ms)
    assert timer.next_deadline_ms == 20
    assert run(timer, 1_000) == {"a": 50}


def test_a_deadline_may_be_moved_to_an_earlier_time() -> None:
    timer = CoordinatorTimer()
    timer.start(key("a"), 60_000, now_ms=0)
    timer.start(key("a"), 10, now_ms=0)
    assert run(timer, 100_000) == {"a": 10}


def test_a_cancelled_timer_does_not_fire_and_can_be_started_again() -> None:
    timer = CoordinatorTimer()
    timer.start(key("gone"), 5, now_ms=0)
    timer.start(key("again"), 5, now_ms=0)
    timer.cancel(key("gone"))
    timer.cancel(key("again"))
    timer.cancel(key("never there"))
    timer.start(key("again"), 30, now_ms=2)
    assert run(timer, 1_000) == {"again": 32}


def test_a_member_that_sends_after_its_deadline_but_before_the_next_turn_is_not_late() -> None:
    timer = CoordinatorTimer()
    timer.start(key("a"), 10, now_ms=0)
    assert list(timer.take_due(10)) == []
    assert timer.next_deadline_ms == 10
    timer.start(key("a"), 50, now_ms=10)
    assert list(timer.take_due(10)) == []
    assert run(timer, 1_000) == {"a": 60}


def test_what_is_done_about_one_timer_may_cancel_or_move_another_that_is_due_with_it() -> None:
    timer = CoordinatorTimer()
    for name in "abc":
        timer.start(key(name), 10, now_ms=0)
    assert list(timer.take_due(10)) == []
    fired = []
    for due in timer.take_due(10):
        fired.append(due.member_id)
        timer.cancel(key("b"))
        timer.start(key("c"), 5, now_ms=10)
    assert fired == ["a"]
    assert run(timer, 1_000) == {"c": 15}


def test_a_process_that_stood_still_blames_nobody_for_it() -> None:
    timer = CoordinatorTimer()
    timer.start(key("a"), 50, now_ms=0)
    assert list(timer.take_due(400)) == []
    assert timer.next_deadline_ms == 750
    assert list(timer.take_due(750)) == []
    assert list(timer.take_due(750)) == [key("a")]


def test_a_little_late_is_not_late() -> None:
    timer = CoordinatorTimer()
    timer.start(key("a"), 50, now_ms=0)
    assert list(timer.take_due(50 + LATE_MS)) == []
    assert list(timer.take_due(50 + LATE_MS)) == [key("a")]


def test_a_timer_of_no_time_at_all_fires_and_may_be_moved_on() -> None:
    timer = CoordinatorTimer()
    timer.start(key("moved"), 0, now_ms=7)
    timer.start(key("moved"), 20, now_ms=7)
    timer.start(key("other"), 0, now_ms=7)
    assert run(timer, 1_000) == {"other": 7, "moved": 27}


def test_members_that_come_and_go_leave_nothing_behind_for_long() -> None:
    """Their sessions would have been due in minutes."""
    timer = CoordinatorTimer()
    for number in range(10_000):
        timer.start(key(str(number)), 300_000, now_ms=number)
        if number >= 10:
            timer.cancel(key(str(number - 10)))
    assert len(timer._queue) <= 2 * 11 + STALE_ENTRIES
    fired = run(timer, 10**6)
    assert fired == {str(number): 300_000 + number for number in range(9_990, 10_000)}


def test_nothing_fires_after_clear() -> None:
    timer = CoordinatorTimer()
    timer.start(key("queued"), 20, now_ms=0)
    timer.start(key("due"), 1, now_ms=0)
    assert list(timer.take_due(1)) == []
    timer.clear()
    assert timer.next_deadline_ms is None
    assert list(timer.take_due(100)) == []
