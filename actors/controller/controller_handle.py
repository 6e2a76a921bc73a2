"""The controller as a node reaches it: found by the voters' votes, and found again when it changes.

No method here is called per record or per batch. Ray is behind ControllerActors; see handles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from ...cluster.metadata.metadata_image import MetadataImage
from ...cluster.quorum.candidacy import Candidacy
from ...cluster.quorum.voter import Candidate
from ...controller.controller_calls import (
    ControlledShutdown,
    ControllerCall,
    MetadataUpdate,
    PollMetadata,
    RegisterBroker,
    ReportUnreachableBroker,
    as_repeated,
)
from ...handlers.ports.context import Controller
from ...protocol.errors import ConnectionFailed, NotController

A = TypeVar("A")
CONTROLLER = "controller"
BROKER_PREFIX = "broker/"
AT_ONCE = (RegisterBroker, ControlledShutdown, ReportUnreachableBroker)
"""Calls that fail when there is no controller now: callers retry."""
LOOK_S = 0.5
"""Longest time that counts at a time while a poll waits; more of it at once is a standstill."""


@dataclass(frozen=True, slots=True)
class ControllerTimes:
    """Time limits of a ControllerHandle, in seconds.

    silence: a poll without news is answered after QuorumTimes.poll_ms at the latest; a controller
        that is silent for longer is given up.
    least_wait: least time that a request waits for a controller. Clients set short timeouts for
        admin requests; a restarted controller is back within this.
    """

    retry: float = 0.1
    find: float = 1.0
    silence: float = 6.0
    least_wait: float = 10.0


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


class _Target:
    """Actor currently regarded as the controller; `gone` ends the calls that still wait for it."""

    def __init__(self, actor: ReachedController) -> None:
        self._actor = actor
        self.gone = asyncio.Event()

    async def ask(self, asked: ControllerCall[A]) -> A:
        """Make a call. Raises what it raises; ConnectionFailed also if the actor is given up."""
        answer: asyncio.Future[Any] = asyncio.ensure_future(self._actor.ask(asked))
        gone: asyncio.Future[Any] = asyncio.ensure_future(self.gone.wait())
        try:
            await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise ConnectionFailed(
                    "the controller has changed; the request is sent to the new one"
                )
            result: A = answer.result()
            return result
        finally:
            gone.cancel()
            answer.cancel()


class ControllerHandle(Controller):
    """The controller as a node reaches it.

    It is the actor named CONTROLLER; if that does not answer, the one that the voters have
    voted for, which may be a broker with a standby controller.
    """

    def __init__(
        self,
        actors: ControllerActors,
        image: Callable[[], MetadataImage] = MetadataImage,
        times: ControllerTimes = ControllerTimes(),
    ) -> None:
        self._actors = actors
        self._image = image
        self._times = times
        self._target: _Target | None = None
        self._is_lost = False
        self._vote: Candidate | None = None
        """Newest known vote; a newer one names the next controller. None: none is known."""
        self._epoch = -1
        """Epoch of the newest controller that has answered."""
        self.candidacy = Candidacy()

    async def _ask_once(self, asked: ControllerCall[A]) -> A:
        target = self._target
        if target is None:
            target = self._target = await self._find()
        call: Any = asked
        if isinstance(asked, PollMetadata) and self._vote is not None:
            call = replace(asked, newest_epoch=self._vote.epoch)
        try:
            answer: A = await target.ask(call)
            return answer
        except (ConnectionFailed, NotController):
            self._give_up(target)
            raise

    def find_controller_again(self) -> None:
        """Give up the controller, as another may be active: pending calls end, later ones look."""
        self._give_up(self._target)

    def _give_up(self, target: _Target | None) -> None:
        self._is_lost = True
        if target is not None and target is self._target:
            self._target = None
            target.gone.set()

    async def _find(self) -> _Target:
        name = CONTROLLER
        if self._is_lost:
            # The lost controller is not asked again at once: if its node is dead and Ray does not
            # know yet, that takes a second, and the next controller is elected anyway.
            deadline = asyncio.get_running_loop().time() + self._times.find
            newest = await self._newest_vote()
            while newest in (None, self._vote):
                if asyncio.get_running_loop().time() > deadline:
                    break
                await asyncio.sleep(self._times.retry)
                newest = await self._newest_vote()
            self._vote = newest
            owner = "" if newest is None else newest.owner.partition(" ")[0]
            if owner.startswith(BROKER_PREFIX):
                name = owner
        return _Target(self._actors.find(name))

    async def _newest_vote(self) -> Candidate | None:
        """Newest vote of a majority of the voters, or of those that answer; None if none does."""
        names = self._voter_actors()
        asked = [asyncio.ensure_future(self._actors.vote_of(name)) for name in names]
        pending = set(asked)
        votes: list[Candidate] = []
        deadline = asyncio.get_running_loop().time() + self._times.find
        try:
            while pending and len(votes) <= len(names) // 2:
                rest = deadline - asyncio.get_running_loop().time()
                done, pending = await asyncio.wait(
                    pending, timeout=max(0.0, rest), return_when=asyncio.FIRST_COMPLETED
                )
                votes = [each.result() for each in asked if _has_result(each)]
                if not done:
                    break
        finally:  # also when nobody waits for the answer any more
            for late in [each for each in asked if each in pending]:
                late.add_done_callback(_retrieve)
                late.cancel()
        return max(votes, key=lambda vote: vote.epoch, default=None)

    def _voter_actors(self) -> list[str]:
        image = self._image()
        return [
            node.name.rpartition("/")[0]
            for node in image.nodes.values()
            if node.metadata_directory_id in image.voters and node.name.startswith(BROKER_PREFIX)
        ]

    async def ask(self, call: ControllerCall[A]) -> A:
        """Answer of the controller to a call.

        Calls other than polls and AT_ONCE are retried while a controller restarts.

        Raises:
            NotController, ConnectionFailed: there is none (yet). Also what the call raises.
        """
        answer: Any
        if isinstance(call, PollMetadata):
            answer = await self._poll(call)
        elif isinstance(call, AT_ONCE):
            answer = await self._ask_once(call)
        else:
            answer = await self._insist(call)
        typed: A = answer
        return typed

    async def _poll(self, call: PollMetadata) -> MetadataUpdate:
        """Poll for metadata; a controller that does not answer within `silence` is given up."""
        loop = asyncio.get_running_loop()
        try:
            update = await self._answer_of(call)
        except (ConnectionFailed, NotController, TimeoutError) as error:
            if isinstance(error, TimeoutError):
                self._give_up(self._target)
            self.candidacy.on_poll_failed(
                now_ms=int(loop.time() * 1000), is_reachable=isinstance(error, NotController)
            )
            if isinstance(error, TimeoutError):
                raise ConnectionFailed("the controller does not answer") from None
            raise
        if update.controller_epoch < self._epoch:
            # A newer one was elected; this one had nothing to write since, and does not know it.
            self._give_up(self._target)
            self.candidacy.on_poll_failed(now_ms=int(loop.time() * 1000), is_reachable=True)
            raise NotController(
                f"a newer controller than that of epoch {update.controller_epoch} is active"
            )
        self._epoch = update.controller_epoch
        self.candidacy.on_poll_answered()
        self._is_lost = False
        if self._vote is None and self._voter_actors():
            self._vote = await self._newest_vote()
        return update

    async def _answer_of(self, call: PollMetadata) -> MetadataUpdate:
        """Answer to a poll, for which `silence` is waited. Raises TimeoutError.

        Only time for which this process ran counts. When it stood still (SIGSTOP, a suspended
        machine), the controller's answer may be here already, and each node that stood still would
        otherwise start a standby controller.
        """
        loop = asyncio.get_running_loop()
        answer = asyncio.ensure_future(self._ask_once(call))
        silent_s = 0.0
        try:
            while silent_s < self._times.silence:
                began = loop.time()
                rest_s = min(LOOK_S, self._times.silence - silent_s)
                await asyncio.wait((answer,), timeout=rest_s)
                if answer.done():
                    return answer.result()
                silent_s += min(LOOK_S, loop.time() - began)
            raise TimeoutError
        finally:
            answer.cancel()

    async def _insist(self, call: ControllerCall[A]) -> A:
        """Answer to a call, which is retried while the controller restarts.

        Raises:
            NotController: it did not come back within the call's timeout_ms, or `least_wait`.
        """
        loop = asyncio.get_running_loop()
        wait_s = max(getattr(call, "timeout_ms", 0) / 1000, self._times.least_wait)
        deadline = loop.time() + wait_s
        lost = False
        while True:
            try:
                return await self._ask_once(call)
            except (ConnectionFailed, NotController) as error:
                lost = lost or isinstance(error, ConnectionFailed)
                if lost:
                    call = as_repeated(call)
                if loop.time() > deadline:
                    raise NotController(f"no controller to ask: {error}; try again") from None
                await asyncio.sleep(self._times.retry)


def _has_result(answer: asyncio.Future[Candidate]) -> bool:
    return answer.done() and not answer.cancelled() and answer.exception() is None


def _retrieve(late: asyncio.Future[Candidate]) -> None:
    """Retrieve and ignore the exception of a vote that came too late."""
    if not late.cancelled():
        late.exception()
