"""A controller in this process: drives controller/quorum_controller. Calls, threads, timers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...cluster.metadata.cluster_health import ClusterHealth
from ...cluster.metadata.metadata_image import MetadataImage
from ...cluster.quorum.voter import Candidate
from ...controller.controller_calls import ControllerCall
from ...controller.controller_effects import (
    AskVoter,
    Ended,
    FindVoters,
    FoundVoters,
    ProbePort,
    RunInThread,
)
from ...controller.quorum_controller import QuorumController
from ...controller.quorum_times import QuorumTimes
from ...handlers.configs.config_rules import ServerConfigRules
from ...handlers.ports.context import Controller as ControllerPort
from ...handlers.ports.server_config import ServerConfig
from ..loop.carry_through import within
from ..network.peer_connection import is_port_closed
from .two_clock_driver import TwoClockDriver
from .voter_host import Voter

A = TypeVar("A")


class Controller(ControllerPort):
    """Create, then `start`. One event loop."""

    def __init__(
        self,
        voters: Callable[[], Sequence[Voter]],
        server: ServerConfig,
        *,
        now_ms: Callable[[], int],
        on_superseded: Callable[[], None],
        name: str = "controller",
        times: QuorumTimes | None = None,
    ) -> None:
        """`name`: of the actor that it runs in; voters tell it to those who look for it."""
        self._find_voters = voters
        self._driver = driver = TwoClockDriver(
            now_ms, on_fault=lambda error: self._step.end(f"a fault: {error!r}")
        )
        rules = ServerConfigRules(server)
        self._step = QuorumController(
            name, server.broker, rules, driver.effects, times or QuorumTimes()
        )
        driver.on_awaited(AskVoter, _ask_voter)
        driver.on_awaited(FindVoters, self._find)
        driver.on_awaited(ProbePort, lambda effect: is_port_closed(effect.host, effect.port))
        driver.on_awaited(RunInThread, lambda effect: asyncio.to_thread(effect.work))
        driver.on(Ended, lambda effect: on_superseded())
        driver.drive(self._step)

    @property
    def image(self) -> MetadataImage:
        return self._step.image

    @property
    def voters(self) -> dict[str, int]:
        """See QuorumController."""
        return self._step.voters

    @property
    def me(self) -> Candidate:
        """See QuorumController."""
        return self._step.me

    @property
    def is_active(self) -> bool:
        return self._step.is_active

    @property
    def waiting_for(self) -> str | None:
        """In words, what it waits for to become active; None if it is."""
        return self._step.waiting_for

    def health(self) -> ClusterHealth:
        """How the partitions are, as far as the controller knows."""
        return self._step.health()

    async def start(self) -> None:
        """Return when active. Retries forever what can recover by itself: absent voters.

        May be called again once it was superseded; it then begins again, in a newer epoch.

        Raises:
            Superseded: a newer controller was faster.
        """
        try:
            await self._driver.ask(lambda ticket: self._step.start(ticket, self._driver.now()))
        except asyncio.CancelledError:
            self._step.stop("its start was given up")
            self._driver.carry_out()
            raise

    async def ask(self, call: ControllerCall[A]) -> A:
        """Carry out a call. Raises what it says, NotController."""
        answer: A = await self._driver.ask(
            lambda ticket: self._step.handle(ticket, call, self._driver.now())
        )
        return answer

    def end(self, reason: str) -> None:
        """Somebody else is the controller now: no change is made any more."""
        self._step.end(reason)
        self._driver.carry_out()

    def resign(self, reason: str) -> None:
        """It ends without being asked to by voters: no change is made any more."""
        self._step.resign(reason)
        self._driver.carry_out()

    async def close(self) -> None:
        """Returns when no change is under way any more."""
        self.resign("it is shut down")
        await self._driver.give_up()

    async def _find(self, effect: FindVoters) -> FoundVoters:
        return FoundVoters(list(self._find_voters()), uuid.uuid4().hex)


async def _ask_voter(effect: AskVoter) -> Any:
    return await within(effect.timeout_ms / 1000, effect.voter.ask(effect.request))
