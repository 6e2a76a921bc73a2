"""Driver of controller/standby_controller: a broker's standby for an unresponsive controller."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ...cluster.metadata.metadata_image import MetadataImage
from ...cluster.quorum.candidacy import Candidacy
from ...controller.controller_effects import (
    AskStandby,
    EndStandby,
    Instant,
    ProbePort,
    StartStandby,
    VoteGranted,
)
from ...controller.standby_controller import StandbyController, StandbyTimes, StandbyView
from ...protocol.errors import ConnectionFailed, NotController
from ..network.peer_connection import is_port_closed
from .controller import Controller
from .two_clock_driver import TwoClockDriver
from .voter_host import VoterHost

MakeController = Callable[[Callable[[], None]], Controller]
"""Factory of a controller; its argument is called when that controller was superseded."""


class Standby:
    """The standby controller of a broker. `start` it when the node is made, then `close`."""

    def __init__(
        self,
        make: MakeController,
        *,
        voter: Callable[[], VoterHost],
        image: Callable[[], MetadataImage],
        candidacy: Candidacy,
        on_vote_granted: Callable[[], None] = lambda: None,
        times: StandbyTimes | None = None,
    ) -> None:
        """`on_vote_granted`: called when another process may have become the controller."""
        self._make = make
        self._voter = voter
        self._image = image
        self._driver = driver = TwoClockDriver(lambda: time.time_ns() // 1_000_000)
        self._step = StandbyController(candidacy, driver.effects, times)
        self._controller: Controller | None = None
        driver.on(VoteGranted, lambda effect: on_vote_granted())
        driver.on_awaited(ProbePort, lambda effect: is_port_closed(effect.host, effect.port))
        driver.on_awaited(StartStandby, self._start)
        driver.on_awaited(AskStandby, lambda effect: self.controller().ask(effect.call))
        driver.on_awaited(EndStandby, self._end)

    def controller(self) -> Controller:
        """The standby controller. Raises NotController if none is active here."""
        if self._controller is None or not self._controller.is_active:
            raise NotController("this broker runs no standby controller")
        return self._controller

    def start(self) -> None:
        """Run until `close`; an error of a controller does not end it."""
        self._driver.drive(self)
        self._driver.carry_out()

    # --- as a step of its driver: the node's state is read at each tick --------------------------

    @property
    def next_deadline_ms(self) -> int:
        return self._step.next_deadline_ms

    def on_tick(self, now: Instant) -> None:
        self._step.on_tick(self._seen(), now)

    def on_done(self, effect: Any, result: Any, now: Instant) -> None:
        self._step.on_done(effect, result, now)

    def _seen(self) -> StandbyView | None:
        try:
            voter = self._voter()
        except ConnectionFailed:
            return None
        if not voter.is_open:
            return None
        controller = self._controller
        me = None if controller is None else controller.me
        is_active = controller is not None and controller.is_active
        return StandbyView(
            voter.vote, voter.directory.identity.directory_id, self._image(), me, is_active
        )

    # --- effects ---------------------------------------------------------------------------------

    async def _start(self, effect: StartStandby) -> MetadataImage:
        self._controller = controller = self._make(lambda: None)
        await controller.start()
        return controller.image

    async def _end(self, effect: EndStandby) -> None:
        controller, self._controller = self._controller, None
        if controller is not None:
            controller.end(effect.reason)
            await controller.close()

    async def close(self) -> None:
        await self._driver.shut_down()
        controller, self._controller = self._controller, None
        if controller is not None:
            await controller.close()
