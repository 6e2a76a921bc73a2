"""The controller and the voters as other Ray actors reach them: handles behind plain ports.

A call that Ray could not deliver becomes ConnectionFailed (try again, perhaps after looking the
actor up again); an error of the actor's method is raised as it was, without Ray's traceback.
No method here is called per record or per batch.
"""

from __future__ import annotations

from typing import Any, TypeVar

import ray
from ray.actor import ActorHandle
from ray.exceptions import GetTimeoutError, RayActorError, RaySystemError, RayTaskError

from ...cluster.quorum.voter import Candidate, CommittedEntryLost
from ...controller.controller_calls import ControllerCall
from ...controller.node.controller_finder import BROKER_PREFIX, CONTROLLER
from ...controller.voter_requests import DescribeVoter, QuorumRequest
from ...protocol.errors import ConnectionFailed, KafkaError

A = TypeVar("A")


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


class RayActors:
    """Implements controller_handle.ControllerActors."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def find(self, name: str) -> RayController:
        return RayController(self._handle(name), is_standby=name != CONTROLLER)

    async def vote_of(self, name: str) -> Candidate:
        state = await VoterHandle(self._handle(name)).ask(DescribeVoter())
        return state.vote

    def _handle(self, name: str) -> ActorHandle[Any]:
        try:
            return ray.get_actor(name, namespace=self._namespace)
        except ValueError:
            raise ConnectionFailed(f"there is no actor {name!r} (yet)") from None


class RayController:
    """Implements controller_handle.ReachedController."""

    def __init__(self, handle: ActorHandle[Any], *, is_standby: bool) -> None:
        self._method: Any = handle.ask_standby if is_standby else handle.ask

    async def ask(self, asked: ControllerCall[A]) -> A:
        answer: A = await call(self._method, asked)
        return answer


def find_voters(namespace: str) -> list[VoterHandle]:
    """Handles of all brokers that exist, by name; each broker may hold a copy of the metadata."""
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

    async def ask(self, request: QuorumRequest[A]) -> A:
        answer: A = await call(self._handle.ask_voter, request)
        return answer
