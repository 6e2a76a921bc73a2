"""Prefix of values whose schema is in a registry: Confluent's wire format.

    byte 0      0, the magic byte
    bytes 1-4   the schema's id, big-endian
    Protobuf    which message of the schema's file it is: a count, then the index of the message and
                those of the messages within it, all of them zigzag varints; [0] is one byte 0
    then        the value: Avro binary, JSON text, a Protobuf message

Source: "Wire format" in Confluent's "Formats, Serializers, and Deserializers"
(docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...protocol.varint import encode_varint

MAGIC: Final = 0
PREFIX_SIZE: Final = 5
MOST_INDEXES: Final = 64
"""Largest depth of nested messages that is accepted; protoc allows fewer."""
_MOST_VARINT_BYTES: Final = 5


def prefix(schema_id: int) -> bytes:
    """The magic byte and the id."""
    return bytes((MAGIC,)) + schema_id.to_bytes(4, "big")


def encode_message_indexes(indexes: Sequence[int]) -> bytes:
    """Encoded path to a message in its file.

    >>> encode_message_indexes([1, 0]).hex()
    '040200'
    """
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(encode_varint(number) for number in (len(indexes), *indexes))


def decode_message_indexes(value: bytes) -> tuple[tuple[int, ...], int]:
    """Message indexes at the beginning of `value`, and the position of the message behind them.

    Raises ValueError: there are none.

    >>> decode_message_indexes(bytes.fromhex("040200ffff"))
    ((1, 0), 3)
    """
    count, position = _number(value, 0)
    if count == 0:
        return (0,), position
    if not 0 < count <= MOST_INDEXES:
        raise ValueError(f"it begins with {count} message indexes")
    indexes = []
    for _ in range(count):
        index, position = _number(value, position)
        if index < 0:
            raise ValueError(f"it has the message index {index}")
        indexes.append(index)
    return tuple(indexes), position


def _number(value: bytes, position: int) -> tuple[int, int]:
    rest = 0
    for place in range(_MOST_VARINT_BYTES):
        if position == len(value):
            raise ValueError("it ends within its message indexes")
        byte = value[position]
        position += 1
        rest |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return (rest >> 1) ^ -(rest & 1), position
    raise ValueError("a message index has more than 32 bits")
