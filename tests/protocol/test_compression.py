"""Which compressed bytes are read, which are refused, and what does refusing cost?"""

import os
import subprocess
import sys
import zlib
from pathlib import Path

import cramjam
import kafka.codec
import pyarrow as pa
import pytest
import snappy
from hypothesis import given, strategies as st

from bradbury.protocol.errors import (
    CorruptMessage,
    InvalidConfig,
    InvalidRecord,
    KafkaError,
    UnsupportedCompressionType,
)
from bradbury.protocol.records.compression import (
    CompressionType,
    TooLarge,
    compress,
    decompress,
)
from bradbury.protocol.records.lz4_header import xxh32

CODECS = list(CompressionType)
REAL_CODECS = CODECS[1:]
MIB = 1024 * 1024

texts = st.builds(
    lambda piece, times, tail: piece * times + tail,
    st.binary(max_size=50),
    st.integers(0, 5000),
    st.binary(max_size=300),
)


@pytest.mark.parametrize("codec", CODECS)
@given(data=texts)
def test_what_was_compressed_comes_back_with_a_limit_of_its_size(
    codec: CompressionType, data: bytes
) -> None:
    compressed = compress(codec, data)
    assert bytes(decompress(codec, compressed, limit=len(data))) == data
    view = memoryview(bytearray(b"xy" + compressed))[2:]
    assert bytes(decompress(codec, view, limit=MIB)) == data


@pytest.mark.parametrize("codec", CODECS)
@given(data=texts.filter(bool))
def test_one_byte_beyond_the_limit_is_refused(codec: CompressionType, data: bytes) -> None:
    with pytest.raises(InvalidRecord, match="more than"):
        decompress(codec, compress(codec, data), limit=len(data) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_any_buffer_is_compressed(codec: CompressionType) -> None:
    data = b"some text " * 9000
    assert compress(codec, memoryview(bytearray(data))) == compress(codec, data)


@given(data=texts.filter(bool))  # kafka-python takes xerial framing without a block for raw
def test_kafka_python_reads_what_we_write(data: bytes) -> None:
    assert kafka.codec.gzip_decode(compress(CompressionType.GZIP, data)) == data
    assert bytes(kafka.codec.snappy_decode(compress(CompressionType.SNAPPY, data))) == data


@given(data=texts)
def test_we_read_what_kafka_python_writes(data: bytes) -> None:
    limit = len(data)
    assert (
        bytes(decompress(CompressionType.GZIP, kafka.codec.gzip_encode(data), limit=limit)) == data
    )
    for xerial in (True, False):
        encoded = kafka.codec.snappy_encode(data, xerial_compatible=xerial)
        assert bytes(decompress(CompressionType.SNAPPY, encoded, limit=limit)) == data


@pytest.mark.parametrize(
    ("codec", "name"),
    [
        (CompressionType.GZIP, "gzip"),
        (CompressionType.LZ4, "lz4"),
        (CompressionType.ZSTD, "zstd"),
    ],
)
@given(data=texts)
def test_the_c_libraries_read_what_we_write_and_we_what_they_write(
    codec: CompressionType, name: str, data: bytes
) -> None:
    """Arrow brings zlib, lz4 and zstd of its own."""
    stream = pa.CompressedInputStream(pa.BufferReader(compress(codec, data)), name)
    assert stream.read() == data
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, name) as output:
        output.write(data)
    assert bytes(decompress(codec, sink.getvalue().to_pybytes(), limit=len(data))) == data


@given(data=texts)
def test_snappy_without_framing_is_read(data: bytes) -> None:
    assert bytes(decompress(CompressionType.SNAPPY, snappy.compress(data), limit=len(data))) == data


def test_the_versions_of_xerial_framing_are_not_looked_at() -> None:
    encoded = bytearray(compress(CompressionType.SNAPPY, b"abc"))
    encoded[8:16] = b"\x01\0\0\0\x01\0\0\0"
    assert bytes(decompress(CompressionType.SNAPPY, encoded, limit=3)) == b"abc"


def test_lz4_is_written_as_java_can_read_it() -> None:
    """Lz4BlockOutputStream.FLG: version 1, blocks independent, or `Dependent block stream`."""
    frame = compress(CompressionType.LZ4, b"abc" * 100_000)
    flags, block_descriptor = frame[4], frame[5]
    assert flags >> 6 == 1
    assert flags & 0x20
    assert not flags & 0x03
    assert block_descriptor == 0x40  # 64 KiB


@pytest.mark.parametrize("level", [1, 9])
def test_lz4_with_linked_blocks_and_checksums_is_read(level: int) -> None:
    data = b"librdkafka and others link blocks" * 10_000
    frame = bytes(cramjam.lz4.compress(data, level=level))
    assert bytes(decompress(CompressionType.LZ4, frame, limit=len(data))) == data


def one_block(data: bytes, flags: int, block_size: int) -> bytes:
    """Frame as librdkafka and Java write it: one compressed block, no checksums, no content size."""
    header = bytes((flags, block_size << 4))
    block = bytes(cramjam.lz4.compress_block(data, store_size=False))
    return b"".join(
        (
            b"\x04\x22\x4d\x18" + header + bytes((xxh32(header) >> 8 & 0xFF,)),
            len(block).to_bytes(4, "little") + block,
            bytes(4),
        )
    )


@given(
    data=st.one_of(texts, st.binary(min_size=1, max_size=2_000)),
    flags=st.sampled_from((0x40, 0x60)),
    block_size=st.integers(4, 7),
    changes=st.lists(st.tuples(st.integers(0, 70_000), st.integers(1, 255)), max_size=3),
)
def test_an_lz4_frame_of_one_block_is_read_and_refused_as_the_decoder_of_frames_does(
    data: bytes, flags: int, block_size: int, changes: list[tuple[int, int]]
) -> None:
    frame = bytearray(one_block(data, flags, block_size))
    for position, change in changes:
        frame[position % len(frame)] ^= change
    try:
        found: bytes | None = bytes(decompress(CompressionType.LZ4, frame, limit=MIB))
    except (CorruptMessage, InvalidRecord):
        found = None
    try:
        expected: bytes | None = bytes(cramjam.lz4.decompress(bytes(frame)))
    except cramjam.DecompressionError:
        expected = None
    if found is not None or not changes:  # what follows a frame is refused by us alone
        assert found == expected
    if not changes and len(data) <= 60_000:
        assert found == data


def test_an_lz4_block_that_is_larger_than_its_frame_allows_is_refused() -> None:
    frame = one_block(os.urandom(65_536), 0x60, 4)  # an encoder would store it as it is
    with pytest.raises(CorruptMessage):
        decompress(CompressionType.LZ4, frame, limit=MIB)


@pytest.mark.parametrize("size", [0, 1, 200, 300, 70_000, 400_000])
def test_zstd_without_content_size_is_read(size: int) -> None:
    compressor = cramjam.zstd.Compressor()
    data = (b"streamed " * 50_000)[:size]
    compressor.compress(data)
    frame = bytes(compressor.finish())
    assert bytes(decompress(CompressionType.ZSTD, frame, limit=size)) == data


def test_a_few_gzip_members_are_one_text() -> None:
    members = compress(CompressionType.GZIP, b"ab") + compress(CompressionType.GZIP, b"cd")
    assert bytes(decompress(CompressionType.GZIP, members, limit=4)) == b"abcd"
    with pytest.raises(InvalidRecord):
        decompress(CompressionType.GZIP, members, limit=3)
    with pytest.raises(CorruptMessage, match="members"):
        decompress(CompressionType.GZIP, members * 9, limit=1000)


@pytest.mark.parametrize("codec", [CompressionType.LZ4, CompressionType.ZSTD])
def test_a_second_frame_is_refused(codec: CompressionType) -> None:
    with pytest.raises(CorruptMessage, match="exactly one frame"):
        decompress(codec, compress(codec, b"ab") * 2, limit=100)


@pytest.mark.parametrize("codec", REAL_CODECS)
@given(data=texts)
def test_every_strict_prefix_is_corrupt(codec: CompressionType, data: bytes) -> None:
    compressed = compress(codec, data)
    for length in {*range(min(40, len(compressed))), len(compressed) // 2, len(compressed) - 1}:
        if codec == CompressionType.SNAPPY and length in xerial_block_ends(compressed):
            continue  # fewer blocks are a whole text too: xerial framing does not say how many
        with pytest.raises(CorruptMessage):
            decompress(codec, compressed[:length], limit=10 * MIB)


def xerial_block_ends(compressed: bytes) -> set[int]:
    ends, position = {16}, 16
    while position < len(compressed):
        position += 4 + int.from_bytes(compressed[position : position + 4], "big")
        ends.add(position)
    return ends


@pytest.mark.parametrize("codec", REAL_CODECS)
@given(garbage=st.binary(max_size=80), magic=st.booleans())
def test_garbage_is_read_or_corrupt(codec: CompressionType, garbage: bytes, magic: bool) -> None:
    if magic:
        garbage = compress(codec, b"")[:8] + garbage
    try:
        decompressed = decompress(codec, garbage, limit=1000)
    except KafkaError:
        return
    assert len(decompressed) <= 1000


@pytest.mark.parametrize("codec", REAL_CODECS)
@given(data=texts, position=st.integers(0, 10**6), byte=st.integers(0, 255))
def test_one_changed_byte_is_read_or_corrupt(
    codec: CompressionType, data: bytes, position: int, byte: int
) -> None:
    compressed = bytearray(compress(codec, data))
    compressed[position % len(compressed)] = byte
    try:
        decompressed = decompress(codec, compressed, limit=MIB)
    except KafkaError:
        return
    assert len(decompressed) <= MIB


def zstd_bomb() -> bytes:
    """1 GiB in 32 KiB: blocks of 128 KiB that repeat one byte, in a frame without content size."""
    block = (128 * 1024 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    last = (128 * 1024 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd\x00\x58" + block * 8191 + last


def zstd_wide_window() -> bytes:
    """A frame that asks its reader to keep a window of 2 GiB."""
    return b"\x28\xb5\x2f\xfd\x00\xa8" + (1 << 3 | 1).to_bytes(3, "little") + b"x"


def snappy_liar() -> bytes:
    """A block of a few bytes that claims 4 GiB - 1."""
    return b"\xff\xff\xff\xff\x0f" + b"\x00x"


PROBE = """
import resource, sys
from pathlib import Path
from bradbury.protocol.records.compression import decompress
from bradbury.protocol.errors import InvalidRecord, KafkaError
codec, bomb = int(sys.argv[1]), Path(sys.argv[2]).read_bytes()
try:
    decompress(codec, b"warm the library up", limit=100)
except KafkaError:
    pass
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(codec, bomb, limit=4 * 1024 * 1024)
except InvalidRecord:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize(
    ("codec", "bomb"),
    [
        (CompressionType.GZIP, lambda: zlib.compress(bytes(128 * MIB), 1, 31)),
        (CompressionType.SNAPPY, lambda: compress(CompressionType.SNAPPY, bytes(128 * MIB))),
        (CompressionType.SNAPPY, lambda: snappy.compress(bytes(128 * MIB))),
        (CompressionType.SNAPPY, snappy_liar),
        (CompressionType.LZ4, lambda: compress(CompressionType.LZ4, bytes(128 * MIB))),
        (CompressionType.ZSTD, lambda: compress(CompressionType.ZSTD, bytes(128 * MIB))),
        (CompressionType.ZSTD, zstd_bomb),
        (CompressionType.ZSTD, zstd_wide_window),
    ],
    ids=["gzip", "xerial", "snappy", "liar", "lz4", "zstd", "zstd-unsized", "zstd-window"],
)
def test_a_bomb_is_refused_and_takes_no_more_memory_than_the_limit(
    codec: CompressionType, bomb: object, tmp_path: Path
) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(bomb())
    root = Path(__file__).resolve().parents[2] / ".path"
    probe = subprocess.run(
        [sys.executable, "-c", PROBE, str(int(codec)), str(path)],
        env={"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    taken_kib = int(probe.stdout)
    assert taken_kib < 8 * 1024  # the limit of 4 MiB, and what the codec itself needs


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_do_not_exist_are_unsupported(codec: int) -> None:
    with pytest.raises(UnsupportedCompressionType):
        compress(codec, b"")
    with pytest.raises(UnsupportedCompressionType):
        decompress(codec, b"", limit=1)


def test_a_codec_is_found_by_the_name_in_compression_type() -> None:
    assert CompressionType.from_name("zstd") is CompressionType.ZSTD
    with pytest.raises(InvalidConfig, match="none, gzip, snappy, lz4, zstd"):
        CompressionType.from_name("brotli")


@pytest.mark.parametrize("level", [19, 20, 22])
def test_the_wide_windows_of_high_zstd_levels_are_looked_at_with_a_larger_limit(level: int) -> None:
    """Java streams, so even a small batch of level 22 has a window of 128 MiB."""
    compressor = cramjam.zstd.Compressor(level=level)
    compressor.compress(b"records")
    data = bytes(compressor.finish())
    if level > 19:
        with pytest.raises(TooLarge):
            decompress(CompressionType.ZSTD, data, limit=256 * 1024)
    assert bytes(decompress(CompressionType.ZSTD, data, limit=64 * 1024**2)) == b"records"
