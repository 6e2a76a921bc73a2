"""Checksum byte in the header of an LZ4 frame: the correct one, and that of Kafka before 0.10.

    0   magic u32 = 0x184D2204 (little-endian)
    4   flags u8, block descriptor u8, [content size u64 if flags & 0x08]
    6   (or 14) checksum u8: the second byte of xxHash-32 over bytes [4, 6) (or [4, 14))

Kafka's first LZ4 code hashed from the magic on, [0, 6). Clients of that time read and write only
this checksum, in message sets of magic 0; from magic 1 on the checksum is right.
Source: apache/kafka clients/.../common/compress/Lz4BlockOutputStream.java (KAFKA-3160); the hash is
https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md, for inputs below 16 bytes.
"""

from __future__ import annotations

from typing import Final

from ..buffer import Buffer
from ..errors import CorruptMessage

_PRIMES: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_MASK: Final = 0xFFFFFFFF
_LEAST_FRAME: Final = 7


def with_right_checksum(frame: Buffer) -> bytearray:
    """Copy of the LZ4 frame with the header checksum of the specification.

    Raises:
        CorruptMessage: too short for a frame.
    """
    return _with_checksum(frame, start=4)


def with_old_checksum(frame: Buffer) -> bytearray:
    """Copy of the LZ4 frame as clients of magic 0 read it. Raises CorruptMessage."""
    return _with_checksum(frame, start=0)


def _with_checksum(frame: Buffer, *, start: int) -> bytearray:
    copy = bytearray(frame)
    if len(copy) < _LEAST_FRAME:
        raise CorruptMessage("the lz4 data is cut off")
    position = 14 if copy[4] & 0x08 else 6
    if position >= len(copy):
        raise CorruptMessage("the lz4 data is cut off")
    copy[position] = xxh32(bytes(copy[start:position])) >> 8 & 0xFF
    return copy


def xxh32(data: bytes) -> int:
    """xxHash-32 with seed 0 of fewer than 16 bytes."""
    assert len(data) < 16
    first, second, third, fourth, fifth = _PRIMES
    value = (fifth + len(data)) & _MASK
    whole = len(data) // 4 * 4
    for position in range(0, whole, 4):
        lane = int.from_bytes(data[position : position + 4], "little")
        value = _rotate((value + lane * third) & _MASK, 17) * fourth & _MASK
    for byte in data[whole:]:
        value = _rotate((value + byte * fifth) & _MASK, 11) * first & _MASK
    value = (value ^ value >> 15) * second & _MASK
    value = (value ^ value >> 13) * third & _MASK
    return value ^ value >> 16


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK
