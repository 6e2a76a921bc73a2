"""Keys, values and headers of a record as callers give them, and as they are encoded."""

from __future__ import annotations

from collections.abc import Mapping

from ...wire.interceptors import Headers
from .deliveries import HeaderPairs


def bytes_of(content: bytearray | memoryview | str | bytes, name: str) -> bytes:
    """Bytes of a key or value, whose `name` is for the error; text is encoded as UTF-8.

    Raises:
        TypeError: it is of another type.
    """
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    raise TypeError(f"a {name} is bytes, str or None, not {type(content).__name__}")


def header_pairs(headers: Headers) -> HeaderPairs:
    """Headers as a list of pairs, in the order given."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, content) for name, content in pairs]
