"""Driver of controller/node/controller_finder: the controller as a node reaches it.

Nothing is decided here. No method here is called per record or per batch. Ray is behind
ControllerActors; see handles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from ...cluster.metadata.metadata_image import MetadataImage
from ...cluster.quorum.candidacy import Candidacy
from ...cluster.quorum.voter import Candidate
from ...controller.controller_calls import ControllerCall
from ...controller.controller_effects import AskActor, AskForVote, FindActor, StopAsking
from ...controller.node.controller_finder import ControllerFinder, ControllerTimes
from ...handlers.ports.context import Controller
from ...protocol.errors import ConnectionFailed
from ..loop.step_driver import StepDriver

A = TypeVar("A")


class ReachedController(Protocol):
    """An actor that is the controller, or runs a standby controller."""

    def ask(self, asked: ControllerCall[A]) -> Awaitable[A]:
        """Make a call. Raises what the call raises; ConnectionFailed: there is no answer."""
        ...


class ControllerActors(Protocol):
    """Access to the controller and the voters by the names of their actors."""

    def find(self, name: str) -> ReachedController:
        """Actor: CONTROLLER, or a broker with a standby. Raises ConnectionFailed: none (yet)."""
        ...

    async def vote_of(self, name: str) -> Candidate:
        """The vote of a broker's voter. Raises ConnectionFailed."""
        ...


class ControllerHandle(Controller):
    """The controller as a node reaches it. One event loop."""

    def __init__(
        self,
        actors: ControllerActors,
        image: Callable[[], MetadataImage] = MetadataImage,
        times: ControllerTimes | None = None,
    ) -> None:
        self._actors = actors
        self._driver = driver = StepDriver()
        self._finder = ControllerFinder(driver.effects, image, times or ControllerTimes())
        self._asked: dict[int, asyncio.Task[Any]] = {}
        """Tasks by the number of their effect."""
        driver.on(FindActor, self._find)
        driver.on(AskActor, self._ask_actor)
        driver.on(AskForVote, self._ask_for_vote)
        driver.on(StopAsking, self._stop)
        driver.watch(self._finder)

    @property
    def candidacy(self) -> Candidacy:
        return self._finder.candidacy

    async def ask(self, call: ControllerCall[A]) -> A:
        """Answer of the controller to a call.

        Calls other than polls and AT_ONCE are retried while a controller restarts.

        Raises:
            NotController, ConnectionFailed: there is none (yet). Also what the call raises.
        """
        ticket: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._finder.ask(ticket, call, self._driver.now_ms())
        self._driver.carry_out()
        try:
            return await ticket
        except asyncio.CancelledError:
            self._finder.forget(ticket)
            self._driver.carry_out()
            raise

    def find_controller_again(self) -> None:
        """Drop the current controller, as another may be active: pending calls fail, later calls
        search for it.
        """
        self._finder.find_again(self._driver.now_ms())
        self._driver.carry_out()

    # --- effects ---------------------------------------------------------------------------------

    def _find(self, effect: FindActor) -> None:
        async def find() -> ReachedController:
            return self._actors.find(effect.name)

        self._begin(effect.number, find())

    def _ask_actor(self, effect: AskActor) -> None:
        async def ask() -> Any:
            return await effect.actor.ask(effect.call)

        self._begin(effect.number, ask())

    def _ask_for_vote(self, effect: AskForVote) -> None:
        self._begin(effect.number, self._actors.vote_of(effect.name))

    def _stop(self, effect: StopAsking) -> None:
        self._asked.pop(effect.number).cancel()

    def _begin(self, number: int, asking: Any) -> None:
        task = asyncio.get_running_loop().create_task(asking)
        self._asked[number] = task
        task.add_done_callback(lambda done: self._end(number, done))

    def _end(self, number: int, task: asyncio.Task[Any]) -> None:
        """Report a result, unless StopAsking has cancelled the call."""
        result: Any
        if task.cancelled():
            result = ConnectionFailed("the call was cancelled")
        else:
            result = task.exception() or task.result()
        if self._asked.pop(number, None) is not None:
            self._finder.on_answer(number, result, self._driver.now_ms())
            self._driver.carry_out()
