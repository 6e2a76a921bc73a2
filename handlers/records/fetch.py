"""Fetch (API key 1): slices of the log, at once or when enough is there (a long poll).

What is read is in fetch_reading, what is waited for in pending_fetch; here is the waiting itself.
Consumers before Kafka 0.11 (versions 0-3) get message sets: see fetch_down_conversion.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from ...protocol.messages.fetch import FetchRequest
from ..authorization.record_access import FETCH
from ..ports.api import api
from ..ports.context import RequestContext
from ..ports.fetch_answer import FetchAnswer
from ..ports.quota_port import Quotas
from .fetch_down_conversion import FIRST_WITH_BATCHES, as_message_sets
from .fetch_reading import is_follower
from .pending_fetch import ParkedFetch, PendingFetch, begin_fetch
from .poll_timers import poll_timers
from .throttled_fetch import finish, within_quota


def handle(request: FetchRequest, context: RequestContext) -> FetchAnswer | Awaitable[FetchAnswer]:
    quotas = None if context.trace is None else context.node.quotas
    if quotas is not None:
        if is_follower(request):
            quotas = None
        else:
            request = within_quota(request, context, quotas)
    begun = begin_fetch(request, context)
    answer: FetchAnswer | Awaitable[FetchAnswer]
    if isinstance(begun, FetchAnswer):
        return begun if quotas is None else finish(begun, context, quotas)
    if begun.is_ready:
        answer = begun.finish() if quotas is None else finish(begun, context, quotas)
    else:
        # Parked at once, not when the coroutine first runs: an append in between must wake it.
        deadline = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
        woken = _park(begun, deadline, request.max_wait_ms)
        answer = _wait(begun, deadline, woken, request.max_wait_ms, context, quotas)
    return (
        _convert(answer, request, context) if context.api_version < FIRST_WITH_BATCHES else answer
    )


def _park(fetch: PendingFetch, deadline: float, wait_ms: int) -> asyncio.Future[None]:
    """Park a fetch; the future is done when it is to be read again. It unparks however it ends."""
    loop = asyncio.get_running_loop()
    timers = poll_timers(loop)
    woken: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    due = timers.add(loop, wake, deadline, wait_ms)
    parked: ParkedFetch = fetch.park(wake)

    def over(_: asyncio.Future[None]) -> None:
        timers.discard(wake, due)
        fetch.unpark(parked)

    woken.add_done_callback(over)
    return woken


async def _wait(
    fetch: PendingFetch,
    deadline: float,
    woken: asyncio.Future[None],
    wait_ms: int,
    context: RequestContext,
    quotas: Quotas | None,
) -> FetchAnswer:
    loop = asyncio.get_running_loop()
    while True:
        await woken
        if fetch.resume(is_late=loop.time() >= deadline):
            return fetch.finish() if quotas is None else finish(fetch, context, quotas)
        woken = _park(fetch, deadline, wait_ms)


async def _convert(
    answer: FetchAnswer | Awaitable[FetchAnswer], request: FetchRequest, context: RequestContext
) -> FetchAnswer:
    found = answer if isinstance(answer, FetchAnswer) else await answer
    found.topics = await as_message_sets(found.topics, request, context)
    return found


API = api(0, 18, FetchRequest, handle, access=FETCH)
