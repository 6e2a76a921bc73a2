"""A controller in this process: drives controller/active. Calls, threads, timers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...cluster.metadata.cluster_health import ClusterHealth
from ...cluster.metadata.metadata_image import MetadataImage
from ...cluster.quorum.voter import Candidate
from ...controller.active.quorum_controller import QuorumController
from ...controller.controller_calls import ControllerCall
from ...controller.controller_effects import (
    AskVoter,
    Ended,
    FindVoters,
    FoundVoters,
    ProbePort,
    RunInThread,
)
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
    """The controller of a cluster, driven on one event loop. Create, then `start`."""

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
        """`name`: name of its actor, which voters report to nodes that search for it."""
        self._find_voters = voters
        self._driver = driver = TwoClockDriver(
            now_ms, on_fault=lambda error: self._step.end(f"unexpected error: {error!r}")
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
        """Log end offset of each voter, by name; see QuorumController."""
        return self._step.voters

    @property
    def me(self) -> Candidate:
        """Candidacy of this controller: its name and epoch; see QuorumController."""
        return self._step.me

    @property
    def is_active(self) -> bool:
        return self._step.is_active

    @property
    def waiting_for(self) -> str | None:
        """Description of what the controller waits for; None if it is active."""
        return self._step.waiting_for

    def health(self) -> ClusterHealth:
        """State of the partitions, as far as the controller knows."""
        return self._step.health()

    async def start(self) -> None:
        """Wait until the controller is active. Retries forever while voters are absent.

        May be called again once it was superseded; it then begins again, in a newer epoch.

        Raises:
            Superseded: a newer controller was faster.
        """
        try:
            await self._driver.ask(lambda ticket: self._step.start(ticket, self._driver.now()))
        except asyncio.CancelledError:
            self._step.stop("its start was cancelled")
            self._driver.carry_out()
            raise

    async def ask(self, call: ControllerCall[A]) -> A:
        """Carry out a call. Raises what the call raises, and NotController."""
        answer: A = await self._driver.ask(
            lambda ticket: self._step.handle(ticket, call, self._driver.now())
        )
        return answer

    def end(self, reason: str) -> None:
        """Stop making changes, since another controller is active."""
        self._step.end(reason)
        self._driver.carry_out()

    def resign(self, reason: str) -> None:
        """Resign without a newer controller: stop making changes."""
        self._step.resign(reason)
        self._driver.carry_out()

    async def close(self) -> None:
        """Resign, and wait until no change is in progress."""
        self.resign("it is shut down")
        await self._driver.shut_down()

    async def _find(self, effect: FindVoters) -> FoundVoters:
        return FoundVoters(list(self._find_voters()), uuid.uuid4().hex)


async def _ask_voter(effect: AskVoter) -> Any:
    return await within(effect.timeout_ms / 1000, effect.voter.ask(effect.request))
