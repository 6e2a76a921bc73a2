"""A fetch that waits for more records, at most max_wait_ms: a long poll.

It is parked at replicas, woken by an append there or by its timer, and then reads again. It has
neither task nor future: that halves what a thousand empty polls cost a broker
(docs/notes/performance.md). Where the steps of a request are timed (quotas of request time) or its
response is converted, it is awaited like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from ..ports.context import RequestContext
from ..ports.fetch_answer import FetchAnswer
from ..ports.quota_port import Quotas
from .pending_fetch import ParkedFetch, PendingFetch
from .poll_timers import poll_timers
from .throttled_fetch import finish

Done = Callable[[FetchAnswer | None, Exception | None], None]


class DelayedFetch:
    """Later answer of a fetch: passed to a callback (`begin`), or awaited. Once."""

    def __init__(
        self, fetch: PendingFetch, wait_ms: int, context: RequestContext, quotas: Quotas | None
    ) -> None:
        """Park the fetch: at once, as the next append must wake it already."""
        self._fetch = fetch
        self._wait_ms = wait_ms
        self._context = context
        self._quotas = quotas
        self._loop = loop = asyncio.get_running_loop()
        self._timers = poll_timers(loop)
        self._deadline = loop.time() + wait_ms / 1000
        self._done: Done | None = None
        self._woken: asyncio.Future[None] | None = None
        self._due = 0.0
        self._is_woken = False
        self._parked: ParkedFetch | None = None
        self._park()

    def begin(self, done: Done) -> None:
        """Call `done` with the answer, or the exception, in a later iteration of the loop."""
        self._done = done

    def cancel(self) -> None:
        """Stop waiting: the callback is not called any more."""
        self._unpark()
        self._done = None

    def __await__(self) -> Generator[Any, None, FetchAnswer]:
        return self._wait().__await__()

    async def _wait(self) -> FetchAnswer:
        try:
            while True:
                if not self._is_woken:
                    self._woken = self._loop.create_future()
                    await self._woken
                answer = self._read_again()
                if answer is not None:
                    return answer
        finally:
            self.cancel()

    def _park(self) -> None:
        self._is_woken = False
        self._due = self._timers.add(self._loop, self._on_time, self._deadline, self._wait_ms)
        self._parked = self._fetch.park(self._wake)

    def _unpark(self) -> None:
        parked, self._parked = self._parked, None
        if parked is not None:
            self._timers.discard(self._on_time, self._due)
            self._fetch.unpark(parked)

    def _wake(self) -> None:
        """Read again in the loop's next iteration: in this one an append is still in progress."""
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._go_on)

    def _on_time(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._go_on()

    def _go_on(self) -> None:
        if self._done is None:
            if self._woken is not None and not self._woken.done():
                self._woken.set_result(None)
            return
        answer, failure = None, None
        try:
            answer = self._read_again()
        except Exception as error:  # noqa: BLE001 -- the connection handles it
            failure = error
        if answer is not None or failure is not None:
            done = self._done
            self.cancel()
            done(answer, failure)

    def _read_again(self) -> FetchAnswer | None:
        """Answer, if there are enough bytes now or the wait is over; else None: parked again."""
        self._unpark()
        fetch = self._fetch
        if not fetch.resume(is_late=self._loop.time() >= self._deadline):
            self._park()
            return None
        return (
            fetch.finish() if self._quotas is None else finish(fetch, self._context, self._quotas)
        )
