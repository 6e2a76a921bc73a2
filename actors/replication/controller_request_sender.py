"""Driver of the steps that send requests to the controller: alter_partition_manager and others."""

from __future__ import annotations

import asyncio

from ...handlers.ports.context import Controller
from ...replication.effects import SendControllerRequest
from ..loop.step_driver import StepDriver


class ControllerRequestSender:
    """Sender of requests to the controller, on one event loop. Each answer goes to its step."""

    def __init__(self, controller: Controller, driver: StepDriver) -> None:
        self._controller = controller
        self._driver = driver
        self._requests: set[asyncio.Task[None]] = set()
        driver.on(SendControllerRequest, self._send)

    def _send(self, effect: SendControllerRequest) -> None:
        task = asyncio.get_running_loop().create_task(self._request(effect))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def _request(self, effect: SendControllerRequest) -> None:
        step, driver = effect.step, self._driver
        try:
            answers = await self._controller.change(effect.request, timeout_ms=0)
        except Exception as error:  # noqa: BLE001 -- the step says what it means
            step.on_failed(error, driver.now_ms())
        else:
            step.on_answer(answers, driver.now_ms())
        driver.carry_out()
        driver.tick_when_due(step)

    async def close(self) -> None:
        for task in self._requests:
            task.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)
