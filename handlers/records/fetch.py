"""Fetch (API key 1): slices of the log, at once or when min_bytes are available (a long poll).

Reading is in fetch_reading, the conditions of waiting in pending_fetch, the waiting in
delayed_fetch.
Consumers before Kafka 0.11 (versions 0-3) get message sets: see fetch_down_conversion.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from ...protocol.messages.fetch import FetchRequest
from ..authorization.record_access import FETCH
from ..ports.api import api
from ..ports.context import RequestContext
from ..ports.fetch_answer import FetchAnswer
from .delayed_fetch import DelayedFetch
from .fetch_down_conversion import FIRST_WITH_BATCHES, as_message_sets
from .fetch_reading import is_follower
from .pending_fetch import begin_fetch
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
        answer = DelayedFetch(begun, request.max_wait_ms, context, quotas)
    return (
        _convert(answer, request, context) if context.api_version < FIRST_WITH_BATCHES else answer
    )


async def _convert(
    answer: FetchAnswer | Awaitable[FetchAnswer], request: FetchRequest, context: RequestContext
) -> FetchAnswer:
    found = answer if isinstance(answer, FetchAnswer) else await answer
    found.topics = await as_message_sets(found.topics, request, context)
    return found


API: Final = api(0, 18, FetchRequest, handle, access=FETCH)
