"""A fetch that waits for more records, or until its time is up: a long poll.

It is parked at replicas, woken by an append there or by its timer, and then reads again. There is
no task and no future behind it: a thousand polls that find nothing cost a broker half as much
without (docs/notes/performance.md). Where the steps of a request are timed (quotas of request time)
or their answer is converted, it is awaited like any other.
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
    """Answer of a fetch that comes later: by a call (`begin`), or to who awaits it. Once."""

    def __init__(
        self, fetch: PendingFetch, wait_ms: int, context: RequestContext, quotas: Quotas | None
    ) -> None:
        """Park the fetch: at once, as an append that comes next must wake it."""
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
        """Have `done` called with the answer, or what went wrong, in a later turn of the loop."""
        self._done = done

    def cancel(self) -> None:
        """Stop waiting: nobody is called any more."""
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
        """Read again in the next turn: this one is in the middle of an append."""
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
        except Exception as error:  # noqa: BLE001 -- the connection judges it
            failure = error
        if answer is not None or failure is not None:
            done = self._done
            self.cancel()
            done(answer, failure)

    def _read_again(self) -> FetchAnswer | None:
        """Answer, if there is enough now or it is time; else it is parked again."""
        self._unpark()
        fetch = self._fetch
        if not fetch.resume(is_late=self._loop.time() >= self._deadline):
            self._park()
            return None
        return (
            fetch.finish() if self._quotas is None else finish(fetch, self._context, self._quotas)
        )
