"""Driver of replication/logs/log_maintenance: runs the rounds that are due."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from ...replication.logs.log_maintenance import ROUND_MS, LogMaintenance
from ..loop.step_driver import StepDriver

logger = logging.getLogger(__name__)


class LogMaintenanceDriver:
    """Maintenance of a node's partitions, on one event loop, from start() to stop()."""

    def __init__(
        self, steps: LogMaintenance, driver: StepDriver, *, wall_ms: Callable[[], int]
    ) -> None:
        self._steps = steps
        self._driver = driver
        self._wall_ms = wall_ms
        self._is_stopped = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the rounds, before the first request."""
        self._steps.begin()
        self._task = asyncio.create_task(self._keep_up())

    async def stop(self) -> None:
        """Stop, and wait until a round in progress has ended."""
        self._steps.halt()
        self._is_stopped.set()
        if self._task is not None:
            await self._task
        await self._driver.run(self._steps.settle())

    async def _keep_up(self) -> None:
        while not self._is_stopped.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_stopped.wait(), ROUND_MS / 1000)
                return
            rounds = self._steps.due_rounds(self._driver.now_ms(), self._wall_ms())
            try:
                await self._driver.run(rounds)
            except Exception:
                logger.exception("maintenance of the partitions failed")
