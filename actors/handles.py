"""The controller and the voters as other Ray actors reach them: handles behind plain ports.

A call that Ray could not deliver becomes ConnectionFailed (try again, perhaps after looking the
actor up anew); an error that the other side raised becomes itself again, without Ray's traceback.
No method here is called per record or per batch.
"""

from __future__ import annotations

import uuid
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import GetTimeoutError, RayActorError, RaySystemError, RayTaskError

from ..cluster.controller_state import NewTopic, NodeRegistration
from ..cluster.voter import Promise
from ..handlers.context import CreatedTopic
from ..protocol.errors import ConnectionFailed, KafkaError
from .controller import MetadataUpdate, Registered
from .voter_host import VoterState

CONTROLLER = "controller"


async def call(method: Any, *arguments: Any, **keywords: Any) -> Any:
    """Await one actor call. Raises what the method raised, or ConnectionFailed."""
    try:
        return await method.remote(*arguments, **keywords)
    except RayTaskError as error:
        if isinstance(error.cause, KafkaError | ConnectionFailed):
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

    async def create_topic(
        self, topic: NewTopic, *, timeout_ms: int, validate_only: bool
    ) -> CreatedTopic:
        created: CreatedTopic = await self._call(
            "create_topic", topic, timeout_ms=timeout_ms, validate_only=validate_only
        )
        return created

    async def delete_topic(
        self, *, name: str | None, topic_id: uuid.UUID | None, timeout_ms: int
    ) -> str:
        deleted: str = await self._call(
            "delete_topic", name=name, topic_id=topic_id, timeout_ms=timeout_ms
        )
        return deleted

    async def allocate_producer_ids(self) -> tuple[int, int]:
        block: tuple[int, int] = await self._call("allocate_producer_ids")
        return block


class VoterHandle:
    """Implements controller.Voter over a BrokerActor."""

    def __init__(self, handle: ActorHandle[Any]) -> None:
        self._handle = handle

    async def state(self) -> VoterState:
        state: VoterState = await call(self._handle.voter_state)
        return state

    async def format(self, cluster_id: str) -> None:
        await call(self._handle.voter_format, cluster_id)

    async def prepare(self, asked: Promise) -> VoterState:
        state: VoterState = await call(self._handle.voter_prepare, asked)
        return state

    async def fetch(self) -> bytes:
        log: bytes = await call(self._handle.voter_fetch)
        return log

    async def append(self, asked: Promise, previous_end_offset: int, batch: bytes) -> int:
        end: int = await call(self._handle.voter_append, asked, previous_end_offset, batch)
        return end
