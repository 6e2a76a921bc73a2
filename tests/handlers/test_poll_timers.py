"""Do long polls that share a timer end at their time, in the order in which they came?"""

import asyncio
import gc
import weakref

import pytest

from bradbury.handlers.records.poll_timers import PARTS, PollTimers, poll_timers, tick_ms


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time goes on only when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0

    def time(self) -> float:
        return self.now

    def go_on(self, seconds: float) -> None:
        self.now += seconds
        self.run_until_complete(asyncio.sleep(0))


@pytest.fixture
def clock():
    loop = Clock()
    yield loop
    loop.close()


@pytest.mark.parametrize("wait_ms", [0, 1, 49, 50, 99, 100, 500, 30_000, 2**31 - 1])
def test_a_tick_is_at_most_a_fiftieth_of_the_wait_and_at_least_a_millisecond(wait_ms: int) -> None:
    tick = tick_ms(wait_ms)
    assert tick.bit_count() == 1
    assert tick == 1 or wait_ms / PARTS / 2 < tick <= wait_ms / PARTS


def test_polls_of_about_one_time_end_together_none_before_its_time(clock: Clock) -> None:
    timers, ended = PollTimers(), []
    for number in range(100):
        ends_at = clock.time() + 0.5 + number / 10_000
        timers.add(clock, lambda number=number: ended.append(number), ends_at, 500)
    assert len(timers) <= 3
    clock.go_on(0.5)
    assert ended == []
    clock.go_on(0.5099 - 0.5)
    assert ended == list(range(len(ended)))
    clock.go_on(0.0081)
    assert ended == list(range(100))
    assert len(timers) == 0


def test_a_poll_that_was_woken_before_keeps_no_timer(clock: Clock) -> None:
    timers, ended = PollTimers(), []
    due = timers.add(clock, lambda: ended.append("a"), clock.time() + 0.5, 500)

    def wake() -> None:
        ended.append("b")

    timers.add(clock, wake, clock.time() + 0.5, 500)
    timers.discard(wake, due)
    clock.go_on(1)
    assert ended == ["a"]
    timers.discard(wake, due)  # harmless
    assert timers.add(clock, wake, clock.time() + 0.5, 500) != due
    timers.discard(wake, due)
    clock.go_on(1)
    assert ended == ["a", "b"]
    timers.discard(wake, timers.add(clock, wake, clock.time() + 0.5, 500))
    assert len(timers) == 0


def test_each_loop_has_its_own(clock: Clock) -> None:
    other = Clock()
    assert poll_timers(clock) is poll_timers(clock)
    assert poll_timers(other) is not poll_timers(clock)
    other.close()


def test_a_loop_that_is_gone_is_not_held() -> None:
    other = Clock()
    timers = poll_timers(other)
    timers.discard(print, timers.add(other, print, other.time() + 0.5, 500))
    other.close()
    gone = weakref.ref(other)
    del other
    gc.collect()
    assert gone() is None
