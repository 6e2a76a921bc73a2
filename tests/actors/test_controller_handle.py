"""Does the driver of the controller's finder ask, answer and cancel what the step says?"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bradbury.actors.controller.controller_handle import ControllerHandle
from bradbury.controller.controller_calls import DescribeQuorum
from bradbury.controller.node.controller_finder import CONTROLLER, ControllerTimes
from bradbury.protocol.errors import ConnectionFailed, StaleBrokerEpoch


class Actors:
    """Implements ControllerActors and ReachedController: the answers come from a test."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.found: list[str] = []
        self.waiting: list[asyncio.Future[Any]] = []

    def find(self, name: str) -> Actors:
        self.found.append(name)
        if not self.answers:
            raise ConnectionFailed("nobody")
        return self

    async def ask(self, asked: Any) -> Any:
        answer = self.answers.pop(0)
        if answer is None:
            self.waiting.append(asyncio.get_running_loop().create_future())
            return await self.waiting[-1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def vote_of(self, name: str) -> Any:
        raise ConnectionFailed("no voter")


TIMES = ControllerTimes(retry_ms=5, find_ms=20, least_wait_ms=5_000)


def test_a_call_is_answered_refused_or_sent_again() -> None:
    async def scenario() -> None:
        actors = Actors("state", StaleBrokerEpoch("old"), ConnectionFailed("lost"), "again")
        handle: Any = ControllerHandle(actors, times=TIMES)
        assert await handle.ask(DescribeQuorum()) == "state"
        with pytest.raises(StaleBrokerEpoch):
            await handle.ask(DescribeQuorum())
        assert await handle.ask(DescribeQuorum()) == "again"
        assert actors.found == [CONTROLLER, CONTROLLER]

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_who_is_cancelled_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        before = asyncio.all_tasks()
        actors = Actors(None)
        handle: Any = ControllerHandle(actors, times=TIMES)
        asked = asyncio.create_task(handle.ask(DescribeQuorum()))
        while not actors.waiting:
            await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await asyncio.sleep(0)
        assert actors.waiting[0].cancelled()
        assert asyncio.all_tasks() == before

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_a_pending_call_goes_to_the_next_controller() -> None:
    async def scenario() -> None:
        actors = Actors(None, "state")
        handle: Any = ControllerHandle(actors, times=TIMES)
        asked = asyncio.create_task(handle.ask(DescribeQuorum()))
        while not actors.waiting:
            await asyncio.sleep(0)
        handle.find_controller_again()
        assert await asked == "state"
        await asyncio.sleep(0)
        assert actors.waiting[0].cancelled()

    asyncio.run(asyncio.wait_for(scenario(), 30))
