"""Variable-length integers: unsigned (lengths and tags of flexible messages) and zig-zag (records).

Seven bits a byte, the lowest first, the high bit set on all but the last. Zig-zag maps 0, -1, 1, -2
to 0, 1, 2, 3 so that small negative numbers stay short. 32-bit values take at most 5 bytes, 64-bit
values at most 10. Source: apache/kafka clients/.../common/utils/ByteUtils.java.

One value at a time, in plain Python: for small messages, and the oracle for varint_kernels and
columns_kernels, which do the same for whole columns.
"""

from __future__ import annotations

from typing import Final

from .buffer import Buffer
from .errors import CorruptMessage

MAX_VARINT_BYTES: Final = 5
MAX_VARLONG_BYTES: Final = 10
_ONE_BYTE: Final = [bytes((value,)) for value in range(0x80)]


def encode_uvarint(value: int) -> bytes:
    """Encode `value` >= 0, of any size."""
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    if value < 0:
        raise ValueError(f"an unsigned varint cannot hold {value}")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode_varint(value: int) -> bytes:
    """Encode zig-zag; `value` fits in 64 bits."""
    return encode_uvarint(value << 1 ^ value >> 63)


def decode_uvarint(
    buffer: Buffer, position: int, *, max_bytes: int = MAX_VARINT_BYTES
) -> tuple[int, int]:
    """(value, position after it). 0 <= value < 2**32, or < 2**64 with `max_bytes` 10.

    Raises:
        CorruptMessage: it runs past the buffer's end, past `max_bytes`, or past 32 or 64 bits.
    """
    value = 0
    end = min(len(buffer), position + max_bytes)
    for index in range(position, end):
        byte = buffer[index]
        value |= (byte & 0x7F) << 7 * (index - position)
        if byte < 0x80:
            if value >> (32 if max_bytes == MAX_VARINT_BYTES else 64):
                raise CorruptMessage(f"the varint at byte {position} overflows")
            return value, index + 1
    raise CorruptMessage(f"the varint at byte {position} does not end")


def decode_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """(zig-zag value of 32 bits, position after it). Raises CorruptMessage, see decode_uvarint."""
    if position < len(buffer) and (byte := buffer[position]) < 0x80:
        return byte >> 1 ^ -(byte & 1), position + 1
    value, position = decode_uvarint(buffer, position)
    return value >> 1 ^ -(value & 1), position


def decode_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """(zig-zag value of 64 bits, position after it). Raises CorruptMessage, see decode_uvarint."""
    if position < len(buffer) and (byte := buffer[position]) < 0x80:
        return byte >> 1 ^ -(byte & 1), position + 1
    value, position = decode_uvarint(buffer, position, max_bytes=MAX_VARLONG_BYTES)
    return value >> 1 ^ -(value & 1), position
