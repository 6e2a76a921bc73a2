"""A request frame in, the chunks of its response out: header, table row, handler, writer.

What a peer did wrong ends in one of three ways: an error code inside its response (the handler),
a version it can fall back from (ApiVersions), or PeerError, upon which its connection is closed.
Anything else is our bug: logged with its traceback by the connection, which closes.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import Any

from ..protocol.codec import read_message, write_message
from ..protocol.errors import MalformedRequest
from ..protocol.fetch_response import Chunk, write_fetch_response
from ..protocol.header import (
    API_VERSIONS_KEY,
    RequestHeader,
    begin_response,
    close_frame,
    has_flexible_response_header,
    read_request_header,
    skip_tags,
)
from .api_versions import respond_to_unknown_version
from .context import Node, RequestContext
from .fetch import FetchAnswer
from .produce import CloseConnection
from .table import APIS, Api

Chunks = list[Chunk]
PRODUCE_KEY = 0


class PeerError(Exception):
    """The peer cannot be answered. One line for the log; the connection is closed."""


def dispatch(frame: memoryview, node: Node, peer: str) -> Awaitable[Chunks | None] | Chunks | None:
    """Handle one request. `frame` (without its size) may be reused once this has returned.

    Returns the response, now or later; None when the request has none (acks=0).

    Raises:
        PeerError: what the peer sent, in words.
    """
    try:
        header = read_request_header(frame)
        api = _supported(header)
        if api is None:
            return [_fallback(header)]
        position = header.body_position
        if header.api_key != PRODUCE_KEY:
            # Byte fields are slices of the frame, and an answer may come when it is long reused.
            # Produce alone is done with its records before it returns.
            frame = memoryview(bytes(frame))
        if header.api_version >= api.first_flexible:
            position = skip_tags(frame, position)
        request = read_message(api.request, header.api_version, frame, position)
    except MalformedRequest as error:
        raise PeerError(f"sent a malformed request: {error}") from None
    context = RequestContext(
        node, header.api_version, header.client_id, peer, header.correlation_id
    )
    try:
        response = api.handle(request, context)
    except CloseConnection as error:
        raise PeerError(str(error)) from None
    if inspect.isawaitable(response):
        return _finish(response, api, context)
    return _frame(response, api, context)


def _supported(header: RequestHeader) -> Api | None:
    """The table's row; None for a version of ApiVersions that we can talk a client out of."""
    api = APIS.get(header.api_key)
    if api is None:
        raise PeerError(f"sent API key {header.api_key}, which is not served here")
    if not api.lowest <= header.api_version <= api.highest:
        if header.api_key == API_VERSIONS_KEY:
            return None
        raise PeerError(
            f"sent {api.name} version {header.api_version}; served are {api.lowest}-{api.highest}"
        )
    return api


def _fallback(header: RequestHeader) -> bytearray:
    api = APIS[API_VERSIONS_KEY]
    out = begin_response(header.correlation_id, flexible_header=False)
    out += respond_to_unknown_version(api.lowest, api.highest)
    return close_frame(out)


async def _finish(response: Awaitable[Any], api: Api, context: RequestContext) -> Chunks | None:
    return _frame(await response, api, context)


def _frame(response: Any, api: Api, context: RequestContext) -> Chunks | None:
    if response is None:
        return None
    version = context.api_version
    out = begin_response(
        context.correlation_id,
        flexible_header=has_flexible_response_header(api.key, version, api.first_flexible),
    )
    if isinstance(response, FetchAnswer):
        return write_fetch_response(
            out,
            version,
            response.topics,
            error_code=response.error_code,
            endpoints=response.endpoints,
        )
    write_message(response, version, out)
    return [close_frame(out)]
