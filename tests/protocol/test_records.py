"""What is in a batch, record by record?"""

import io

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from hypothesis import given, settings, strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords
from kio.records.readers import read_batch as kio_read_batch

from bradbury.protocol.errors import CorruptMessage, InvalidRecord, KafkaError
from bradbury.protocol.records.compression import CompressionType, compress
from bradbury.protocol.records.record_batch import (
    build_batch,
    check_batch,
    stamp,
    stamp_max_timestamp,
)
from bradbury.protocol.records.records import (
    ControlType,
    Record,
    control_type,
    encode_control_batch,
    encode_record,
    encode_records,
    iterate_records,
    stamp_producer,
)

CODECS = list(CompressionType)
NEEDS_MORE_THAN_KAFKA_PYTHON = {CompressionType.LZ4, CompressionType.ZSTD}

fields = st.none() | st.binary(max_size=80)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3)
timestamps = st.integers(0, 2**45)
record_lists = st.lists(st.tuples(timestamps, fields, fields, headers), min_size=1, max_size=12)


def kafka_python_batch(records: list, codec: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 10**9)
    for offset, (timestamp, key, value, record_headers) in enumerate(records):
        builder.append(offset, timestamp, key, value, record_headers)
    return bytes(builder.build())


@given(record_lists)
def test_a_batch_is_byte_for_byte_what_kafka_python_builds(records: list) -> None:
    ours = encode_records(records)
    theirs = bytearray(kafka_python_batch(records))
    theirs[12:16] = ours[12:16]  # the leader epoch of a producer's batch means nothing
    assert ours == theirs


@pytest.mark.parametrize("codec", CODECS)
@given(records=record_lists, base_offset=st.sampled_from([0, 5, 2**31 + 7, 2**62]))
@settings(deadline=None)
def test_records_come_back_with_their_offsets(codec: int, records: list, base_offset: int) -> None:
    batch = encode_records(records, codec=codec)
    stamp(batch, base_offset=base_offset, leader_epoch=3)
    assert list(iterate_records(batch)) == [
        Record(base_offset + index, *record) for index, record in enumerate(records)
    ]


@pytest.mark.parametrize("codec", CODECS)
@given(records=record_lists)
@settings(deadline=None)
def test_kafka_python_and_aiokafka_read_the_same_records(codec: int, records: list) -> None:
    batch = bytes(encode_records(records, codec=codec))
    check_batch(batch)
    readers = [AiokafkaBatch]
    if codec not in NEEDS_MORE_THAN_KAFKA_PYTHON:
        readers.append(DefaultRecordBatch)
    for reader in readers:
        read = [
            (record.timestamp, record.key, record.value, list(record.headers))
            for record in reader(bytearray(batch) if reader is DefaultRecordBatch else batch)
        ]
        assert read == records


@given(record_lists)
def test_kio_reads_the_same_records(records: list) -> None:
    batch, size = kio_read_batch(bytes(encode_records(records)), 0)
    assert size > 61
    assert [(record.key, record.value) for record in batch.records] == [
        (key, value) for _, key, value, _ in records
    ]
    assert [
        [(header.key.decode(), header.value) for header in record.headers]
        for record in batch.records
    ] == [record_headers for *_, record_headers in records]


@pytest.mark.parametrize("codec", [c for c in CODECS if c not in NEEDS_MORE_THAN_KAFKA_PYTHON])
@given(records=record_lists)
@settings(deadline=None)
def test_what_kafka_python_compresses_is_read(codec: int, records: list) -> None:
    read = list(iterate_records(kafka_python_batch(records, codec)))
    assert [tuple(record[1:]) for record in read] == [tuple(record) for record in records]


def test_with_log_append_time_all_records_have_the_batch_s_timestamp() -> None:
    batch = encode_records([(5, b"k", b"v", []), (3, b"k", b"v", [])])
    stamp_max_timestamp(batch, 99, log_append_time=True)
    assert [record.timestamp for record in iterate_records(batch)] == [99, 99]


def test_a_batch_may_have_gaps_and_lose_its_last_record_to_compaction() -> None:
    records = encode_record(0, 1, b"a", None) + encode_record(7, 4, b"b", b"")
    batch = build_batch(
        records,
        record_count=2,
        last_offset_delta=9,
        base_timestamp=10,
        max_timestamp=17,
        base_offset=100,
    )
    assert list(iterate_records(batch)) == [
        Record(101, 10, b"a", None, []),
        Record(104, 17, b"b", b"", []),
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_may_be_empty_after_compaction(codec: int) -> None:
    batch = build_batch(
        b"",
        record_count=0,
        last_offset_delta=9,
        base_timestamp=10,
        max_timestamp=17,
        attributes=codec,
    )
    assert list(iterate_records(batch)) == []


@pytest.mark.parametrize("kind", list(ControlType))
def test_a_control_batch_says_how_a_transaction_ended(kind: ControlType) -> None:
    batch = encode_control_batch(
        kind, producer_id=7, producer_epoch=2, coordinator_epoch=5, timestamp=1000, base_offset=44
    )
    header = check_batch(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, -1)
    (record,) = iterate_records(batch)
    assert record.offset == 44
    assert control_type(record.key) is kind
    (theirs,) = MemoryRecords(bytes(batch)).next_batch()
    assert (theirs.commit, theirs.abort) == (kind == ControlType.COMMIT, kind == ControlType.ABORT)


def test_a_control_type_of_later_versions_is_no_transaction_s_end() -> None:
    assert control_type(b"\x00\x00\x00\x02") is None
    for short in (None, b"", b"\x00\x00\x00"):
        with pytest.raises(CorruptMessage):
            control_type(short)


def test_a_producer_is_stamped_into_an_encoded_batch() -> None:
    batch = encode_records([(1, None, b"v", [])], codec=4)
    stamp_producer(batch, producer_id=2**40, producer_epoch=9, base_sequence=6, transactional=True)
    expected = encode_records(
        [(1, None, b"v", [])],
        codec=4,
        producer_id=2**40,
        producer_epoch=9,
        base_sequence=6,
        transactional=True,
    )
    assert batch == expected


def test_no_records_are_no_batch() -> None:
    with pytest.raises(ValueError, match="needs a record"):
        encode_records([])


def rebuilt(batch: bytearray, records: bytes, **changed: int) -> bytearray:
    """The batch with other records, and a right length and CRC."""
    header = check_batch(batch)
    fields = {
        "record_count": header.record_count,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "attributes": header.attributes,
        "last_offset_delta": header.last_offset_delta,
    }
    return build_batch(records, **(fields | changed))


@given(record_lists, st.data())
def test_every_strict_prefix_of_the_records_is_corrupt(records: list, data: st.DataObject) -> None:
    batch = encode_records(records)
    cut = data.draw(st.integers(61, len(batch) - 1))
    with pytest.raises(CorruptMessage):
        list(iterate_records(rebuilt(batch, bytes(batch[61:cut]))))


@given(record_lists, st.binary(min_size=1, max_size=10))
def test_bytes_after_the_last_record_are_corrupt(records: list, rest: bytes) -> None:
    batch = encode_records(records)
    with pytest.raises(CorruptMessage):
        list(iterate_records(rebuilt(batch, bytes(batch[61:]) + rest)))


@given(record_lists, st.integers(-(2**31), 2**31 - 1))
def test_a_count_that_lies_is_corrupt(records: list, count: int) -> None:
    batch = encode_records(records)
    if count == len(records):
        return
    with pytest.raises(CorruptMessage):
        list(iterate_records(rebuilt(batch, bytes(batch[61:]), record_count=count)))


@given(st.binary(max_size=120), st.integers(0, 20), st.integers(0, 4))
def test_garbage_in_a_good_frame_only_raises_kafka_errors(
    garbage: bytes, count: int, codec: int
) -> None:
    batch = build_batch(
        compress(codec, garbage),
        record_count=count,
        base_timestamp=0,
        max_timestamp=0,
        attributes=codec,
    )
    try:
        list(iterate_records(batch))
    except KafkaError:
        pass


@given(record_lists, st.data())
def test_one_changed_byte_anywhere_breaks_the_crc_or_only_the_place_in_the_log(
    records: list, data: st.DataObject
) -> None:
    batch = encode_records(records)
    position = data.draw(st.integers(0, len(batch) - 1))
    batch[position] ^= data.draw(st.integers(1, 255))
    if position < 8 or 12 <= position < 16:
        assert len(list(iterate_records(batch))) == len(records)
        return
    with pytest.raises(KafkaError):
        list(iterate_records(batch))


@pytest.mark.parametrize("size", [0, 11, 60])
def test_a_buffer_too_small_for_a_header_is_corrupt(size: int) -> None:
    for check_crc in (True, False):
        with pytest.raises(CorruptMessage):
            list(iterate_records(bytes(size), check_crc=check_crc))


def test_a_wrong_crc_is_ignored_when_checking_is_off() -> None:
    batch = encode_records([(1, b"k", b"v", [])])
    batch[17] ^= 1
    with pytest.raises(CorruptMessage, match="CRC"):
        list(iterate_records(batch))
    assert len(list(iterate_records(batch, check_crc=False))) == 1
    batch[16] = 1
    with pytest.raises(InvalidRecord, match="magic 1"):
        list(iterate_records(batch, check_crc=False))


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_batch_that_decompresses_beyond_the_limit_is_refused(codec: int) -> None:
    batch = encode_records([(1, None, bytes(100_000), [])], codec=codec)
    with pytest.raises(InvalidRecord, match="more than 1000 bytes"):
        list(iterate_records(batch, decompress_limit=1000))


def test_the_module_needs_neither_numpy_nor_pyarrow() -> None:
    import subprocess
    import sys
    from pathlib import Path

    code = (
        "import sys, bradbury.protocol.records.records as records\n"
        "list(records.iterate_records(records.encode_records([(1, b'k', b'v', [])], codec=4)))\n"
        "sys.exit(any(name in sys.modules for name in ('numpy', 'pyarrow', 'numba')))"
    )
    root = Path(__file__).resolve().parents[2] / ".path"
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(root)}, check=True)


def test_kio_s_own_header_reader_agrees_with_ours() -> None:
    batch = encode_records([(1, b"k", b"v", [])], producer_id=5, producer_epoch=1, base_sequence=9)
    header = check_batch(batch)
    theirs, _ = kio_read_batch(io.BytesIO(batch).getvalue(), 0)
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence, theirs.crc) == (
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.crc,
    )
