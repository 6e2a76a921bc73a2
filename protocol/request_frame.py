"""Encoding of a request frame and decoding of its response: the client's side of a connection.

Used by our clients, brokers that connect to their peers, tests and benchmarks. Each has its own
kind of socket, and its own way to wait.

    on the wire   int32 size, header (header.py), body (codec.py), both ways
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeVar

from .buffer import Buffer
from .codec import read_message, write_message
from .error_code import ErrorCode
from .header import (
    API_VERSIONS_KEY,
    close_frame,
    has_flexible_response_header,
    skip_tags,
    write_request_header,
)
from .schema import Message

R = TypeVar("R", bound=Message)

MAX_CORRELATION_ID: Final = 0x7FFFFFFF
_CORRELATION_ID: Final = Struct(">i")
_ERROR_CODE: Final = Struct(">h")


def write_request(request: Message, version: int, correlation_id: int, client_id: str) -> bytearray:
    """Write the whole frame of `request`."""
    return close_frame(
        write_message(request, version, _header(request, version, correlation_id, client_id))
    )


def write_request_start(
    request: Message, version: int, correlation_id: int, client_id: str, *, body_size: int
) -> bytearray:
    """Write the start of a frame: size and header. A body of `body_size` bytes follows it."""
    return close_frame(_header(request, version, correlation_id, client_id), extra=body_size)


def correlation_id_of(frame: Buffer) -> int:
    """Correlation id of an answer in `frame`, without its size."""
    number: int = _CORRELATION_ID.unpack_from(frame)[0]
    return number


def read_response(response: type[R], version: int, frame: Buffer) -> R:
    """Read the answer in `frame`, without its size; its records are views of `frame`.

    Raises:
        MalformedRequest: the frame is not such an answer.
    """
    position = 4
    if has_flexible_response_header(response.API_KEY, version, response.FLEXIBLE):
        position = skip_tags(frame, position)
    if (
        response.API_KEY == API_VERSIONS_KEY
        and len(frame) >= 6
        and _ERROR_CODE.unpack_from(frame, 4)[0] == ErrorCode.UNSUPPORTED_VERSION
    ):
        version = 0  # that response has the v0 layout for any request version (KIP-511)
    return read_message(response, version, frame, position)


def _header(request: Message, version: int, correlation_id: int, client_id: str) -> bytearray:
    return write_request_header(
        request.API_KEY,
        version,
        correlation_id,
        client_id,
        flexible=version >= request.FLEXIBLE,
    )
