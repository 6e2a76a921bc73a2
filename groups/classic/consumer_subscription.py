"""Topics in the metadata of a consumer: the only part of it that a coordinator reads.

    version i16, topics [string], then what the coordinator leaves alone: user data bytes?, owned
    partitions (v1+), generation (v2+), rack (v3+)

Every version begins with these fields, so every version can be read. Invariants: bytes in another
format give None, whatever client sent them.
Source: apache/kafka clients/.../common/message/ConsumerProtocolSubscription.json.
"""

from __future__ import annotations

import struct

from ...protocol.buffer import Buffer

CONSUMER = "consumer"
"""Protocol type whose metadata has this format."""

_BEGIN = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(metadata: Buffer) -> frozenset[str] | None:
    """Topics that a member subscribes to; None if this is not the metadata of a consumer."""
    topics: list[str] = []
    try:
        version, count = _BEGIN.unpack_from(metadata)
        position = _BEGIN.size
        if version < 0 or not 0 <= count <= len(metadata) // _LENGTH.size:
            return None
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            text = bytes(metadata[position : position + length])
            if length < 0 or len(text) != length:
                return None
            topics.append(text.decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
