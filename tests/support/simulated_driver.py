"""The driver of a simulated node's steps: as actors/step_driver, over virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from bradbury.replication.effects import DeadlineMoved, Effects, TickingStep

from .simulated_network import Process

E = TypeVar("E")


class SimulatedDriver:
    """Of one life of one process: its effects end with it."""

    def __init__(self, process: Process) -> None:
        self.effects: Effects = []
        self._process = process
        self._carriers: dict[type, Callable[[Any], None]] = {
            DeadlineMoved: lambda effect: self.tick_when_due(effect.step)
        }
        self._due: dict[TickingStep, int] = {}
        self._is_carrying_out = False

    def on(self, kind: type[E], carry_out: Callable[[E], None]) -> None:
        self._carriers[kind] = carry_out

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
