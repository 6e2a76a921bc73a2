"""The controller and the voters as other Ray actors reach them: handles behind plain ports.

A call that Ray could not deliver becomes ConnectionFailed (try again, perhaps after looking the
actor up anew); an error that the other side raised becomes itself again, without Ray's traceback.
No method here is called per record or per batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import ray
from ray.actor import ActorHandle
from ray.exceptions import GetTimeoutError, RayActorError, RaySystemError, RayTaskError

from ..cluster.candidacy import Candidacy
from ..cluster.controller_request import ControllerRequest
from ..cluster.controller_state import NodeRegistration
from ..cluster.metadata_image import MetadataImage
from ..cluster.voter import CommittedEntryLost, Promise
from ..cluster.voter_change import VoterChange
from ..controller.voter_requests import DescribeVoter, VoterRequest
from ..handlers.context import QuorumState
from ..protocol.errors import (
    ConnectionFailed,
    KafkaError,
    NotController,
)
from .carry_through import within
from .controller import MetadataUpdate, Registered

A = TypeVar("A")
CONTROLLER = "controller"
BROKER_PREFIX = "broker/"
REPEATABLE = (ControllerRequest, VoterChange)
"""Requests that can be told that they are made once more."""
RETRY_SECONDS = 0.1
FIND_SECONDS = 1.0
SILENCE_SECONDS = 6.0
"""A question that waits for news is answered after controller.POLL_SECONDS at the latest."""
# Clients give admin requests little time; a restarted controller is back within this.
MIN_WAIT_MS = 10_000


async def call(method: Any, *arguments: Any, **keywords: Any) -> Any:
    """Await one actor call. Raises what the method raised, or ConnectionFailed."""
    try:
        return await method.remote(*arguments, **keywords)
    except RayTaskError as error:
        if isinstance(error.cause, KafkaError | ConnectionFailed | CommittedEntryLost):
            raise error.cause from None
        raise
    except (RayActorError, RaySystemError, GetTimeoutError) as error:
        raise ConnectionFailed(f"an actor does not answer: {type(error).__name__}") from None


class _Target:
    """Who is taken for the controller. `gone` ends the calls that still wait for it."""

    def __init__(self, handle: ActorHandle[Any], *, is_standby: bool) -> None:
        self._handle = handle
        self._is_standby = is_standby
        self.gone = asyncio.Event()

    async def call(self, method: str, *arguments: Any, **keywords: Any) -> Any:
        """Raises what it raised, ConnectionFailed also when it is given up meanwhile."""
        if self._is_standby:
            arguments, method = (method, *arguments), "call_standby"
        answer = asyncio.ensure_future(call(getattr(self._handle, method), *arguments, **keywords))
        gone = asyncio.ensure_future(self.gone.wait())
        try:
            await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise ConnectionFailed("another controller is asked now")
            return answer.result()
        finally:
            gone.cancel()
            answer.cancel()


class ControllerHandle:
    """Implements node.ControllerLink.

    The controller is the actor of that name; when that is not heard, the one whom the voters have
    promised their logs, who may be a broker that stands in for it (see standby).
    """

    def __init__(self, namespace: str, image: Callable[[], MetadataImage] = MetadataImage) -> None:
        self._namespace = namespace
        self._image = image
        self._target: _Target | None = None
        self._is_lost = False
        self._promise: Promise | None = None
        """The newest that was seen when the controller was lost last."""
        self._epoch = -1
        """Of the newest controller that has answered."""
        self.candidacy = Candidacy()

    async def _call(self, method: str, *arguments: Any, **keywords: Any) -> Any:
        target = self._target
        if target is None:
            target = self._target = await self._find()
        try:
            return await target.call(method, *arguments, **keywords)
        except (ConnectionFailed, NotController):
            self._give_up(target)
            raise

    def look_anew(self) -> None:
        """Somebody else may be the controller: who waits for the former one asks him."""
        self._give_up(self._target)

    def _give_up(self, target: _Target | None) -> None:
        self._is_lost = True
        if target is not None and target is self._target:
            self._target = None
            target.gone.set()

    async def _find(self) -> _Target:
        name = CONTROLLER
        if self._is_lost:
            # Whom we have lost is not asked again at once, which takes a second while its node is
            # dead and Ray does not know: who comes next has a promise of his own.
            deadline = asyncio.get_running_loop().time() + FIND_SECONDS
            newest = await self._newest_promise()
            while newest in (None, self._promise):
                if asyncio.get_running_loop().time() > deadline:
                    break
                await asyncio.sleep(RETRY_SECONDS)
                newest = await self._newest_promise()
            self._promise = newest
            owner = "" if newest is None else newest.owner.partition(" ")[0]
            if owner.startswith(BROKER_PREFIX):
                name = owner
        try:
            handle = ray.get_actor(name, namespace=self._namespace)
        except ValueError:
            raise ConnectionFailed(f"there is no actor {name!r} (yet)") from None
        return _Target(handle, is_standby=name != CONTROLLER)

    async def _newest_promise(self) -> Promise | None:
        """As far as a majority of the voters knows. None if nobody answers."""
        names = self._voter_actors()
        pending = {asyncio.ensure_future(self._promise_of(name)) for name in names}
        promises: list[Promise] = []
        deadline = asyncio.get_running_loop().time() + FIND_SECONDS
        while pending and len(promises) <= len(names) // 2:
            rest = deadline - asyncio.get_running_loop().time()
            done, pending = await asyncio.wait(
                pending, timeout=max(0.0, rest), return_when=asyncio.FIRST_COMPLETED
            )
            promises += [each.result() for each in done if each.exception() is None]
            if not done:
                break
        for late in pending:
            late.cancel()
        return max(promises, key=lambda promise: promise.epoch, default=None)

    def _voter_actors(self) -> list[str]:
        image = self._image()
        return [
            node.name.rpartition("/")[0]
            for node in image.nodes.values()
            if node.metadata_directory_id in image.voters and node.name.startswith(BROKER_PREFIX)
        ]

    async def _promise_of(self, name: str) -> Promise:
        try:
            handle = ray.get_actor(name, namespace=self._namespace)
        except ValueError:
            raise ConnectionFailed(f"there is no actor {name!r}") from None
        state = await VoterHandle(handle).ask(DescribeVoter())
        return state.promise

    async def register(self, request: NodeRegistration) -> Registered:
        registered: Registered = await self._call("register", request)
        return registered

    async def poll(self, node_id: int, incarnation: str, applied: int) -> MetadataUpdate:
        """What the controller has not answered after SILENCE_SECONDS it never will."""
        loop = asyncio.get_running_loop()
        try:
            update: MetadataUpdate = await within(
                SILENCE_SECONDS, self._call("poll", node_id, incarnation, applied)
            )
        except (ConnectionFailed, NotController, TimeoutError) as error:
            if isinstance(error, TimeoutError):
                self._give_up(self._target)
            self.candidacy.on_unheard(
                now_ms=int(loop.time() * 1000), is_reachable=isinstance(error, NotController)
            )
            if isinstance(error, TimeoutError):
                raise ConnectionFailed("the controller does not answer") from None
            raise
        if update.controller_epoch < self._epoch:
            # It was deposed and, having had nothing to write since, does not know it.
            self._give_up(self._target)
            self.candidacy.on_unheard(now_ms=int(loop.time() * 1000), is_reachable=True)
            raise NotController(f"the controller of epoch {update.controller_epoch} was deposed")
        self._epoch = update.controller_epoch
        self.candidacy.on_heard()
        self._is_lost = False
        if self._promise is None and self._voter_actors():
            self._promise = await self._newest_promise()
        return update

    async def leave(self, node_id: int, incarnation: str) -> None:
        await self._call("leave", node_id, incarnation)

    async def suspect(self, node_id: int) -> None:
        await self._call("suspect", node_id)

    async def _insist(self, method: str, *arguments: Any, wait_ms: int, **keywords: Any) -> Any:
        """The answer, after waiting out a controller's restart.

        Raises:
            NotController: it did not come back within wait_ms.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max(wait_ms, MIN_WAIT_MS) / 1000
        lost = False
        while True:
            try:
                return await self._call(method, *arguments, **keywords)
            except (ConnectionFailed, NotController) as error:
                lost = lost or isinstance(error, ConnectionFailed)
                if lost and arguments and isinstance(arguments[0], REPEATABLE):
                    arguments = (replace(arguments[0], is_repeated=True), *arguments[1:])
                if loop.time() > deadline:
                    raise NotController(f"no controller to ask: {error}; try again") from None
                await asyncio.sleep(RETRY_SECONDS)

    async def change(self, request: ControllerRequest[A], *, timeout_ms: int) -> A:
        answer: A = await self._insist("change", request, wait_ms=timeout_ms, timeout_ms=timeout_ms)
        return answer

    async def change_voter(self, request: VoterChange, *, timeout_ms: int) -> tuple[str, ...]:
        voters: tuple[str, ...] = await self._insist(
            "change_voter", request, wait_ms=timeout_ms, timeout_ms=timeout_ms
        )
        return voters

    async def quorum(self) -> QuorumState:
        state: QuorumState = await self._insist("quorum", wait_ms=MIN_WAIT_MS)
        return state

    async def allocate_producer_ids(self) -> tuple[int, int]:
        first, count = await self._insist("allocate_producer_ids", wait_ms=MIN_WAIT_MS)
        return first, count


def find_voters(namespace: str) -> list[VoterHandle]:
    """The brokers that there are, each of which may hold a copy of the metadata; by name."""
    names = ray.util.list_named_actors(all_namespaces=True)
    found = []
    for entry in sorted(names, key=lambda entry: str(entry["name"])):
        name = str(entry["name"])
        if entry["namespace"] == namespace and name.startswith(BROKER_PREFIX):
            try:
                found.append(VoterHandle(ray.get_actor(name, namespace=namespace)))
            except ValueError:
                continue
    return found


class VoterHandle:
    """Implements voter_host.Voter over a BrokerActor."""

    def __init__(self, handle: ActorHandle[Any]) -> None:
        self._handle = handle

    async def ask(self, request: VoterRequest[A]) -> A:
        answer: A = await call(self._handle.ask_voter, request)
        return answer
