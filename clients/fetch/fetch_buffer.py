"""Answers of leaders that wait to be decoded, and errors that wait for poll to raise them.

Invariants:
    An answer, or an error, from before a seek or a new assignment is neither returned nor raised.
    An error is raised again in a later poll, as Java's consumer does, unless there was a seek.

Source: FetchBuffer in apache/kafka clients/.../consumer/internals.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..threads.observed_condition import ObservedCondition
from .fetch_state import FetchedRecords, FetchState


@dataclass(frozen=True, slots=True)
class _Failure:
    """Error for poll to raise, and its partitions with their generations at that time."""

    error: Exception
    concerned: tuple[tuple[FetchState, int], ...]

    @property
    def is_current(self) -> bool:
        return any(state.generation == generation for state, generation in self.concerned)

    def ask_again(self, at: float) -> None:
        """Fetch again at `at`, for a later poll to raise the error, unless there was a seek."""
        for state, generation in self.concerned:
            if state.generation == generation:
                state.retry_at = at


class FetchBuffer:
    """Guarded by the fetcher's condition, which is notified when poll can take something.

    retry_backoff_ms: time from an error that is taken to the next fetch of its partitions.
    on_taken: called, without the condition, when there may be something to fetch again.
    """

    def __init__(
        self,
        condition: ObservedCondition,
        *,
        retry_backoff_ms: int,
        on_taken: Callable[[], None],
    ) -> None:
        self._condition = condition
        self._retry_backoff_ms = retry_backoff_ms
        self._on_taken = on_taken
        self._completed: deque[FetchedRecords] = deque()
        self._errors: deque[_Failure] = deque(
            maxlen=100
        )  # bounded, as there may be no poll for a while

    # --- from the caller ---------------------------------------------------------------------

    def take(self) -> FetchedRecords | None:
        """Return the oldest answer of a partition that is not paused."""
        with self._condition:
            for number, fetched in enumerate(self._completed):
                if not fetched.state.paused:
                    del self._completed[number]
                    fetched.state.buffered_bytes -= len(fetched.records)
                    break
            else:
                return None
        self._on_taken()
        return fetched

    def take_error(self) -> Exception | None:
        with self._condition:
            while self._errors:
                failure = self._errors.popleft()
                if failure.is_current:
                    failure.ask_again(time.monotonic() + self._retry_backoff_ms / 1000)
                    break
            else:
                return None
        self._on_taken()
        return failure.error

    def ready_count(self) -> int:
        """Number of answers that `take` can return now."""
        with self._condition:
            return sum(not one.state.paused for one in self._completed)

    def has_error(self) -> bool:
        with self._condition:
            return any(failure.is_current for failure in self._errors)

    def is_ready(self) -> bool:
        """Whether `take` or `take_error` would return something. Needs the condition."""
        return any(failure.is_current for failure in self._errors) or any(
            not one.state.paused for one in self._completed
        )

    # --- from the fetcher, with the condition ------------------------------------------------

    def add(self, fetched: FetchedRecords) -> None:
        self._completed.append(fetched)
        self._condition.notify_all()

    def raise_in_poll(self, error: Exception, states: Iterable[FetchState]) -> None:
        """Have poll raise `error`, unless all of `states` are sought or revoked before."""
        concerned = tuple((state, state.generation) for state in states)
        self._errors.append(_Failure(error, concerned))
        self._condition.notify_all()

    def drop_stale(self) -> None:
        """Drop answers from before a seek or a new assignment."""
        self._completed = deque(fetched for fetched in self._completed if fetched.is_current)
        self._condition.notify_all()
