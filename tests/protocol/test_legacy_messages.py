"""Are the formats before Kafka 0.11 read as their clients write them, and written as they read?"""

import struct
import zlib

import cramjam
import crcmod.predefined
import pytest
from aiokafka.record.legacy_records import (
    _LegacyRecordBatchBuilderPy as AiokafkaBuilder,
    _LegacyRecordBatchPy as AiokafkaReader,
)
from hypothesis import given, settings, strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from bradbury.protocol.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
    UnsupportedCompressionType,
)
from bradbury.protocol.records.compression import CompressionType, compress, decompress
from bradbury.protocol.records.legacy_messages import (
    convert_down,
    convert_up,
    encode_message,
    read_entries,
)
from bradbury.protocol.records.lz4_header import with_old_checksum, with_right_checksum, xxh32
from bradbury.protocol.records.record_batch import (
    CONTROL_MASK,
    build_batch,
    check_batch,
    stamp_max_timestamp,
)
from bradbury.protocol.records.records import (
    ControlType,
    encode_control_batch,
    encode_records,
    iterate_records,
)

MIB = 1 << 20
NOW = 1_700_000_000_000
GZIP, SNAPPY, LZ4 = CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4
crc_of = crcmod.predefined.mkPredefinedCrcFun("crc-32")

fields = st.none() | st.binary(max_size=40)
triples = st.lists(st.tuples(st.integers(0, 2**42), fields, fields), min_size=1, max_size=12)
magics = st.sampled_from((0, 1))
codecs = st.sampled_from((0, GZIP, SNAPPY, LZ4))


def up(data: bytes, *, limit: int = MIB, max_message_bytes: int = MIB):
    return convert_up(data, limit=limit, max_message_bytes=max_message_bytes)


def message_set(magic: int, codec: int, records) -> bytes:
    """As aiokafka's producer makes it; it knows no lz4 in magic 0, so that is wrapped here."""
    old_lz4 = magic == 0 and codec == LZ4
    builder = AiokafkaBuilder(magic=magic, compression_type=0 if old_lz4 else codec, batch_size=MIB)
    for offset, (timestamp, key, value) in enumerate(records):
        builder.append(offset, timestamp=timestamp if magic else None, key=key, value=value)
    built = bytes(builder.build())
    if not old_lz4:
        return built
    frame = bytes(with_old_checksum(cramjam_lz4(built)))
    return encode_message(len(records) - 1, 0, -1, None, frame, LZ4)


def cramjam_lz4(data: bytes) -> bytes:
    compressor = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())


def contents(batch: bytes):
    return [(r.offset, r.timestamp, r.key, r.value) for r in iterate_records(batch)]


# --- reading -------------------------------------------------------------------------------------


@given(magic=magics, codec=codecs, records=triples)
def test_a_producers_set_becomes_one_batch_with_the_same_records(magic, codec, records) -> None:
    found = up(message_set(magic, codec, records))
    header = check_batch(found.batch)
    assert (header.base_offset, header.record_count, header.codec) == (0, len(records), 0)
    expected = [
        (offset, timestamp if magic else -1, key, value)
        for offset, (timestamp, key, value) in enumerate(records)
    ]
    assert contents(found.batch) == expected
    assert header.max_timestamp == max(timestamp for _, timestamp, _, _ in expected)
    assert found.codec in (codec, 0)  # a builder may leave a set plain when that is smaller


@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY])
@pytest.mark.parametrize("magic", [0, 1])
def test_kafka_pythons_sets_are_read(magic: int, codec: int) -> None:
    builder = LegacyRecordBatchBuilder(magic, codec, MIB)
    for offset in range(50):
        builder.append(offset, NOW + offset, b"k%d" % offset, b"value " * 10)
    found = up(bytes(builder.build()))
    assert found.codec == codec
    assert [r.key for r in iterate_records(found.batch)] == [b"k%d" % n for n in range(50)]


def test_raw_snappy_as_librdkafka_writes_it_is_read() -> None:
    inner = encode_message(0, 1, NOW, b"k", b"v")
    block = bytes(cramjam.snappy.compress_raw(inner))
    found = up(encode_message(0, 1, NOW, None, block, SNAPPY))
    assert contents(found.batch) == [(0, NOW, b"k", b"v")]


def test_a_wrapper_may_count_its_inner_offsets_as_it_likes() -> None:
    """The broker gives new ones; librdkafka once wrote wrapper offset 0, others absolute ones."""
    inner = encode_message(7, 1, NOW, None, b"a") + encode_message(3, 1, NOW, None, b"b")
    wrapper = encode_message(0, 1, NOW, None, compress(GZIP, inner), GZIP)
    assert contents(up(wrapper).batch) == [(0, NOW, None, b"a"), (1, NOW, None, b"b")]


def test_an_entry_that_is_cut_off_at_the_end_is_left_out() -> None:
    first, second = encode_message(0, 1, NOW, None, b"a"), encode_message(1, 1, NOW, None, b"b")
    for length in range(len(first), len(first + second)):
        assert len(contents(up((first + second)[:length]).batch)) == 1
    for length in range(len(first)):
        with pytest.raises(InvalidRecord, match="without a whole message"):
            up(first[:length])


def changed(data: bytes, position: int, value: int) -> bytes:
    copy = bytearray(data)
    copy[position] = value
    return bytes(copy)


PLAIN = encode_message(0, 1, NOW, b"k", b"v")


def wrapped(inner: bytes, *, magic: int = 1, codec: int = GZIP, attributes: int = 0) -> bytes:
    block = compress(codec, inner)
    return encode_message(0, magic, NOW, None, block, codec | attributes)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (changed(PLAIN, 12, PLAIN[12] ^ 1), CorruptMessage),
        (changed(PLAIN, 16, 3), InvalidRecord),
        (changed(PLAIN, 11, 3), CorruptMessage),
        (PLAIN + encode_message(1, 0, -1, None, b"v"), InvalidRecord),
        (PLAIN + wrapped(PLAIN), InvalidRecord),
        (wrapped(PLAIN) + wrapped(PLAIN), InvalidRecord),
        (wrapped(wrapped(PLAIN)), InvalidRecord),
        (wrapped(PLAIN, magic=0), InvalidRecord),
        (wrapped(PLAIN[:-1]), CorruptMessage),
        (wrapped(b""), InvalidRecord),
        (encode_message(0, 1, NOW, None, None, GZIP), InvalidRecord),
        (encode_message(0, 1, NOW, None, b"no gzip", GZIP), CorruptMessage),
        (encode_message(0, 1, NOW, None, b"v", CompressionType.ZSTD), UnsupportedCompressionType),
        (encode_message(0, 1, NOW, None, b"v", 8), InvalidTimestamp),
        (wrapped(PLAIN, attributes=8), InvalidTimestamp),
        (wrapped(encode_message(0, 1, NOW, None, b"v", 8)), InvalidTimestamp),
        (encode_message(0, 1, NOW, None, b"x" * MIB), MessageTooLarge),
    ],
    ids=range(17),
)
def test_what_breaks_a_rule_gets_kafkas_code(data: bytes, error: type[KafkaError]) -> None:
    with pytest.raises(error):
        up(data)


def test_a_set_that_inflates_beyond_the_limit_is_refused() -> None:
    inner = b"".join(encode_message(0, 1, NOW, None, bytes(1 << 16)) for _ in range(64))
    assert len(wrapped(inner)) < 8192
    with pytest.raises(InvalidRecord, match="more than"):
        up(wrapped(inner), limit=MIB)


@settings(max_examples=150)
@given(magic=magics, codec=codecs, records=triples, data=st.data())
def test_each_byte_that_changes_is_noticed_or_harmless(magic, codec, records, data) -> None:
    """Whatever a peer sends, only a KafkaError may come out."""
    whole = message_set(magic, codec, records)
    position = data.draw(st.integers(0, len(whole) - 1))
    value = data.draw(st.integers(0, 255))
    try:
        found = up(changed(whole, position, value))
    except KafkaError:
        return
    # Outside the CRC are only offset, size (which may cut the end off) and the CRC itself.
    assert len(contents(found.batch)) <= len(records)


@given(magic=magics, codec=codecs, records=triples, data=st.data())
def test_each_prefix_is_a_shorter_set_or_refused(magic, codec, records, data) -> None:
    whole = message_set(magic, codec, records)
    prefix = whole[: data.draw(st.integers(0, len(whole) - 1))]
    try:
        found = contents(up(prefix).batch)
    except KafkaError:
        return
    assert found == contents(up(whole).batch)[: len(found)]


@given(st.binary(max_size=200))
def test_garbage_is_refused(data: bytes) -> None:
    for magic in (0, 1):
        framed = data[:16] + bytes((magic,)) + data[17:]
        try:
            up(framed)
        except KafkaError:
            continue
        raise AssertionError("garbage was taken for messages")


# --- writing -------------------------------------------------------------------------------------


def batch(records, *, codec: int = 0, base_offset: int = 0) -> bytes:
    return bytes(
        encode_records(
            [(timestamp, key, value, ()) for timestamp, key, value in records],
            codec=codec,
            base_offset=base_offset,
        )
    )


def read_by_kafka_python(data: bytes):
    found = []
    records = MemoryRecords(data)
    while records.has_next():
        for record in records.next_batch():
            assert record.validate_crc()
            found.append((record.offset, record.timestamp, record.key, record.value))
    return found


def read_by_aiokafka(data: bytes, magic: int):
    found = []
    for entry in read_entries(data):
        if magic == 0 and entry.codec == LZ4:
            inner = bytes(cramjam.lz4.decompress(bytes(with_right_checksum(entry.value))))
            inner_entries = read_by_aiokafka(inner, 0)
            assert inner_entries[-1][0] == entry.offset
            found += inner_entries
            continue
        one = encode_message(*entry[:2], *entry[3:6], entry.attributes)
        reader = AiokafkaReader(bytearray(one), magic)
        assert reader.validate_crc()
        found += [(r.offset, r.timestamp, r.key, r.value) for r in reader]
    return found


@given(magic=magics, codec=codecs, records=triples, base=st.integers(0, 2**40))
def test_old_consumers_read_the_same_records_at_the_same_offsets(
    magic, codec, records, base
) -> None:
    data = batch(records, codec=codec, base_offset=base) + batch(
        records, codec=codec, base_offset=base + len(records)
    )
    converted = convert_down(data, magic, fetch_offset=0, limit=MIB)
    expected = [
        (base + number, timestamp if magic else None, key, value)
        for number, (timestamp, key, value) in enumerate([*records, *records])
    ]
    assert read_by_aiokafka(converted, magic) == expected
    if codec != LZ4:  # kafka-python needs a further package for it
        assert read_by_kafka_python(converted) == expected


@given(magic=magics, codec=codecs, records=triples, data=st.data())
def test_records_below_the_fetch_offset_are_left_out(magic, codec, records, data) -> None:
    base = 100
    fetch_offset = data.draw(st.integers(base, base + len(records) - 1))
    stored = batch(records, codec=codec, base_offset=base)
    converted = convert_down(stored, magic, fetch_offset=fetch_offset, limit=MIB)
    offsets = [offset for offset, *_ in read_by_aiokafka(converted, magic)]
    assert offsets == list(range(fetch_offset, base + len(records)))


@given(magic=magics, records=triples)
def test_crcs_are_those_of_an_independent_implementation(magic, records) -> None:
    converted = convert_down(batch(records), magic, fetch_offset=0, limit=MIB)
    position = 0
    while position < len(converted):
        size, crc = struct.unpack_from(">iI", converted, position + 8)
        assert crc == crc_of(converted[position + 16 : position + 12 + size])
        assert crc == zlib.crc32(converted[position + 16 : position + 12 + size])
        position += 12 + size


def test_a_topic_with_log_append_time_gives_that_time_to_every_record() -> None:
    for codec in (0, GZIP):
        stored = bytearray(batch([(NOW - 5, None, b"a"), (NOW - 9, None, b"b")], codec=codec))
        stamp_max_timestamp(stored, NOW, log_append_time=True)
        converted = convert_down(stored, 1, fetch_offset=0, limit=MIB)
        assert all(entry.is_log_append_time for entry in read_entries(converted))
        assert {timestamp for _, timestamp, _, _ in read_by_kafka_python(converted)} == {NOW}


def test_control_batches_are_dropped() -> None:
    marker = encode_control_batch(
        ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=NOW
    )
    assert check_batch(marker).attributes & CONTROL_MASK
    assert convert_down(marker, 1, fetch_offset=0, limit=MIB) == b""
    after = batch([(NOW, None, b"a")], base_offset=1)
    converted = convert_down(bytes(marker) + after, 1, fetch_offset=0, limit=MIB)
    assert read_by_kafka_python(converted) == [(1, NOW, None, b"a")]


def test_zstd_is_refused_when_it_comes_first_and_else_ends_the_set() -> None:
    plain, zstd = batch([(NOW, None, b"a")]), batch([(NOW, None, b"b")], codec=4, base_offset=1)
    with pytest.raises(UnsupportedCompressionType):
        convert_down(zstd, 1, fetch_offset=0, limit=MIB)
    converted = convert_down(plain + zstd + plain, 1, fetch_offset=0, limit=MIB)
    assert len(read_by_kafka_python(converted)) == 1


def test_a_batch_of_nonsense_is_refused_when_it_comes_first_and_else_ends_the_set() -> None:
    plain = batch([(NOW, None, b"a")])
    nonsense = bytes(build_batch(b"\xff" * 50, record_count=2, base_timestamp=0, max_timestamp=0))
    with pytest.raises(CorruptMessage):
        convert_down(nonsense, 1, fetch_offset=0, limit=MIB)
    assert (
        len(read_by_kafka_python(convert_down(plain + nonsense, 1, fetch_offset=0, limit=9))) == 1
    )


def test_the_limit_ends_a_set_after_a_whole_batch() -> None:
    one = batch([(NOW, None, b"x" * 1000)])
    converted = convert_down(one * 10, 1, fetch_offset=0, limit=2500)
    assert len(read_by_kafka_python(converted)) == 3


# --- the lz4 of Kafka 0.8 ------------------------------------------------------------------------


def test_the_hash_is_xxhash() -> None:
    """Vectors of the reference implementation."""
    assert [xxh32(b""), xxh32(b"a"), xxh32(b"abc")] == [0x02CC5D05, 0x550D7456, 0x32D153FF]


@given(st.binary(max_size=3000))
def test_the_right_checksum_is_what_the_lz4_library_writes(data: bytes) -> None:
    frame = compress(LZ4, data)
    old = with_old_checksum(frame)
    assert old[:6] == frame[:6]
    assert old[7:] == frame[7:]
    assert bytes(with_right_checksum(old)) == frame
    if old != frame:
        with pytest.raises(CorruptMessage):
            decompress(LZ4, old, limit=MIB)
