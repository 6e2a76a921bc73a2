"""The controller and the voters as other Ray actors reach them: handles behind plain ports.

A call that Ray could not deliver becomes ConnectionFailed (try again, perhaps after looking the
actor up anew); an error that the other side raised becomes itself again, without Ray's traceback.
No method here is called per record or per batch.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, TypeVar

import ray
from ray.actor import ActorHandle
from ray.exceptions import GetTimeoutError, RayActorError, RaySystemError, RayTaskError

from ..cluster.controller_request import ControllerRequest
from ..cluster.controller_state import NodeRegistration
from ..cluster.voter import CommittedEntryLost, LogEnd, Promise
from ..handlers.context import QuorumState
from ..protocol.errors import (
    ConnectionFailed,
    KafkaError,
    NotController,
)
from .controller import MetadataUpdate, Registered
from .voter_host import AppendAnswer, InstallAnswer, VoterState

A = TypeVar("A")
CONTROLLER = "controller"
RETRY_SECONDS = 0.1
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


class ControllerHandle:
    """Implements node.ControllerLink."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._handle: ActorHandle[Any] | None = None

    async def _call(self, method: str, *arguments: Any, **keywords: Any) -> Any:
        if self._handle is None:
            try:
                self._handle = ray.get_actor(CONTROLLER, namespace=self._namespace)
            except ValueError:
                raise ConnectionFailed("there is no controller actor (yet)") from None
        try:
            return await call(getattr(self._handle, method), *arguments, **keywords)
        except ConnectionFailed:
            self._handle = None
            raise

    async def register(self, request: NodeRegistration) -> Registered:
        registered: Registered = await self._call("register", request)
        return registered

    async def poll(self, node_id: int, incarnation: str, applied: int) -> MetadataUpdate:
        update: MetadataUpdate = await self._call("poll", node_id, incarnation, applied)
        return update

    async def leave(self, node_id: int, incarnation: str) -> None:
        await self._call("leave", node_id, incarnation)

    async def suspect(self, node_id: int) -> None:
        await self._call("suspect", node_id)

    async def _insist(self, method: str, *arguments: Any, timeout_ms: int, **keywords: Any) -> Any:
        """The answer, after waiting out a controller's restart.

        Raises:
            NotController: it did not come back within timeout_ms.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max(timeout_ms, MIN_WAIT_MS) / 1000
        lost = False
        while True:
            try:
                return await self._call(method, *arguments, **keywords)
            except (ConnectionFailed, NotController) as error:
                lost = lost or isinstance(error, ConnectionFailed)
                if lost and arguments and isinstance(arguments[0], ControllerRequest):
                    arguments = (replace(arguments[0], is_repeated=True), *arguments[1:])
                if loop.time() > deadline:
                    raise NotController(f"no controller to ask: {error}; try again") from None
                await asyncio.sleep(RETRY_SECONDS)

    async def change(self, request: ControllerRequest[A], *, timeout_ms: int) -> A:
        answer: A = await self._insist("change", request, timeout_ms, timeout_ms=timeout_ms)
        return answer

    async def quorum(self) -> QuorumState:
        state: QuorumState = await self._insist("quorum", timeout_ms=MIN_WAIT_MS)
        return state

    async def allocate_producer_ids(self) -> tuple[int, int]:
        first, count = await self._insist("allocate_producer_ids", timeout_ms=MIN_WAIT_MS)
        return first, count


class VoterHandle:
    """Implements metadata_log.Voter over a BrokerActor."""

    def __init__(self, handle: ActorHandle[Any]) -> None:
        self._handle = handle

    async def state(self) -> VoterState:
        state: VoterState = await call(self._handle.voter_state)
        return state

    async def format(self, cluster_id: str, voters: tuple[str, ...]) -> None:
        await call(self._handle.voter_format, cluster_id, voters)

    async def prepare(self, asked: Promise) -> VoterState:
        state: VoterState = await call(self._handle.voter_prepare, asked)
        return state

    async def fetch(self, asked: Promise, offset: int) -> bytes:
        log: bytes = await call(self._handle.voter_fetch, asked, offset)
        return log

    async def fetch_snapshot(self, asked: Promise, position: int) -> bytes:
        piece: bytes = await call(self._handle.voter_fetch_snapshot, asked, position)
        return piece

    async def install(
        self, asked: Promise, end: LogEnd, position: int, piece: bytes, size: int
    ) -> InstallAnswer:
        answer: InstallAnswer = await call(
            self._handle.voter_install, asked, end, position, piece, size
        )
        return answer

    async def append(
        self, asked: Promise, previous: LogEnd, batches: bytes, committed: int
    ) -> AppendAnswer:
        answer: AppendAnswer = await call(
            self._handle.voter_append, asked, previous, batches, committed
        )
        return answer
