"""Condition of a procedure that a coroutine has ended; waiting for it starts the coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ...replication.effects import WorkingStep
from .step_driver import StepDriver


class AwaitedEnd:
    """Condition that the coroutine of `run` has ended; `run` is called once.

    Implements replication.procedure.Condition.
    """

    def __init__(self, driver: StepDriver, run: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self._driver = driver
        self._run = run
        self._task: asyncio.Task[object] | None = None

    def begin_waiting(self, step: WorkingStep) -> None:
        def ended(done: asyncio.Task[object]) -> None:
            error = asyncio.CancelledError() if done.cancelled() else done.exception()
            failure = error if error is None or isinstance(error, Exception) else OSError(error)
            step.on_work_done(self, failure, self._driver.now_ms())
            self._driver.carry_out()

        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(ended)
