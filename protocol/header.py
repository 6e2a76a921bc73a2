"""Request and response headers, and the frame around them.

    frame            int32 size (without itself), then header and body
    request header   api_key i16, api_version i16, correlation_id i32, client_id (i16 length) or
                     null; then tagged fields from the API's first flexible version on (header v2)
    response header  correlation_id i32; then tagged fields (header v1) in flexible versions, except
                     that ApiVersions answers always with header v0 (a client may not know more yet)

client_id keeps its two-byte length in header v2. Source: RequestHeader.json, KIP-482.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final, NamedTuple

from .buffer import Buffer
from .codec import MAX_TAGS, read_uvarint
from .errors import MalformedRequest

API_VERSIONS_KEY: Final = 18
_FIXED: Final = Struct(">hhih")
_CORRELATION: Final = Struct(">i")
_SIZE: Final = Struct(">i")
_FRAMED: Final = Struct(">ii")
_FRAMED_FLEXIBLE: Final = Struct(">iix")
_REQUEST: Final = Struct(">hhi")


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int
    """End of the client id. In flexible versions the header's tagged fields follow there."""


def read_request_header(frame: Buffer) -> RequestHeader:
    """Read the header up to the client id; whether tags follow depends on the API and version.

    Raises:
        MalformedRequest: cut off, or a client id that is not UTF-8.
    """
    try:
        api_key, api_version, correlation_id, length = _FIXED.unpack_from(frame)
        if length < 0:
            return tuple.__new__(RequestHeader, (api_key, api_version, correlation_id, None, 10))
        end = 10 + length
        if end > len(frame):
            raise MalformedRequest("the client id is cut off")
        client_id = str(frame[10:end], "utf-8")
    except (error, UnicodeDecodeError) as reason:
        raise MalformedRequest(f"request header: {reason}") from None
    # Not the constructor of the named tuple, a Python function, which is slower.
    return tuple.__new__(RequestHeader, (api_key, api_version, correlation_id, client_id, end))


def skip_tags(frame: Buffer, position: int) -> int:
    """The position after a section of tagged fields, which are ignored."""
    try:
        if not frame[position]:
            return position + 1
        count, position = read_uvarint(frame, position)
        if count > MAX_TAGS:
            raise MalformedRequest("too many tagged header fields")
        for _ in range(count):
            _, position = read_uvarint(frame, position)
            size, position = read_uvarint(frame, position)
            position += size
            if position > len(frame):
                raise MalformedRequest("a tagged header field is cut off")
    except IndexError:
        raise MalformedRequest("the header's tagged fields are cut off") from None
    return position


def write_request_header(
    api_key: int, api_version: int, correlation_id: int, client_id: str, *, flexible: bool
) -> bytearray:
    """Frame start of a request, with four bytes left for the size (see `close_frame`)."""
    out = bytearray(4)
    out += _REQUEST.pack(api_key, api_version, correlation_id)
    text = client_id.encode()
    out += len(text).to_bytes(2, "big")
    out += text
    if flexible:
        out.append(0)
    return out


def close_frame(frame: bytearray, extra: int = 0) -> bytearray:
    """Fill in the size of a frame begun with four free bytes; `extra` bytes will follow it."""
    _SIZE.pack_into(frame, 0, len(frame) - 4 + extra)
    return frame


def frame_response(correlation_id: int, body: bytes, *, flexible_header: bool) -> bytes:
    """Frame of a response whose body is written already."""
    if flexible_header:
        return _FRAMED_FLEXIBLE.pack(len(body) + 5, correlation_id) + body
    return _FRAMED.pack(len(body) + 4, correlation_id) + body


def begin_response(correlation_id: int, *, flexible_header: bool) -> bytearray:
    """Frame start of a response, its size still zero."""
    return bytearray((_FRAMED_FLEXIBLE if flexible_header else _FRAMED).pack(0, correlation_id))


def has_flexible_response_header(api_key: int, api_version: int, first_flexible: int) -> bool:
    return api_version >= first_flexible and api_key != API_VERSIONS_KEY
