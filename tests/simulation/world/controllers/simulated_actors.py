"""The controller and the voters as a node of the simulation reaches them by name, as Ray has them.

How a node finds the controller, gives it up and asks again is shipped: controller/node/controller_finder, and its
driver, actors/controller/controller_handle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bradbury.cluster.quorum.voter import Candidate
from bradbury.controller.controller_calls import PollMetadata
from bradbury.controller.node.controller_finder import BROKER_PREFIX, ControllerTimes
from bradbury.protocol.errors import ConnectionFailed

from ..simulated_network import LOST, Answer, Process

if TYPE_CHECKING:
    from ..simulated_node import SimulatedNode
    from .simulated_controller import SimulatedController

CONTROLLER_MS = 250
VOTE_MS = 100
TIMES = ControllerTimes(retry_ms=20, find_ms=150, silence_ms=3_000, least_wait_ms=250)
"""Some times shorter than in life, as sessions are. A silent one is LOST before `silence`."""


def actor_name(node_id: int) -> str:
    """The name of a broker's actor."""
    return f"{BROKER_PREFIX}n{node_id}"


class SimulatedActors:
    """Implements ControllerActors of controller_handle."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node

    def find(self, name: str) -> _ReachedController:
        controller = self._node.cluster.controller_named(name)
        if controller is None:
            raise ConnectionFailed(f"there is no actor {name!r} (yet)")
        return _ReachedController(self._node, controller)

    async def vote_of(self, name: str) -> Candidate:
        target = self._node.cluster.nodes[int(name.removeprefix(actor_name(0)[:-1]))]

        def told(answer: Answer) -> None:
            answer(None if target.voter is None else target.voter.step.vote)

        found = await called(self._node, target.process, told, VOTE_MS, "vote")
        if found is None:
            raise ConnectionFailed("it has no voter")
        vote: Candidate = found
        return vote


class _ReachedController:
    """Implements ReachedController of controller_handle."""

    def __init__(self, node: SimulatedNode, controller: SimulatedController) -> None:
        self._node, self._controller = node, controller

    async def ask(self, asked: Any) -> Any:
        node, controller = self._node, self._controller
        return await called(
            node,
            controller.process,
            lambda answer: controller.ask(asked, answer),
            CONTROLLER_MS
            + (node.cluster.swarm.session_ms // 3 if isinstance(asked, PollMetadata) else 0),
            type(asked).__name__,
        )


async def called(
    node: SimulatedNode,
    target: Process,
    handle: Callable[[Answer], None],
    timeout_ms: int,
    what: str,
) -> Any:
    """The answer to one call of a node. Raises what was answered, ConnectionFailed: it is lost."""
    answer = node.loop.create_future()

    def answered(result: Any) -> None:
        if not answer.done():
            answer.set_result(result)

    node.cluster.network.call(
        node.process, target, handle, answered, timeout_ms=timeout_ms, what=what
    )
    result = await answer
    if result is LOST:
        raise ConnectionFailed("lost")
    if isinstance(result, Exception):
        raise result
    return result
