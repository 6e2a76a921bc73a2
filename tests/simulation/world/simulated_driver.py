"""The driver of a simulated node's steps: as actors/loop/step_driver, over virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, TypeVar

from bradbury.protocol.errors import KafkaError
from bradbury.replication.effects import (
    DeadlineMoved,
    Effects,
    FetchersEnded,
    RunWork,
    SuspectNode,
    TickingStep,
    WakeAt,
    WorkingStep,
    YieldToRequests,
)
from bradbury.replication.procedure import Procedure, ProcedureSteps
from bradbury.steps.replies import Refuse, Reply, ended

from .simulated_network import Process
from .virtual_loop import settle

E = TypeVar("E")


class SimulatedDriver:
    """The driver of one process: its effects end with it. Tickets are futures, or are called."""

    def __init__(self, process: Process, *, fsync_ms: int, on_work: Callable[[], None]) -> None:
        """`on_work`: told when some storage work has come to its end, and its step knows."""
        self.effects: Effects = []
        self._process = process
        self._fsync_ms = fsync_ms
        self._on_work = on_work
        self._carriers: dict[type, Callable[[Any], None]] = {
            DeadlineMoved: lambda effect: self.tick_when_due(effect.step),
            Refuse: lambda effect: _end(effect.ticket, effect.error),
            Reply: lambda effect: _end(effect.ticket, effect.answer),
            RunWork: self._run_work,
            YieldToRequests: self._yield_to_requests,
            FetchersEnded: lambda effect: None,
            SuspectNode: lambda effect: None,
            WakeAt: self._wake_at,
        }
        self._due: dict[TickingStep, int] = {}
        self._is_carrying_out = False

    def on(self, kind: type[E], carry_out: Callable[[E], None]) -> None:
        self._carriers[kind] = carry_out

    def before(self, kind: type[E], look: Callable[[E], None]) -> None:
        """Have somebody look at each effect of a kind before it is carried out."""
        carry_out = self._carriers[kind]

        def look_and_carry_out(effect: E) -> None:
            look(effect)
            carry_out(effect)

        self._carriers[kind] = look_and_carry_out

    def carry_out(self) -> None:
        if self._is_carrying_out:
            return
        self._is_carrying_out = True
        try:
            while self.effects:
                effect = self.effects.pop(0)
                self._carriers[type(effect)](effect)
        finally:
            self._is_carrying_out = False

    def run(
        self, steps: ProcedureSteps, then: Callable[[Exception | None], None] | None = None
    ) -> Any:
        """Run a procedure: `then` is called at its end; without it, the result is awaited."""
        if then is None:
            future = asyncio.get_running_loop().create_future()
            then = partial(settle, future)
        else:
            future = None
        Procedure(
            self.effects,
            steps,
            self.now_ms(),
            lambda error: self.effects.append(ended(then, error)),
        ).begin()
        self.carry_out()
        return future

    def _run_work(self, effect: RunWork) -> None:
        """What it was to write is on the disk at its end, and not before."""

        def done() -> None:
            failure = None
            try:
                effect.work.run()
            except KafkaError as error:
                failure = error
            effect.step.on_work_done(effect.work, failure, self._process.clock.now_ms)
            self._on_work()
            self.carry_out()

        self._process.after(self._fsync_ms, done)

    def run_aside(
        self,
        effect: Any,
        progress: Callable[[int], None],
        *,
        random: Random,
        stopped_by: type[Exception],
    ) -> None:
        """Run `effect.work` in a thread of its own: anything may happen before it begins, and until
        its step knows. `progress` may raise `stopped_by`.
        """
        process, slowest_ms = self._process, 4 * self._fsync_ms

        def run() -> None:
            failure: Exception | None = None
            try:
                effect.work.run(progress)
            except (OSError, KafkaError, stopped_by) as error:
                failure = error
            process.after(random.randrange(slowest_ms), lambda: done(failure))

        def done(failure: Exception | None) -> None:
            effect.step.on_work_done(effect.work, failure, process.clock.now_ms)
            self.carry_out()

        process.after(random.randrange(slowest_ms), run)

    def _yield_to_requests(self, effect: YieldToRequests) -> None:
        def go_on() -> None:
            effect.step.on_work_done(effect.condition, None, self.now_ms())
            self.carry_out()

        self._process.after(0, go_on)

    def _wake_at(self, effect: WakeAt) -> None:
        def wake() -> None:
            effect.step.on_time(self.now_ms())
            self.carry_out()

        self._process.after(max(0, effect.at_ms - self.now_ms()), wake)

    def now_ms(self) -> int:
        return self._process.clock.now_ms

    def tick_when_due(self, step: TickingStep) -> None:
        deadline_ms = step.next_deadline_ms
        if deadline_ms is None:
            self._due.pop(step, None)
            return
        now_ms = self._process.clock.now_ms
        due_ms = max(deadline_ms, now_ms)
        if self._due.get(step) == due_ms:
            return
        self._due[step] = due_ms

        def tick() -> None:
            # One that hung looks at the clock when it goes on, however late that is.
            if self._due.get(step) == due_ms:
                del self._due[step]
                step.on_tick(self._process.clock.now_ms)
                self.carry_out()
                self.tick_when_due(step)

        self._process.after(due_ms - now_ms, tick)


class Ended:
    """Implements replication.procedure.Condition: something has ended, which `begin` begins.

    `begin` is given what to call then, with an exception if it has failed.
    """

    def __init__(
        self, driver: SimulatedDriver, begin: Callable[[Callable[..., None]], Any]
    ) -> None:
        self._driver, self._begin = driver, begin

    def begin_waiting(self, step: WorkingStep) -> None:
        def ended(result: Any = None) -> None:
            failure = result if isinstance(result, Exception) else None
            step.on_work_done(self, failure, self._driver.now_ms())
            self._driver.carry_out()

        self._begin(ended)


def _end(ticket: Any, result: Any) -> None:
    if isinstance(ticket, asyncio.Future):
        settle(ticket, result)
    else:
        ticket(result)
