"""When does a timer of a session fire?"""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import uvloop

from bradbury.actors.deadline_timers import DeadlineTimers

TICK = 0.002
"""uvloop's clock counts milliseconds."""


def run(work: Coroutine[Any, Any, None]) -> None:
    """On uvloop, as in a broker: its handles differ from asyncio's."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(work, 10))


def stand_still(seconds: float) -> None:
    """The whole loop does: no heartbeat can be read meanwhile."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


class Fired:
    """The keys that came due, and when."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self.timers = DeadlineTimers[str](self.on_due)
        self.began = asyncio.get_running_loop().time()
        self.happened = asyncio.Event()

    def on_due(self, key: str) -> None:
        assert key not in self.at
        self.at[key] = asyncio.get_running_loop().time() - self.began
        self.happened.set()


def test_timers_fire_once_and_in_the_order_of_their_deadlines() -> None:
    async def scene() -> None:
        fired = Fired()
        fired.timers.start("late", 40)
        fired.timers.start("early", 10)
        while len(fired.at) < 2:
            await fired.happened.wait()
            fired.happened.clear()
        assert list(fired.at) == ["early", "late"]
        assert fired.at["late"] >= 0.04 - TICK

    run(scene())


def test_a_deadline_that_is_moved_on_counts_from_the_last_move() -> None:
    async def scene() -> None:
        fired = Fired()
        fired.timers.start("key", 20)
        fired.timers.start("key", 80)
        await fired.happened.wait()
        assert fired.at["key"] >= 0.08 - TICK

    run(scene())


def test_a_deadline_may_be_moved_to_an_earlier_time() -> None:
    async def scene() -> None:
        fired = Fired()
        fired.timers.start("key", 60_000)
        fired.timers.start("key", 10)
        await fired.happened.wait()
        assert fired.at["key"] < 5

    run(scene())


def test_a_cancelled_timer_does_not_fire() -> None:
    async def scene() -> None:
        fired = Fired()
        fired.timers.start("gone", 5)
        fired.timers.start("kept", 15)
        fired.timers.cancel("gone")
        fired.timers.cancel("never there")
        await fired.happened.wait()
        assert list(fired.at) == ["kept"]
        fired.timers.start("gone", 5)
        fired.happened.clear()
        await fired.happened.wait()
        assert list(fired.at) == ["kept", "gone"]

    run(scene())


def test_a_request_that_is_waiting_when_the_deadline_passes_still_counts() -> None:
    """It was on its way: its handler runs in the same turn, after the timer."""

    async def scene() -> None:
        fired = Fired()
        loop = asyncio.get_running_loop()
        fired.timers.start("key", 10)
        loop.call_at(fired.began + 0.010, lambda: fired.timers.start("key", 50))
        await fired.happened.wait()
        assert fired.at["key"] >= 0.05 - TICK

    run(scene())


def test_a_process_that_stood_still_blames_nobody_for_it() -> None:
    async def scene() -> None:
        fired = Fired()
        fired.timers.start("key", 50)
        stand_still(0.4)
        await fired.happened.wait()
        assert fired.at["key"] >= 0.7 - TICK

    run(scene())


def test_a_timer_of_no_time_at_all_fires_and_may_be_moved_on() -> None:
    async def scene() -> None:
        fired = Fired()
        fired.timers.start("key", 0)
        fired.timers.start("key", 20)
        fired.timers.start("other", 0)
        while len(fired.at) < 2:
            await fired.happened.wait()
            fired.happened.clear()
        assert fired.at["key"] >= 0.02 - TICK

    run(scene())


def test_nothing_fires_after_close() -> None:
    async def scene() -> None:
        fired = Fired()
        fired.timers.start("key", 1)
        fired.timers.close()
        other = Fired()
        other.timers.start("key", 10)
        await other.happened.wait()
        assert fired.at == {}

    run(scene())
