"""Driver of controller/node/producer_id_manager: the producer ids of one node."""

from __future__ import annotations

from collections.abc import Callable

from ...controller.controller_effects import AskController
from ...controller.node.producer_id_manager import ProducerIdManager
from ...handlers.ports.context import Controller
from .two_clock_driver import TwoClockDriver


class ProducerIds:
    """Implements handlers.ports.context.ProducerIds. One event loop."""

    def __init__(self, controller: Controller, wall_ms: Callable[[], int]) -> None:
        self._driver = driver = TwoClockDriver(wall_ms)
        self._manager = ProducerIdManager(driver.effects)
        driver.on_awaited(AskController, lambda effect: controller.ask(effect.call))
        driver.drive(self._manager)

    def fill(self) -> None:
        """Request a block of ids from the controller if few are left."""
        self._manager.fill()
        self._driver.carry_out()

    def take(self) -> int | None:
        producer_id = self._manager.take()
        self._driver.carry_out()
        return producer_id

    async def next(self) -> int:
        return await self._driver.ask(self._manager.take_or_wait)

    def close(self) -> None:
        """Cancel the pending requests to the controller."""
        self._driver.cancel()
