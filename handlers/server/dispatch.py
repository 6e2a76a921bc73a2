"""A request frame in, the chunks of its response out: header, table row, handler, writer.

A peer's error has one of three results: an error code in its response (from the handler), a version
to fall back to (ApiVersions), or PeerError, upon which its connection is closed. Anything else is
our bug: logged with its traceback by the connection, which is closed.

Small requests are decoded and handled, and their responses encoded, at once. A long request
(LONG_FRAME) is decoded, and a response of many elements (LONG_RESPONSE) encoded, in the node's
thread, so that no other client waits for it; a request about many items is handled in parts
(request_parts). Produce is never decoded in that thread, as its records are consumed in place: its
partitions are bounded.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator
from dataclasses import fields
from functools import cache, partial
from typing import Any, Final

from ...protocol.buffer import Buffer
from ...protocol.codec import read_message, write_message
from ...protocol.errors import MalformedRequest
from ...protocol.header import (
    API_VERSIONS_KEY,
    begin_response,
    close_frame,
    frame_response,
    has_flexible_response_header,
    read_request_header,
    skip_tags,
)
from ...protocol.messages.produce import ProduceResponse
from ...protocol.records.fetch_response import Chunk, write_fetch_response
from ...protocol.schema import Message, Struct
from ..cluster.api_versions import respond_to_unknown_version
from ..ports.api import Api, Parts
from ..ports.client_session import INTERNAL_SESSION, ClientSession
from ..ports.context import Node, RequestContext
from ..ports.fetch_answer import FetchAnswer
from ..ports.produce_answer import CloseConnection, ProducedBatch, as_response
from ..ports.request_metrics import RequestTrace
from ..quotas.throttling import throttle
from ..records.delayed_fetch import DelayedFetch
from ..records.produce import without_repeats
from ..records.produce_response import write_produced_batch
from ..security.raw_sasl_token import take_raw_token
from .request_parts import is_long, join, split
from .table import APIS

Chunks = list[Chunk]
PRODUCE_KEY: Final = 0
OFFSET_COMMIT_KEY: Final = 8
APPENDING: Final = frozenset({PRODUCE_KEY, OFFSET_COMMIT_KEY})
"""APIs whose handler has appended when it returns: its result awaits only the disk or followers."""
# Memory of a waiting request's objects, in multiples of its bytes (measured with Fetch).
PARSED_WEIGHT: Final = 8
SHORT_FRAME: Final = 1024
"""Size up to which reading a copy costs less than reading the receive buffer."""
LONG_FRAME: Final = 16 * 1024
LONG_RESPONSE: Final = 1_000
MAX_ELEMENTS: Final = 100_000
"""Maximum number of elements in all arrays of a request: topics, partitions, keys, members."""
MAX_WHOLE_ELEMENTS: Final = 20_000
"""Maximum number of elements of a request that is not handled in parts, and of long Produce."""


_HINTS: Final = {b"GET ": "HTTP", b"POST": "HTTP", b"HEAD": "HTTP", b"\x16\x03\x01": "TLS"}
_ANSWERS: Final = (ProducedBatch, FetchAnswer, Message)
"""Types of complete responses; other results are awaited (inspect.isawaitable costs 1.5 us)."""


class DelayedChunks:
    """Response of a fetch that waits: passed to a callback (`begin`), or awaited. Once."""

    def __init__(
        self, fetch: DelayedFetch, api: Api, context: RequestContext, trace: RequestTrace
    ) -> None:
        self._fetch = fetch
        self._api = api
        self._context = context
        self._trace = trace
        self._done: Callable[[DelayedChunks, Chunks, Exception | None], None] | None = None

    @property
    def trace(self) -> RequestTrace:
        return self._trace

    def begin(self, done: Callable[[DelayedChunks, Chunks, Exception | None], None]) -> None:
        """Call `done` with the response, or the exception, in a later iteration of the loop."""
        self._done = done
        self._fetch.begin(self._on_answer)

    def cancel(self) -> None:
        """Stop waiting: the callback is not called any more."""
        self._fetch.cancel()

    def __await__(self) -> Generator[Any, None, Chunks | None]:
        return _finish(self._fetch, self._api, self._context, self._trace).__await__()

    def _on_answer(self, answer: FetchAnswer | None, failure: Exception | None) -> None:
        assert self._done is not None
        chunks: Chunks = []
        if answer is not None:
            try:
                chunks = _frame_fetched(answer, self._api, self._context, self._trace)
            except Exception as error:  # noqa: BLE001 -- the connection handles it
                failure = error
        self._done(self, chunks, failure)


Result = DelayedChunks | Awaitable[Chunks | None] | Chunks | None


class PeerError(Exception):
    """Error of a peer that cannot be answered. Its text is logged; the connection is closed."""


class NotServed(PeerError):
    """Request for an API or a version that ApiVersions does not list."""


class NotAuthenticated(PeerError):
    """Request that is not allowed before authentication."""


def check_size(size: int, limit: int, first: memoryview) -> None:
    """Check the size that a frame announces. `first`: its bytes as they came.

    Raises:
        PeerError: it is above `limit`, or not positive; names HTTP or TLS if it looks like those.
    """
    if not 0 < size <= limit:
        hint = _HINTS.get(bytes(first)) or _HINTS.get(bytes(first[:3]))
        speaks = f" (it seems to speak {hint}, not Kafka)" if hint else ""
        raise PeerError(f"announced a request of {size} bytes; the limit is {limit}{speaks}")


def check_header(start: memoryview, size: int, limit: int | None) -> None:
    """Check the first four bytes of a frame of `size` bytes that is still coming.

    limit: maximum size of a connection's first request, unless it is Produce; None: no limit.

    Raises:
        PeerError: the API or version is not served, which is checked before 100 MiB are received;
            or above `limit`.
    """
    api_key = int.from_bytes(start[:2], "big", signed=True)
    _supported(api_key, int.from_bytes(start[2:4], "big", signed=True))
    if limit is not None and api_key != PRODUCE_KEY and size > limit:
        raise PeerError(f"began with a request of {size} bytes; the limit is {limit} at first")


def dispatch(
    frame: memoryview,
    node: Node,
    peer: str,
    trace: RequestTrace | None = None,
    session: ClientSession = INTERNAL_SESSION,
) -> Result:
    """Handle one request. `frame` (without its size) may be reused once this has returned.

    Returns the response, now or later; None when the request has none (acks=0). While
    `trace.is_begun` is false after this returned, the next request of the same peer must wait:
    its effects would overtake this one's.

    Raises:
        PeerError: the request cannot be answered; the text says what the peer sent.
    """
    trace = trace or RequestTrace()
    sasl = session.sasl
    if sasl is not None and sasl.takes_raw_tokens:
        return take_raw_token(frame, session, node.now_ms())
    try:
        buffer: Buffer = frame if len(frame) > SHORT_FRAME else bytes(frame)
        api_key, api_version, correlation_id, client_id, position = read_request_header(buffer)
        api = _supported(api_key, api_version)
        if sasl is not None and (refusal := sasl.refusal(api_key, node.now_ms())):
            raise NotAuthenticated(refusal)
        if api is None:
            return [_fallback(correlation_id)]
        metrics = node.metrics
        trace.api = metrics.apis.get(api_key) or metrics.api(api_key, api.name)
        may_keep = trace.keeps_frame
        is_long_frame = len(frame) > LONG_FRAME
        max_elements = None
        source: Buffer = frame
        if api_key == PRODUCE_KEY:
            trace.keeps_frame = False
            trace.held_bytes = 0
            max_elements = MAX_WHOLE_ELEMENTS if is_long_frame else None
        else:
            # Byte fields may be slices of the frame, which is reused before a later response is
            # made. Only Produce has consumed its records when it returns.
            if not may_keep and not isinstance(buffer, bytes):
                buffer = bytes(frame)
            source = buffer
            trace.keeps_frame = True
            trace.held_bytes = PARSED_WEIGHT * len(frame)
        if api_version >= api.first_flexible:
            position = skip_tags(buffer, position)
        context = RequestContext(node, api_version, client_id, peer, correlation_id, session, trace)
        if is_long_frame and api_key != PRODUCE_KEY:
            trace.is_begun = False
            return _dispatch_long(buffer, position, api, context, trace)
        request = read_message(
            api.request, api_version, buffer, position, max_elements=max_elements, source=source
        )
    except MalformedRequest as error:
        raise PeerError(f"sent a malformed request: {error}") from None
    if api.parts is not None and is_long(api.parts, request):
        trace.is_begun = False
        if api_key == PRODUCE_KEY:
            if not may_keep:
                buffer = memoryview(bytearray(frame))
                request = read_message(
                    api.request, api_version, buffer, position, max_elements=max_elements
                )
            trace.keeps_frame = True
            trace.held_bytes = len(frame)
        return _in_parts(request, api, api.parts, context, trace)
    response = _call(api, request, context)
    if response is None or isinstance(response, _ANSWERS):
        return _frame(response, api, context, trace)
    if isinstance(response, DelayedFetch):
        return DelayedChunks(response, api, context, trace)
    return _finish(response, api, context, trace)


async def _in_parts(
    request: Any, api: Api, parts: Parts, context: RequestContext, trace: RequestTrace
) -> Chunks | None:
    """Handle a long request in parts; requests of other connections are handled in between.

    The next request of this connection waits until the last part is begun, so order is kept. For
    APPENDING APIs the parts' results (fsync, followers) are awaited at the end, for others each
    before the next part.
    """
    if api.key == PRODUCE_KEY:
        request = without_repeats(request)
    answers = []
    for part in split(parts, request):
        answer = _call(api, part, context)
        if inspect.isawaitable(answer):
            # Parts that are appended share the wait for the disk and followers.
            answer = asyncio.ensure_future(answer) if api.key in APPENDING else await answer
        elif isinstance(answer, ProducedBatch):
            answer = as_response(answer)
        answers.append(answer)
        await asyncio.sleep(0)
    trace.begin()
    whole = None
    for answer in answers:
        if isinstance(answer, asyncio.Future):
            answer = await answer
        if answer is not None:
            whole = join(parts, whole, answer)
    framed = _frame(whole, api, context, trace)
    return framed if framed is None or isinstance(framed, list) else await framed


async def _dispatch_long(
    frame: Buffer, position: int, api: Api, context: RequestContext, trace: RequestTrace
) -> Chunks | None:
    read = partial(
        read_message,
        api.request,
        context.api_version,
        frame,
        position,
        max_elements=MAX_ELEMENTS if api.parts is not None else MAX_WHOLE_ELEMENTS,
    )
    try:
        request = await context.node.run_in_thread(read)
    except MalformedRequest as error:
        raise PeerError(f"sent a malformed request: {error}") from None
    if api.parts is not None and is_long(api.parts, request):
        return await _in_parts(request, api, api.parts, context, trace)
    response = _call(api, request, context)
    trace.begin()
    if inspect.isawaitable(response):
        return await _finish(response, api, context, trace)
    framed = _frame(response, api, context, trace)
    return framed if framed is None or isinstance(framed, list) else await framed


def _call(api: Api, request: Message, context: RequestContext) -> Any:
    try:
        if context.session is INTERNAL_SESSION or context.node.authorizer is None:
            return api.handle(request, context)
        return _authorized(api, request, context)
    except CloseConnection as error:
        raise PeerError(str(error)) from None


def _authorized(api: Api, request: Message, context: RequestContext) -> Any:
    """Handle a request within the rights of its client (ports/access)."""
    rights = context.rights(api.name)
    if rights is None:
        return api.handle(request, context)
    access = api.access
    if access is None:
        raise PeerError(f"sent {api.name}, which is not allowed for any client here")
    if access.guard is None:
        return api.handle(request, context)
    return access.guard(request, context, rights, api.handle)


def _supported(api_key: int, api_version: int) -> Api | None:
    """Row of the table; None for an unknown version of ApiVersions, which has a fallback."""
    api = APIS.get(api_key)
    if api is None:
        raise NotServed(f"sent API key {api_key}, which is not served here")
    if not api.lowest <= api_version <= api.highest:
        if api_key == API_VERSIONS_KEY:
            return None
        raise NotServed(
            f"sent {api.name} version {api_version}; supported: {api.lowest}-{api.highest}"
        )
    return api


def _fallback(correlation_id: int) -> bytearray:
    api = APIS[API_VERSIONS_KEY]
    out = begin_response(correlation_id, flexible_header=False)
    out += respond_to_unknown_version(api.lowest, api.highest)
    return close_frame(out)


async def _finish(
    response: Awaitable[Any], api: Api, context: RequestContext, trace: RequestTrace
) -> Chunks | None:
    try:
        answer = await response
    except CloseConnection as error:
        raise PeerError(str(error)) from None
    framed = _frame(answer, api, context, trace)
    return framed if framed is None or isinstance(framed, list) else await framed


def _frame(
    response: Any, api: Api, context: RequestContext, trace: RequestTrace
) -> Awaitable[Chunks | None] | Chunks | None:
    if isinstance(response, FetchAnswer):
        return _frame_fetched(response, api, context, trace)
    quotas = context.node.quotas
    if quotas is not None:
        response = throttle(response, api, context, quotas)
    if response is None:
        return None
    version = context.api_version
    is_flexible = has_flexible_response_header(api.key, version, api.first_flexible)
    if isinstance(response, ProducedBatch):
        body = write_produced_batch(version, response)
        return [frame_response(context.correlation_id, body, flexible_header=is_flexible)]
    out = begin_response(context.correlation_id, flexible_header=is_flexible)
    metrics = context.node.metrics
    assert trace.api is not None
    if isinstance(response, ProduceResponse):
        metrics.count_produced(trace.api, response)
    else:
        metrics.count_errors(trace.api, response)
    if element_count(response) > LONG_RESPONSE:
        return _frame_in_thread(response, version, out, context)
    write_message(response, version, out)
    return [close_frame(out)]


def _frame_fetched(
    answer: FetchAnswer, api: Api, context: RequestContext, trace: RequestTrace
) -> Chunks:
    """Frame of a Fetch response, to which quotas have been applied already."""
    assert trace.api is not None
    context.node.metrics.count_fetched(trace.api, answer)
    version = context.api_version
    return write_fetch_response(
        begin_response(context.correlation_id, flexible_header=version >= api.first_flexible),
        version,
        answer.topics,
        throttle_time_ms=answer.throttle_time_ms,
        error_code=answer.error_code,
        session_id=answer.session_id,
        endpoints=answer.endpoints,
    )


async def _frame_in_thread(
    response: Message, version: int, out: bytearray, context: RequestContext
) -> Chunks:
    await context.node.run_in_thread(partial(write_message, response, version, out))
    return [close_frame(out)]


def element_count(message: Message) -> int:
    """Number of elements in the arrays of `message`, and one level deeper while it is not long."""
    count = 0
    cls: Any = type(message)
    for name, below in _arrays(cls):
        elements = getattr(message, name)
        if elements:
            count += len(elements)
            if below and count <= LONG_RESPONSE:
                for element in elements:
                    for inner in below:
                        count += len(getattr(element, inner) or ())
    return count


@cache
def _arrays(cls: type[Struct]) -> list[tuple[str, list[str]]]:
    return [
        (field.name, [name for name, _ in _arrays(wire.struct)] if wire.struct else [])
        for field in fields(cls)
        if (wire := field.metadata["wire"]).array
    ]
