"""Condition of a procedure: a coroutine or future has ended. Waiting for it starts it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ...replication.effects import WorkingStep
from .step_driver import StepDriver


class AwaitedEnd:
    """Condition that the awaitable returned by `run` has ended; `run` is called once.

    Implements replication.procedure.Condition.
    """

    def __init__(self, driver: StepDriver, run: Callable[[], Awaitable[object]]) -> None:
        self._driver = driver
        self._run = run
        self._running: asyncio.Future[object] | None = None

    def begin_waiting(self, step: WorkingStep) -> None:
        def ended(done: asyncio.Future[object]) -> None:
            error = asyncio.CancelledError() if done.cancelled() else done.exception()
            failure = error if error is None or isinstance(error, Exception) else OSError(error)
            step.on_work_done(self, failure, self._driver.now_ms())
            self._driver.carry_out()

        self._running = asyncio.ensure_future(self._run())
        self._running.add_done_callback(ended)
