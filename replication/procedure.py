"""Procedure: a sequence of decisions that waits for the disk in between.

Written as a generator: it yields the work and conditions that it waits for (those of one yield are
begun together), and is resumed with the outcome of each: None, or the exception. During the wait
other inputs may change the state, so what was checked before a yield is checked again after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol

from .effects import Effects, RunWork, WorkingStep, YieldToRequests

Outcomes = list[Exception | None]


class Condition(Protocol):
    """Condition to wait for, other than storage work."""

    def begin_waiting(self, step: WorkingStep) -> None:
        """Call step.on_work_done(self, None, now_ms) as soon as it is met, possibly at once."""
        ...


ProcedureSteps = Generator[Sequence[Any], Outcomes, None]
"""Generator that yields Work and Condition to wait for."""


def done(awaited: Any) -> ProcedureSteps:
    """Wait for one Work or Condition. Raises its error."""
    [failure] = yield [awaited]
    if failure is not None:
        raise failure


class Procedure:
    """One run of its steps. `on_end` is called with the exception that ended it, or None."""

    def __init__(
        self,
        effects: Effects,
        steps: ProcedureSteps,
        now_ms: int,
        on_end: Callable[[Exception | None], None],
    ) -> None:
        """`begin` comes next."""
        self.now_ms = now_ms
        """Time at the end of the last wait."""
        self.is_running = True
        self._effects = effects
        self._steps = steps
        self._on_end = on_end
        self._awaited: list[Any] = []
        self._outcomes: dict[int, Exception | None] = {}
        self._is_cancelled = False
        self._is_beginning = False

    def begin(self) -> None:
        """Run up to the first wait."""
        self._resume(None)

    def cancel(self) -> None:
        """Continue no further than the current wait; on_end is called when that has ended."""
        self._is_cancelled = True

    def on_work_done(self, work: Any, failure: Exception | None, now_ms: int) -> None:
        """See effects.WorkingStep."""
        self.now_ms = max(self.now_ms, now_ms)
        self._outcomes[id(work)] = failure
        if not self._is_beginning and len(self._outcomes) == len(self._awaited):
            self._resume([self._outcomes[id(each)] for each in self._awaited])

    def _resume(self, outcomes: Outcomes | None) -> None:
        while True:
            try:
                if self._is_cancelled:
                    self._steps.close()
                    self._end(None)
                    return
                self._awaited = list(
                    next(self._steps) if outcomes is None else self._steps.send(outcomes)
                )
            except StopIteration:
                self._end(None)
                return
            except Exception as error:  # noqa: BLE001 -- the caller that awaits the end judges it
                self._end(error)
                return
            self._outcomes = {}
            self._is_beginning = True
            for each in self._awaited:
                if hasattr(each, "begin_waiting"):
                    each.begin_waiting(self)
                else:
                    self._effects.append(RunWork(self, each))
            self._is_beginning = False
            if len(self._outcomes) < len(self._awaited):
                return
            outcomes = [self._outcomes[id(each)] for each in self._awaited]

    def _end(self, error: Exception | None) -> None:
        self.is_running = False
        self._awaited = []
        self._on_end(error)


class OneAtATime:
    """Condition that one procedure at a time holds, until it calls `release`."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: deque[WorkingStep] = deque()

    def begin_waiting(self, step: WorkingStep) -> None:
        if self._is_taken:
            self._waiting.append(step)
        else:
            self._is_taken = True
            step.on_work_done(self, None, 0)

    def release(self) -> None:
        if self._waiting:
            self._waiting.popleft().on_work_done(self, None, 0)
        else:
            self._is_taken = False


class Turn:
    """Condition that the requests that arrived meanwhile are answered first; see Condition."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects

    def begin_waiting(self, step: WorkingStep) -> None:
        self._effects.append(YieldToRequests(step, self))
