"""Driver of one step of controller/, whose steps take the time of two clocks.

A StepDriver whose step gets an Instant: in `on_tick`, and with the result of an effect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from ...controller.controller_effects import Instant
from ..loop.step_driver import StepDriver

logger = logging.getLogger(__name__)

E = TypeVar("E")
A = TypeVar("A")


class TwoClockStep(Protocol):
    @property
    def next_deadline_ms(self) -> int | None: ...
    def on_tick(self, now: Instant) -> None: ...
    def on_done(self, effect: Any, result: Any, now: Instant) -> None:
        """Take the result of an effect that has a `then`: a value, or an exception."""
        ...


class TwoClockDriver:
    """Driver of one step on one event loop. Make the step with `effects`, then `drive` it."""

    def __init__(
        self, wall_ms: Callable[[], int], on_fault: Callable[[Exception], None] | None = None
    ) -> None:
        """`on_fault`: called with an exception that an input raised (a bug); None: it is logged."""
        self._driver = StepDriver()
        self._wall_ms = wall_ms
        self._on_fault = on_fault
        self._step: TwoClockStep | None = None
        self.effects = self._driver.effects
        self.on = self._driver.on
        self.carry_out = self._driver.carry_out
        self.cancel = self._driver.cancel
        self.shut_down = self._driver.shut_down

    def drive(self, step: TwoClockStep) -> None:
        """Give the step the time and the results of its effects from now on."""
        self._step = step
        self._driver.watch(self)

    def on_awaited(self, kind: type[E], carry_out: Callable[[E], Awaitable[Any]]) -> None:
        """Register an awaited kind of effect; its `then`, if any, gets the result."""
        self._driver.on_awaited(kind, carry_out, self._on_done)

    def now(self) -> Instant:
        """Current time of both clocks. Sessions are counted on the monotonic one, the loop's."""
        return Instant(self._driver.now_ms(), self._wall_ms())

    async def ask(self, request: Callable[[asyncio.Future[A]], None]) -> A:
        """Call `request` with a ticket for the step; returns the answer or raises its refusal."""
        ticket: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        request(ticket)
        self.carry_out()
        return await ticket

    def _on_done(self, effect: Any, result: Any) -> None:
        step = self._step
        assert step is not None, "drive() comes first"
        if hasattr(effect, "then"):
            self._input(lambda now: step.on_done(effect, result, now))

    def _input(self, call: Callable[[Instant], None]) -> None:
        try:
            call(self.now())
        except Exception as error:
            if self._on_fault is None:
                raise
            logger.exception("%s failed", type(self._step).__name__)
            self._on_fault(error)

    # --- as a step of the step driver ------------------------------------------------------------

    @property
    def next_deadline_ms(self) -> int | None:
        return None if self._step is None else self._step.next_deadline_ms

    def on_tick(self, now_ms: int) -> None:
        """Tick the step. `now_ms` is unused: both clocks of an Instant are read at one moment."""
        del now_ms
        assert self._step is not None
        self._input(self._step.on_tick)
