"""Compression of the records of a batch: none, gzip, snappy, lz4, zstd, as Kafka's clients do it.

    gzip    RFC 1952, one member or a few
    snappy  written in xerial framing as Java does, read in that or raw (librdkafka, franz-go):
            82 53 4E 41 50 50 59 00, i32 version, i32 compatible, then [i32 length, raw block] ...
    lz4     one LZ4 frame; written with independent blocks of 64 KiB, the only kind Java reads
    zstd    one frame, with or without its content size

Invariants:
    `decompress` allocates at most `limit` bytes of output, whatever size the data declares: sizes
    are read from block headers before anything is inflated, and the output buffer has that size.
    A zstd window beyond `limit` (or 8 MiB, if that is larger) is refused: the codec allocates it.
    Concatenated lz4 and zstd frames, skippable frames and dictionaries are refused.

Source: apache/kafka clients/.../common/compress/*.java, RFC 8878, lz4_Frame_format.md.

Not here: which codec a topic or producer uses. cramjam does snappy, lz4 and zstd (python-snappy is
a wrapper of it that copies again); zlib does gzip, as fast as cramjam and with a bounded output.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from struct import Struct, error as struct_error
from typing import Final

import cramjam

from ..buffer import Buffer
from ..errors import CorruptMessage, InvalidConfig, InvalidRecord, UnsupportedCompressionType
from .lz4_header import xxh32


class CompressionType(IntEnum):
    """Compression codec: bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def from_name(cls, name: str) -> CompressionType:
        """Codec of a `compression.type` of a producer or topic, e.g. "zstd".

        Raises:
            InvalidConfig: it names no codec.
        """
        try:
            return cls[name.upper()]
        except KeyError:
            names = ", ".join(codec.name.lower() for codec in cls)
            raise InvalidConfig(f"compression.type {name!r} is none of {names}") from None


# Kafka's defaults. Its lz4 level 9 means lz4's *fast* compressor, which is level 1 of the frame
# format's library (Lz4BlockOutputStream: fastCompressor() at the default level, else high).
GZIP_LEVEL: Final = -1
LZ4_LEVEL: Final = 9
ZSTD_LEVEL: Final = 3
_LZ4_FAST: Final = 1
_LZ4_LEAST_HIGH, _LZ4_MOST_HIGH = 3, 12

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
XERIAL_BLOCK_BYTES: Final = 32 * 1024

_GZIP_WINDOW_BITS: Final = 31  # 15, and 16 for the gzip header
_MOST_GZIP_MEMBERS: Final = 16  # each copies what follows it, so their number is a cost
_BIG_I32: Final = Struct(">i")
_LITTLE_U32: Final = Struct("<I")
_LITTLE_U64: Final = Struct("<Q")

_LZ4_MAGIC: Final = 0x184D2204
_LZ4_PLAIN_FRAMES: Final = {
    _LITTLE_U32.pack(_LZ4_MAGIC) + header + bytes((xxh32(header) >> 8 & 0xFF,)): block_bytes
    for size, block_bytes in ((4, 1 << 16), (5, 1 << 18), (6, 1 << 20), (7, 1 << 22))
    for header in (bytes((0x40, size << 4)), bytes((0x60, size << 4)))
}
"""Size of a block by the start of a frame that has no checksums and no content size."""
_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_BLOCK_BYTES: Final = 128 * 1024
_ZSTD_LEAST_WINDOW_LIMIT: Final = 8 * 1024 * 1024
_ZSTD_MOST_WINDOW: Final = 128 * 1024 * 1024
"""Largest window of zstd's own levels, without its long mode."""


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data`, at Kafka's default level or `level` of Kafka's compression.<codec>.level.

    Raises:
        UnsupportedCompressionType: `codec` is not 0-4.
    Cost for 1 MiB of JSON: gzip 17 ms, zstd 2.8 ms, lz4 1.4 ms, snappy 1.3 ms. All release the GIL.
    """
    if codec == CompressionType.NONE:
        return bytes(data)
    if codec == CompressionType.GZIP:
        return zlib.compress(data, GZIP_LEVEL if level is None else level, _GZIP_WINDOW_BITS)
    if codec == CompressionType.SNAPPY:
        return _compress_xerial(memoryview(data))
    if codec == CompressionType.LZ4:
        compressor = cramjam.lz4.Compressor(
            level=_lz4_level(LZ4_LEVEL if level is None else level),
            content_checksum=False,
            block_linked=False,
        )
        compressor.compress(data if isinstance(data, bytes) else bytes(data))
        return bytes(compressor.finish())
    if codec == CompressionType.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL if level is None else level))
    raise UnsupportedCompressionType(f"unknown compression codec {codec}")


def decompress(codec: int, data: Buffer, *, limit: int) -> Buffer:
    """Decompress data of any Kafka client; `data` itself for codec 0.

    Args:
        codec: 0-4.
        data: the whole compressed block.
        limit: maximum size of the output.

    Raises:
        CorruptMessage: `data` is not what the codec writes.
        InvalidRecord: the output would be larger than `limit`.
        UnsupportedCompressionType: `codec` is not 0-4.
    Cost for 1 MiB of JSON: gzip 1.6 ms, snappy, lz4 and zstd 0.5-0.7 ms.
    """
    if codec == CompressionType.NONE:
        if len(data) > limit:
            raise _too_large(limit)
        return data
    view = memoryview(data)
    try:
        if codec == CompressionType.GZIP:
            return _decompress_gzip(view, limit)
        if codec == CompressionType.SNAPPY:
            if bytes(view[:8]) == XERIAL_MAGIC:
                return _decompress_xerial(view, limit)
            return _decompress_snappy(view, limit)
        if codec == CompressionType.LZ4:
            return _decompress_lz4(view, limit)
        if codec == CompressionType.ZSTD:
            capacity = _zstd_capacity(view, limit)
            return _decompress_into(cramjam.zstd.decompress_into, view, capacity, limit)
    except (cramjam.DecompressionError, zlib.error) as error:
        name = CompressionType(codec).name.lower()
        raise CorruptMessage(f"the {name} data is malformed: {error}") from None
    except (IndexError, struct_error):
        name = CompressionType(codec).name.lower()
        raise CorruptMessage(f"the {name} data is cut off") from None
    raise UnsupportedCompressionType(f"unknown compression codec {codec}")


def _lz4_level(level: int) -> int:
    """Level of the frame library for Kafka's level: 9 is fast, every other one high compression."""
    if level == LZ4_LEVEL:
        return _LZ4_FAST
    return min(max(level, _LZ4_LEAST_HIGH), _LZ4_MOST_HIGH)


class TooLarge(InvalidRecord):
    """The data would decompress to more than the caller allows."""


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the records decompress to more than {limit} bytes")


def _decompress_into(decompressor: object, data: memoryview, capacity: int, limit: int) -> Buffer:
    # A bytearray is zeroed lazily by the kernel: pages that the codec does not write cost nothing.
    output = bytearray(capacity)
    try:
        size = decompressor(data, output)  # type: ignore[operator]  # cramjam has no types
    except cramjam.DecompressionError as error:
        if capacity == limit and "whole buffer" in str(error):
            raise _too_large(limit) from None
        raise
    del output[size:]
    return output


def _decompress_gzip(data: memoryview, limit: int) -> Buffer:
    members: list[bytes] = []
    size = 0
    while len(members) < _MOST_GZIP_MEMBERS:
        inflater = zlib.decompressobj(_GZIP_WINDOW_BITS)
        member = inflater.decompress(data, limit - size + 1)
        size += len(member)
        if size > limit:
            raise _too_large(limit)
        if not inflater.eof:
            raise CorruptMessage("the gzip data is cut off")
        members.append(member)
        if not inflater.unused_data:
            return members[0] if len(members) == 1 else b"".join(members)
        data = memoryview(inflater.unused_data)
    raise CorruptMessage(f"more than {_MOST_GZIP_MEMBERS} gzip members")


def _compress_xerial(data: memoryview) -> bytes:
    parts: list[bytes] = [XERIAL_HEADER]
    for start in range(0, len(data), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + XERIAL_BLOCK_BYTES]))
        parts += (_BIG_I32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_xerial(data: memoryview, limit: int) -> Buffer:
    """Decompress xerial snappy. Version and compatibility are ignored: some producers write them
    little-endian.
    """
    blocks: list[Buffer] = []
    remaining = limit
    position = len(XERIAL_HEADER)
    if position > len(data):
        raise CorruptMessage("the snappy data is cut off")
    while position < len(data):
        (length,) = _BIG_I32.unpack_from(data, position)
        position += 4
        if not 0 < length <= len(data) - position:
            raise CorruptMessage(f"a snappy block of {length} bytes is cut off")
        block = _decompress_snappy(data[position : position + length], remaining, limit)
        blocks.append(block)
        remaining -= len(block)
        position += length
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


def _decompress_snappy(block: memoryview, remaining: int, limit: int | None = None) -> Buffer:
    size = int(cramjam.snappy.decompress_raw_len(block))
    if size > remaining:
        raise _too_large(remaining if limit is None else limit)
    if size > 32 * len(block):  # a 3-byte copy makes 64 bytes, so no honest block is beyond this
        raise CorruptMessage(f"{len(block)} bytes of snappy cannot hold {size}")
    output = bytearray(size)
    if cramjam.snappy.decompress_raw_into(block, output) != size:
        raise CorruptMessage("the snappy block is shorter than its declared size")
    return output


def _decompress_lz4(data: memoryview, limit: int) -> Buffer:
    """Decompress a frame.

    A frame of one block without checksums, as librdkafka and Java send it for a small batch, is
    decoded by the block decoder: the frame decoder allocates buffers of 64 KiB each time, at ten
    times the cost. If the block decoder fails, the frame decoder decodes it, or reports the error.
    """
    block_bytes = _LZ4_PLAIN_FRAMES.get(bytes(data[:7]))
    if block_bytes is not None:
        (stored,) = _LITTLE_U32.unpack_from(data, 7)
        if 0 < stored <= block_bytes and stored + 15 == len(data) and not any(data[-4:]):
            capacity = min(block_bytes, 255 * stored, limit)
            output = bytearray(capacity)
            try:
                size = cramjam.lz4.decompress_block_into(data[11:-4], output, output_len=capacity)
            except cramjam.DecompressionError:
                pass
            else:
                del output[size:]
                return output
    return _decompress_into(cramjam.lz4.decompress_into, data, _lz4_capacity(data, limit), limit)


def _lz4_capacity(data: memoryview, limit: int) -> int:
    """Upper bound of the output, from the frame's block headers; the frame must fill `data`."""
    if _LITTLE_U32.unpack_from(data)[0] != _LZ4_MAGIC:
        raise CorruptMessage("the lz4 data is not an lz4 frame")
    flags, block_descriptor = data[4], data[5]
    if flags & 0x01:
        raise CorruptMessage("an lz4 frame with a dictionary is not readable")
    if not 4 <= block_descriptor >> 4 & 7 <= 7:
        raise CorruptMessage("the lz4 frame has an unknown block size")
    block_bytes = 1 << 2 * (block_descriptor >> 4 & 7) + 8
    block_checksum = 4 if flags & 0x10 else 0
    position = 15 if flags & 0x08 else 7
    capacity = 0
    while length := _LITTLE_U32.unpack_from(data, position)[0]:
        stored = length & 0x7FFFFFFF
        # A block of n bytes decodes to less than 255 * n, so tiny blocks reserve little.
        capacity += stored if length >> 31 else min(block_bytes, 255 * stored)
        position += 4 + stored + block_checksum
    position += 4 + (4 if flags & 0x04 else 0)
    if position != len(data):
        raise CorruptMessage("the lz4 data is not exactly one frame")
    return min(capacity, limit)


def _zstd_capacity(data: memoryview, limit: int) -> int:
    """Upper bound of the output, from the frame's block headers; the frame must fill `data`."""
    if _LITTLE_U32.unpack_from(data)[0] != _ZSTD_MAGIC:
        raise CorruptMessage("the zstd data is not a zstd frame")
    descriptor = data[4]
    if descriptor & 0x03:
        raise CorruptMessage("a zstd frame with a dictionary is not readable")
    single_segment = bool(descriptor & 0x20)
    position = 5
    window = 0
    if not single_segment:
        window = (1 << 10 + (data[5] >> 3)) * (8 + (data[5] & 7)) // 8
        position += 1
    content_size, position = _zstd_content_size(data, position, descriptor)
    if content_size is not None and content_size > limit:
        raise _too_large(limit)
    if window > _ZSTD_LEAST_WINDOW_LIMIT:
        text = f"a zstd window of {window} bytes is beyond the limit"
        if window > _ZSTD_MOST_WINDOW:
            raise InvalidRecord(text)
        if limit < _ZSTD_LEAST_WINDOW_LIMIT:
            raise TooLarge(text)  # a larger limit allows it
    capacity, last = 0, False
    while not last:
        block = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        last, kind, length = bool(block & 1), block >> 1 & 3, block >> 3
        capacity += _ZSTD_BLOCK_BYTES if kind == 2 else length
        position += 3 + (1 if kind == 1 else length)
    if position + (4 if descriptor & 0x04 else 0) != len(data):
        raise CorruptMessage("the zstd data is not exactly one frame")
    return min(capacity, limit if content_size is None else content_size)


def _zstd_content_size(data: memoryview, position: int, descriptor: int) -> tuple[int | None, int]:
    """(content size if the frame has it, position after it)."""
    kind = descriptor >> 6
    if kind == 0:
        return (data[position], position + 1) if descriptor & 0x20 else (None, position)
    if kind == 1:
        return (data[position] | data[position + 1] << 8) + 256, position + 2
    if kind == 2:
        return _LITTLE_U32.unpack_from(data, position)[0], position + 4
    return _LITTLE_U64.unpack_from(data, position)[0], position + 8
