"""Measures how long a waiting request uses the event loop, and the thread for long computations.

A coroutine is driven step by step, and the steps are timed, not the waits between them. Only while
a client has a request quota (request_percentage): it costs a microsecond a step.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from time import perf_counter
from typing import Any, Generic, TypeVar

from ...handlers.ports.quota_port import Quotas
from ...handlers.ports.request_metrics import BusyTime, RequestTrace

T = TypeVar("T")
_WORK: ContextVar[BusyTime | None] = ContextVar("work", default=None)
"""Busy time of the request that the current task belongs to."""


class TimedRequest(Generic[T]):
    """Awaitable that counts the time of `awaitable` into `trace`."""

    def __init__(self, awaitable: Awaitable[T], trace: RequestTrace, now: float) -> None:
        self._awaitable = awaitable
        self._work = trace.work = BusyTime(now - trace.received_at, now)

    def __await__(self) -> Generator[Any, Any, T]:
        work = self._work
        steps: Any = self._awaitable.__await__()
        _WORK.set(work)
        error: BaseException | None = None
        while True:
            work.since = perf_counter()
            try:
                awaited = steps.send(None) if error is None else steps.throw(error)
            except StopIteration as over:
                result: T = over.value
                return result
            finally:
                now = perf_counter()
                work.seconds += now - work.since
                work.since = now
            error = None
            try:
                yield awaited
            except BaseException as thrown:  # noqa: BLE001 -- thrown into the coroutine
                error = thrown


def maybe_timed(
    awaitable: Awaitable[T], quotas: Quotas | None, trace: RequestTrace, now: float
) -> Awaitable[T]:
    """Time the awaitable; it is returned unchanged while no client has a request quota."""
    if quotas is None or not quotas.counts_time:
        return awaitable
    return TimedRequest(awaitable, trace, now)


def timed_in_thread(call: Callable[[], T]) -> Callable[[], T]:
    """Wrap a call for the thread, so that its time is added to the request of the current task."""
    work = _WORK.get()
    if work is None:
        return call

    def timed() -> T:
        began = perf_counter()
        try:
            return call()
        finally:
            # The request waits for this call, so nothing else adds to its time meanwhile.
            work.seconds += perf_counter() - began

    return timed
