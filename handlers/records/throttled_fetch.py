"""A consumer's Fetch beyond its quota: an empty response with a throttle time.

The records that were read are not sent, and the session is unchanged: the client fetches again.
One response has at most the bytes that the quota's window allows, or a single large response would
throttle the client for minutes. Followers are exempt.
Source: KafkaApis.handleFetchRequest in apache/kafka.
"""

from __future__ import annotations

from dataclasses import replace

from ...protocol.messages.fetch import FetchRequest
from ...protocol.records.fetch_response import FetchedTopic, write_fetch_response
from ..ports.context import RequestContext
from ..ports.fetch_answer import FetchAnswer
from ..ports.quota_port import Quotas
from .pending_fetch import PendingFetch


def within_quota(request: FetchRequest, context: RequestContext, quotas: Quotas) -> FetchRequest:
    """Limit a request's max_bytes to what its client may fetch at once."""
    most = quotas.most_fetched(context)
    return replace(request, max_bytes=most) if most < request.max_bytes else request


def finish(
    fetch: PendingFetch | FetchAnswer, context: RequestContext, quotas: Quotas
) -> FetchAnswer:
    """Make the answer of what was read, or an empty one if the client is over its quota."""
    topics = fetch.topics if isinstance(fetch, FetchAnswer) else fetch.found()
    size = _size(topics, context)
    handled_ms = quotas.handled(context)
    fetched_ms = quotas.fetched(context, size)
    throttle_ms = max(handled_ms, fetched_ms)
    if not throttle_ms:
        return fetch if isinstance(fetch, FetchAnswer) else fetch.finish()
    quotas.not_fetched(context, size)
    quotas.hold(context, "fetch" if fetched_ms > handled_ms else "request", throttle_ms)
    answer = fetch if isinstance(fetch, FetchAnswer) else fetch.give_back()
    answer.throttle_time_ms = throttle_ms
    return answer


def _size(topics: list[FetchedTopic], context: RequestContext) -> int:
    chunks = write_fetch_response(bytearray(4), context.api_version, topics)
    return sum(
        len(chunk) if isinstance(chunk, bytes | bytearray | memoryview) else chunk.size
        for chunk in chunks
    )
