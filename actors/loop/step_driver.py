"""Driver of the steps of one node: carries out their effects, and calls their ticks.

See docs/design/steps.md. `on` registers how a kind of effect is carried out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ...replication.effects import DeadlineMoved, Effects, TickingStep, WakeAt, YieldToRequests
from ...replication.procedure import Procedure, ProcedureSteps
from ...steps.replies import Refuse, Reply, ended

logger = logging.getLogger(__name__)

E = TypeVar("E")
TICK_RETRY_MS = 100


class StepDriver:
    """Driver of a node's steps, on one event loop. A Reply's ticket is a Future."""

    def __init__(self) -> None:
        self.effects: Effects = []
        self._carriers: dict[type, Callable[[Any], None]] = {
            DeadlineMoved: self._on_deadline_moved,
            YieldToRequests: self._yield_to_requests,
            Refuse: _refuse,
            Reply: _reply,
            WakeAt: self._wake_at,
        }
        self._tasks: set[asyncio.Task[None]] = set()
        self._watched: list[TickingStep] = []
        self._timers: dict[TickingStep, asyncio.TimerHandle] = {}
        self._is_carrying_out = False
        self._is_closed = False
        self._time: Callable[[], float] | None = None

    def on(self, kind: type[E], carry_out: Callable[[E], None]) -> None:
        """Register how an effect of this kind is carried out. `carry_out` must not call a step."""
        self._carriers[kind] = carry_out

    def on_awaited(
        self,
        kind: type[E],
        carry_out: Callable[[E], Awaitable[Any]],
        done: Callable[[E, Any], None],
    ) -> None:
        """Register a kind of effect that takes a while.

        `done` is called with its result or exception, as an input of the step; not after `close`.
        """

        async def run(effect: E) -> None:
            result: Any
            try:
                result = await carry_out(effect)
            except Exception as error:  # noqa: BLE001 -- passed to the step, which decides
                result = error
            if self._is_closed:
                return
            try:
                done(effect, result)
            except Exception:
                logger.exception("handling the result of %s failed", type(effect).__name__)
            self.carry_out()

        def begin(effect: E) -> None:
            task = asyncio.get_running_loop().create_task(run(effect))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self._carriers[kind] = begin

    def watch(self, step: TickingStep) -> None:
        """Check the step's next deadline whenever effects have been carried out."""
        self._watched.append(step)

    def carry_out(self) -> None:
        """Carry out all effects, in order. Call it after every input that may add some."""
        if self._is_carrying_out:
            return  # the outer call carries out the new effects
        self._is_carrying_out = True
        try:
            while self.effects:
                effect = self.effects.pop(0)
                try:
                    self._carriers[type(effect)](effect)
                except Exception:
                    logger.exception("%s failed", type(effect).__name__)
        finally:
            self._is_carrying_out = False
        for step in self._watched:
            self.tick_when_due(step)

    async def run(self, steps: ProcedureSteps) -> None:
        """Run a procedure for a caller that is not a step. Raises what the procedure raises."""
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        Procedure(
            self.effects,
            steps,
            self.now_ms(),
            lambda error: self.effects.append(ended(ticket, error)),
        ).begin()
        self.carry_out()
        await asyncio.shield(ticket)

    def _yield_to_requests(self, effect: YieldToRequests) -> None:
        def go_on() -> None:
            effect.step.on_work_done(effect.condition, None, self.now_ms())
            self.carry_out()

        asyncio.get_running_loop().call_soon(go_on)

    def _wake_at(self, effect: WakeAt) -> None:
        def wake() -> None:
            effect.step.on_time(self.now_ms())
            self.carry_out()

        asyncio.get_running_loop().call_at(effect.at_ms / 1000 + 0.001, wake)

    def now_ms(self) -> int:
        """Milliseconds of the monotonic clock."""
        if self._time is None:
            self._time = asyncio.get_running_loop().time
        return int(self._time() * 1000)

    def tick_when_due(self, step: TickingStep) -> None:
        """Set the timer that calls on_tick to the step's next deadline."""
        timer = self._timers.pop(step, None)
        if timer is not None:
            timer.cancel()
        deadline_ms = step.next_deadline_ms
        if deadline_ms is None or self._is_closed:
            return
        loop = asyncio.get_running_loop()
        # Steps count whole milliseconds: a deadline is reached when the clock is beyond it.
        self._timers[step] = loop.call_at(deadline_ms / 1000 + 0.001, self._tick, step)

    def _on_deadline_moved(self, effect: DeadlineMoved) -> None:
        self.tick_when_due(effect.step)

    def _tick(self, step: TickingStep) -> None:
        self._timers.pop(step, None)
        try:
            step.on_tick(self.now_ms())
        except Exception:
            logger.exception("%s failed", type(step).__name__)
            self.carry_out()
            if (timer := self._timers.pop(step, None)) is not None:
                timer.cancel()
            loop = asyncio.get_running_loop()
            self._timers[step] = loop.call_later(TICK_RETRY_MS / 1000, self._tick, step)
            return
        self.carry_out()
        self.tick_when_due(step)

    def close(self) -> None:
        """Stop calling on_tick of any step."""
        self._is_closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def cancel(self) -> None:
        """Cancel awaited effects: no step gets their results."""
        for task in self._tasks:
            task.cancel()

    async def shut_down(self) -> None:
        """Close, cancel, and wait for the end of the tasks."""
        self.close()
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _reply(effect: Reply) -> None:
    if not effect.ticket.done():  # else the caller is gone
        effect.ticket.set_result(effect.answer)


def _refuse(effect: Refuse) -> None:
    future = effect.ticket
    if not future.done():
        future.set_exception(effect.error)
        future.exception()  # retrieved, in case no caller waits any more
