"""A controller in this process: drives controller/quorum_controller. Calls, threads, timers."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...cluster.metadata.cluster_health import ClusterHealth
from ...cluster.metadata.metadata_image import MetadataImage
from ...cluster.quorum.voter import Promise
from ...controller.controller_calls import ControllerCall
from ...controller.effects import (
    AskVoter,
    Ended,
    FindVoters,
    FoundVoters,
    Instant,
    ProbePort,
    Refuse,
    Reply,
    RunAside,
)
from ...controller.quorum_controller import QuorumController
from ...controller.quorum_times import QuorumTimes
from ...handlers.configs.config_rules import ServerConfigRules
from ...handlers.ports.context import Controller as ControllerPort
from ...handlers.ports.server_config import ServerConfig
from ..loop.carry_through import within
from ..network.peer_connection import is_port_closed
from .voter_host import Voter

logger = logging.getLogger(__name__)

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
        self._now_ms = now_ms
        self._on_superseded = on_superseded
        self._effects: list[Any] = []
        rules = ServerConfigRules(server)
        self._step = QuorumController(
            name, server.broker, rules, self._effects, times or QuorumTimes()
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def image(self) -> MetadataImage:
        return self._step.image

    @property
    def voters(self) -> dict[str, int]:
        """See QuorumController."""
        return self._step.voters

    @property
    def me(self) -> Promise:
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
        """Return when active. Retries for ever what can come right by itself: absent voters.

        May be called again once it was superseded; it then begins anew, in a newer epoch.

        Raises:
            Superseded: a newer controller was faster.
        """
        self._is_closed = False
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._step.start(ticket, self._now())
        self._perform()
        try:
            await ticket
        except asyncio.CancelledError:
            self._step.stop("its start was given up")
            self._perform()
            raise

    async def ask(self, call: ControllerCall[A]) -> A:
        """Carry out a call. Raises what it says, NotController."""
        ticket: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._step.handle(ticket, call, self._now())
        self._perform()
        return await ticket

    def end(self, reason: str) -> None:
        """Somebody else is the controller now: no change is made any more."""
        self._step.end(reason)
        self._perform()

    def resign(self, reason: str) -> None:
        """It ends without being asked to by voters: no change is made any more."""
        self._step.resign(reason)
        self._perform()

    async def close(self) -> None:
        """Returns when no change is under way any more."""
        self.resign("it is shut down")
        self._is_closed = True
        self._perform()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- effects ---------------------------------------------------------------------------------

    def _now(self) -> Instant:
        """Sessions are counted on a clock that never jumps."""
        return Instant(int(asyncio.get_running_loop().time() * 1000), self._now_ms())

    def _perform(self) -> None:
        effects, self._effects[:] = self._effects[:], []
        for effect in effects:
            match effect:
                case Reply(ticket, answer) if not ticket.done():
                    ticket.set_result(answer)
                case Refuse(ticket, error) if not ticket.done():
                    ticket.set_exception(error)
                case AskVoter() | FindVoters() | RunAside() | ProbePort():
                    task = asyncio.create_task(self._run(effect))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                case Ended():
                    self._on_superseded()
        self._set_timer()

    async def _run(self, effect: Any) -> None:
        result: Any
        try:
            result = await self._result_of(effect)
        except Exception as error:  # noqa: BLE001 -- the step decides what comes of it
            result = error
        self._input(lambda now: self._step.on_done(effect, result, now))

    async def _result_of(self, effect: Any) -> Any:
        match effect:
            case AskVoter(voter, request, timeout_ms):
                return await within(timeout_ms / 1000, voter.ask(request))
            case FindVoters():
                return FoundVoters(list(self._find_voters()), uuid.uuid4().hex)
            case RunAside(work):
                return await asyncio.to_thread(work)
            case ProbePort(host, port):
                return await is_port_closed(host, port)

    def _on_time(self) -> None:
        self._timer = None
        self._input(self._step.on_tick)

    def _input(self, give: Callable[[Instant], None]) -> None:
        if self._is_closed:
            return
        try:
            give(self._now())
        except Exception as error:
            logger.exception("the controller")
            self._step.end(f"a fault: {error!r}")
        self._perform()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self._step.next_deadline_ms
        if deadline_ms is not None and not self._is_closed:
            # Rounded up: a tick that comes early would be one too many.
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at((deadline_ms + 1) / 1000, self._on_time)
