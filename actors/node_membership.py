"""A node's membership in its cluster: the driver of controller/node/node_lifecycle.

It also runs the procedures by which the node applies an image and shuts down.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable

from ..cluster.control.controller_state import NodeRegistration
from ..controller.controller_effects import (
    ApplyMetadata,
    AskController,
    Fenced,
    StoreIdentity,
)
from ..controller.node.node_lifecycle import BrokerIncarnation, NodeLifecycle
from ..handlers.ports.context import Controller
from ..replication.procedure import Condition, ProcedureSteps
from .controller.two_clock_driver import TwoClockDriver
from .loop.awaited_end import AwaitedEnd
from .loop.step_driver import StepDriver


class NodeMembership:
    """Life of one node with the controller, on one event loop."""

    def __init__(
        self,
        controller: Controller,
        session_ms: int,
        *,
        now_ms: Callable[[], int],
        store_identity: Callable[[StoreIdentity], Awaitable[None]],
        apply: Callable[[ApplyMetadata], Awaitable[None]],
        on_fenced: Callable[[str], None],
    ) -> None:
        """`session_ms`: session timeout; the controller fences a node without heartbeats after it.

        `on_fenced`: ends the node, whose incarnation is not registered any more; called with the
        reason.
        """
        self.incarnation = secrets.token_hex(8)
        self.on_fenced = on_fenced
        self._driver = driver = TwoClockDriver(now_ms)
        life = BrokerIncarnation(self.incarnation, session_ms)
        self._lifecycle = NodeLifecycle(life, driver.effects)
        driver.on_awaited(AskController, lambda effect: controller.ask(effect.call))
        driver.on_awaited(StoreIdentity, store_identity)
        driver.on_awaited(ApplyMetadata, apply)
        driver.on(Fenced, lambda effect: on_fenced(effect.reason))
        driver.drive(self._lifecycle)
        self._procedures = StepDriver()

    @property
    def controller_epoch(self) -> int:
        """Epoch of the newest controller that has answered."""
        return self._lifecycle.controller_epoch

    async def register(self, registration: NodeRegistration) -> None:
        """Register. Waits for a controller; raises its error if it refuses the node."""
        await self._driver.ask(lambda ticket: self._lifecycle.register(ticket, registration))

    async def follow(self) -> None:
        """Follow the metadata from now on; returns when the first image is applied."""
        await self._driver.ask(self._lifecycle.follow)

    async def leave(self) -> bool:
        """Hand leadership to others; False if no controller has answered."""
        return await self._driver.ask(
            lambda ticket: self._lifecycle.leave(ticket, self._driver.now())
        )

    def close(self) -> None:
        """Stop heartbeats, and apply no more images."""
        self._lifecycle.stop()
        self._driver.cancel()
        self._driver.carry_out()

    async def run(self, steps: ProcedureSteps) -> None:
        """Run a procedure of the node; raise what it raises."""
        await self._procedures.run(steps)

    def ended(self, run: Callable[[], Awaitable[object]]) -> Condition:
        """Condition that a coroutine or future has ended, for a procedure given to `run`."""
        return AwaitedEnd(self._procedures, run)
