"""Do columns and batches say the same, whoever encodes and whoever decodes?

Every test of the codec runs with the compiled loops and with the plain ones.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.record.default_records import (
    DefaultRecordBatch as AiokafkaBatch,
    DefaultRecordBatchBuilder as AiokafkaBuilder,
)
from hypothesis import HealthCheck, given, settings, strategies as st
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from bradbury.protocol import kernel_loading
from bradbury.protocol.columns import columns_arrays_encode, columns_loops, columns_plain
from bradbury.protocol.columns.columns import (
    HEADERS_TYPE,
    DecodedBatches,
    ProducerSequence,
    columns_of,
    decode_batches,
    encode_batch,
    encode_batches,
    encode_by_partition,
    warm_up,
)
from bradbury.protocol.columns.columns_arrow import record_columns
from bradbury.protocol.errors import MessageTooLarge
from bradbury.protocol.records.compression import CompressionType
from bradbury.protocol.records.record_batch import check_batch, stamp
from bradbury.protocol.records.records import encode_records, iterate_records, stamp_producer

pytestmark = pytest.mark.thorough

CODECS = list(CompressionType)
KAFKA_PYTHON_CODECS = CODECS[:3]  # it needs further packages for lz4 and zstd: see aiokafka below


def first_one(codecs: Sequence[CompressionType]) -> list[Any]:
    """Of another client's: what we make of each codec is tried above with our own in every run."""
    return [codecs[0], *(pytest.param(each, marks=pytest.mark.long) for each in codecs[1:])]


PARTITION = {"topic": "flights", "partition": 3, "fetch_offset": 0}

fields = st.none() | st.binary(max_size=80)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3)
timestamps = st.integers(-(2**40), 2**45)
records_of_all_kinds = st.tuples(fields, fields, timestamps, st.none() | headers)
record_lists = st.lists(records_of_all_kinds, min_size=1, max_size=20)
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=["compiled", "plain", "arrays"])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    warm_up()
    if request.param != "compiled":
        monkeypatch.setattr(columns_loops, "_compiled", None)
        monkeypatch.setattr(kernel_loading, "PLAIN_RECORDS", 10**12)
        monkeypatch.setattr(
            kernel_loading, "ARRAYS_PAY", 0 if request.param == "arrays" else 10**12
        )
    yield request.param


def rows_of(decoded: DecodedBatches) -> list:
    """(key, value, timestamp, headers) of each record, as records_of_all_kinds makes them."""
    lists = [[]] * len(decoded) if decoded.headers is None else decoded.headers.to_pylist()
    return [
        (key, value, timestamp, [(header["key"], header["value"]) for header in row])
        for key, value, timestamp, row in zip(
            decoded.keys.to_pylist(),
            decoded.values.to_pylist(),
            decoded.timestamps.tolist(),
            lists,
            strict=True,
        )
    ]


def expected_rows(records: list) -> list:
    return [(key, value, timestamp, row or []) for key, value, timestamp, row in records]


def batch_of(records: list, **options: object) -> bytearray:
    """Encoded by the plain record writer, which is compared with kafka-python elsewhere."""
    return encode_records(
        [(timestamp, key, value, row or []) for key, value, timestamp, row in records], **options
    )


@relaxed
@given(records=record_lists)
def test_a_batch_is_byte_for_byte_what_the_record_writer_makes(loops: str, records: list) -> None:
    assert encode_batch(*columns_of(records)) == batch_of(records)


@pytest.mark.parametrize("codec", CODECS)
@relaxed
@given(records=record_lists)
def test_what_was_encoded_comes_back(loops: str, codec: int, records: list) -> None:
    producer = ProducerSequence(
        producer_id=2**40, producer_epoch=3, base_sequence=5, transactional=True
    )
    batch = encode_batch(*columns_of(records), codec=codec, producer=producer)
    header = check_batch(batch)
    assert header.codec == codec
    assert header.max_timestamp == max(timestamp for *_, timestamp, _ in records)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == producer[:3]
    assert header.is_transactional
    decoded = decode_batches(batch, **PARTITION)
    assert rows_of(decoded) == expected_rows(records)
    assert decoded.offsets.tolist() == list(range(len(records)))
    assert decoded.next_offset == len(records)
    assert decoded.consumed_bytes == len(batch)
    for array in (decoded.keys, decoded.values, decoded.headers):
        if array is not None:
            array.validate(full=True)


@pytest.mark.parametrize("codec", first_one(KAFKA_PYTHON_CODECS))
@relaxed
@given(records=record_lists)
def test_kafka_python_reads_what_was_encoded(loops: str, codec: int, records: list) -> None:
    if any(timestamp < 0 for *_, timestamp, _ in records):
        records = [(*record[:2], abs(record[2]), record[3]) for record in records]
    batch = bytes(encode_batch(*columns_of(records), codec=codec))
    read = [
        (record.key, record.value, record.timestamp, list(record.headers))
        for record in MemoryRecords(batch).next_batch()
    ]
    assert read == expected_rows(records)


@pytest.mark.parametrize("codec", first_one(KAFKA_PYTHON_CODECS))
@relaxed
@given(batches=st.lists(record_lists, min_size=1, max_size=4))
def test_what_kafka_python_builds_is_decoded(loops: str, codec: int, batches: list) -> None:
    buffer, records = b"", []
    for batch in batches:
        builder = MemoryRecordsBuilder(2, codec, 10**9)
        for key, value, timestamp, row in batch:
            record = (key, value, abs(timestamp), row)
            builder.append(*(record[2], key, value, row or []))
            records.append(record)
        builder.close()
        data = bytearray(builder.buffer())
        stamp(data, base_offset=len(records) - len(batch), leader_epoch=0)
        buffer += data
    decoded = decode_batches(buffer, **PARTITION)
    assert rows_of(decoded) == expected_rows(records)
    assert decoded.offsets.tolist() == list(range(len(records)))


@pytest.mark.parametrize("codec", first_one(CODECS[::-1]))
@relaxed
@given(records=record_lists)
def test_aiokafka_reads_what_was_encoded_and_writes_what_is_decoded(
    loops: str, codec: int, records: list
) -> None:
    # aiokafka's builder takes a first timestamp of -1 for "none yet" and forgets it.
    records = [(key, value, 0 if time == -1 else time, row) for key, value, time, row in records]
    builder = AiokafkaBuilder(2, codec, 0, -1, -1, -1, 10**9)
    for offset, (key, value, timestamp, row) in enumerate(records):
        builder.append(offset, timestamp, key, value, row or [])
    decoded = decode_batches(builder.build(), **PARTITION)
    assert rows_of(decoded) == expected_rows(records)
    batch = bytes(encode_batch(*columns_of(records), codec=codec))
    read = [
        (record.key, record.value, record.timestamp, list(record.headers))
        for record in AiokafkaBatch(batch)
    ]
    assert read == expected_rows(records)


@relaxed
@given(
    records=st.lists(records_of_all_kinds, min_size=1, max_size=40),
    max_bytes=st.integers(1, 1000),
    max_records=st.integers(1, 20),
    codec=st.sampled_from(CODECS),
)
def test_batches_are_as_full_as_their_limits_allow(
    loops: str, records: list, max_bytes: int, max_records: int, codec: int
) -> None:
    producer = ProducerSequence(producer_id=1, producer_epoch=0, base_sequence=2**31 - 3)
    batches = encode_batches(
        *columns_of(records),
        max_bytes=max_bytes,
        max_records=max_records,
        codec=codec,
        producer=producer,
    )
    read, sequence, sizes = [], producer.base_sequence, []
    for batch, count, max_timestamp, uncompressed_size in batches:
        header = check_batch(batch)
        assert header.record_count == count <= max_records
        assert header.base_sequence == sequence
        assert header.max_timestamp == max_timestamp
        sequence = (sequence + count) % 2**31
        here = rows_of(decode_batches(batch, **PARTITION))
        sizes.append(len(batch_of(here)))
        assert sizes[-1] <= max_bytes or count == 1
        assert sizes[-1] == uncompressed_size
        read += here
    assert read == expected_rows(records)
    position = 0
    for index, batch in enumerate(batches[:-1]):
        position += batch.record_count
        with_one_more = len(batch_of(read[position - batch.record_count : position + 1]))
        assert batch.record_count == max_records or with_one_more > max_bytes, index


@relaxed
@given(records=record_lists, before=st.integers(0, 9), after=st.integers(0, 3))
def test_a_slice_of_longer_columns_is_encoded_as_itself(
    loops: str, records: list, before: int, after: int
) -> None:
    padding = (b"padding", None, 77, [("h", b"x")])
    longer = columns_of([padding] * before + records + [padding] * after)
    end = before + len(records)
    keys, values, times, row_headers = (
        None if column is None else column[before:end] for column in longer
    )
    assert encode_batch(keys, values, times, row_headers) == batch_of(records)


@relaxed
@given(
    records=st.lists(st.tuples(records_of_all_kinds, st.integers(0, 4)), min_size=1, max_size=40)
)
def test_rows_go_to_their_partitions_in_order(loops: str, records: list) -> None:
    partitions = np.array([partition for _, partition in records], np.int32)
    batches = encode_by_partition(
        *columns_of([record for record, _ in records]),
        partitions=partitions,
        partition_count=5,
        max_records=7,
    )
    for partition in range(5):
        expected = expected_rows([record for record, number in records if number == partition])
        here = batches.get(partition, [])
        assert bool(here) == bool(expected)
        read = [row for batch in here for row in rows_of(decode_batches(batch.batch, **PARTITION))]
        assert read == expected


@relaxed
@given(records=record_lists, rows=st.lists(st.integers(0, 100), min_size=1, max_size=30))
def test_any_rows_in_any_order_are_encoded(loops: str, records: list, rows: list) -> None:
    rows = [row % len(records) for row in rows]
    (batch,) = encode_batches(*columns_of(records), rows=np.array(rows))
    assert batch.batch == batch_of([records[row] for row in rows])


@pytest.mark.parametrize("rows", [[-1], [2], [0, 1, 2]])
def test_a_row_that_is_none_is_refused(loops: str, rows: list) -> None:
    with pytest.raises(ValueError, match=r"not in \[0, 2\)"):
        encode_batches(None, pa.array([b"a", b"b"]), 0, rows=np.array(rows))


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None, "c"]),
        pa.array(["a", None, "c"], pa.large_string()),
        pa.array([b"a", None, b"c"], pa.large_binary()),
        pa.array([b"a", None, b"c"], pa.binary(1)),
        pa.array(["a", None, "c"]).dictionary_encode(),
        pa.array([b"a", None, b"c"]).cast(pa.binary_view()),
        pa.chunked_array([["a"], [None, "c"]]),
    ],
    ids=lambda column: str(column.type),
)
def test_binary_columns_of_every_kind_are_accepted(loops: str, column: pa.Array) -> None:
    expected = batch_of([(key, key, 5, None) for key in (b"a", None, b"c")])
    assert encode_batch(column, column, 5) == expected


@pytest.mark.parametrize(
    "times",
    [
        pa.array([5, 6], pa.int64()),
        pa.array([5000, 6000], pa.timestamp("us", "UTC")),
        pa.array([5, 6], pa.timestamp("ms")),
        pa.chunked_array([[5], [6]]),
        np.array([5, 6], np.int32),
        np.array([5000, 6999], "datetime64[us]"),
        [5, 6],
    ],
    ids=str,
)
def test_timestamps_of_every_kind_are_milliseconds(loops: str, times: object) -> None:
    assert encode_batch(None, pa.array([b"a", b"b"]), times) == batch_of(
        [(None, b"a", 5, None), (None, b"b", 6, None)]
    )


def test_what_makes_no_records_is_refused(loops: str) -> None:
    column = pa.array([b"a", b"b"])
    for arguments, match in (
        ((column, column[:1], 5), "rows"),
        ((column, None, np.array([1])), "rows"),
        ((None, None, 5), "keys or values"),
        ((column, None, pa.array([1, None])), "null"),
        ((column, None, np.array([1.5, 2.5])), "whole milliseconds"),
        ((pa.array([1, 2]), None, 5), "binary or string"),
        ((column, None, 5, pa.array([[("a", b"")]], HEADERS_TYPE)), "rows"),
        ((column, None, 5, pa.array([[(None, b"")], []], HEADERS_TYPE)), "no key"),
        ((column[:0], None, 5), "needs a record"),
    ):
        with pytest.raises(ValueError, match=match):
            encode_batch(*arguments)
    assert encode_batches(column[:0], None, 5) == []


def test_one_batch_beyond_its_limit_is_too_large(loops: str) -> None:
    column = pa.array([b"a" * 100, b"b" * 100])
    for rows, limit in ((2, 200), (1, 100)):
        with pytest.raises(MessageTooLarge, match=str(limit)):
            encode_batch(None, column[:rows], 5, max_bytes=limit)
    assert len(encode_batch(None, column, 5, max_bytes=300)) <= 300


def test_columns_in_memory_at_odd_addresses_are_encoded(loops: str) -> None:
    ends = b"x" + np.array([0, 1, 3], np.int32).tobytes()
    column = pa.Array.from_buffers(
        pa.binary(), 2, [None, pa.py_buffer(ends).slice(1), pa.py_buffer(b"abb")]
    )
    times = np.frombuffer(b"x" + np.array([5, 6]).tobytes(), np.uint8)[1:].view(np.int64)
    assert encode_batch(None, column, times) == batch_of(
        [(None, b"a", 5, None), (None, b"bb", 6, None)]
    )


def test_a_batch_of_many_is_stamped_without_touching_its_neighbours(loops: str) -> None:
    batches = encode_batches(None, pa.array([b"a", b"b", b"c"]), 5, max_records=1)
    stamp_producer(batches[1].batch, producer_id=4, producer_epoch=1, base_sequence=0)
    assert [check_batch(batch.batch).producer_id for batch in batches] == [-1, 4, -1]
    assert [next(iterate_records(batch.batch)).value for batch in batches] == [b"a", b"b", b"c"]


def test_the_table_has_a_column_for_each_thing_a_record_has(loops: str) -> None:
    batch = batch_of([(b"k", None, 1_700_000_000_123, [("h", None)]), (None, b"v", -1, None)])
    table = decode_batches(batch, **PARTITION).table
    assert table.schema == pa.schema(
        {
            "topic": pa.string(),
            "partition": pa.int32(),
            "offset": pa.int64(),
            "timestamp": pa.timestamp("ms", "UTC"),
            "key": pa.binary(),
            "value": pa.binary(),
            "headers": HEADERS_TYPE,
        }
    )
    table.validate(full=True)
    assert table.drop(["timestamp"]).to_pylist() == [
        {
            "topic": "flights",
            "partition": 3,
            "offset": 0,
            "key": b"k",
            "value": None,
            "headers": [{"key": "h", "value": None}],
        },
        {
            "topic": "flights",
            "partition": 3,
            "offset": 1,
            "key": None,
            "value": b"v",
            "headers": [],
        },
    ]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [1_700_000_000_123, -1]


def test_a_table_of_nothing_has_the_same_columns(loops: str) -> None:
    empty = decode_batches(b"", **PARTITION)
    full = decode_batches(batch_of([(b"k", b"v", 1, None)]), **PARTITION)
    assert (len(empty), empty.next_offset, empty.consumed_bytes) == (0, 0, 0)
    assert empty.table.schema == full.table.schema
    assert empty.table.num_rows == 0
    empty.table.validate(full=True)


@relaxed
@given(
    records=st.lists(
        st.tuples(fields, fields, timestamps, st.none()) | st.just((None, None, 5, None)),
        min_size=1,
        max_size=300,
    ),
    max_bytes=st.integers(1, 5_000),
    max_records=st.integers(1, 300),
)
def test_arrays_encode_and_hash_what_the_plain_loops_do(
    records: list, max_bytes: int, max_records: int
) -> None:
    keys, values, times, _ = columns_of(records)
    columns = record_columns(keys, values, times)
    rows = np.arange(len(records), dtype=np.int64)[::-1].copy()
    limits = {"max_bytes": max_bytes, "max_records": max_records}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns_arrays_encode, "LEAST_RECORDS", 0)
        patch.setattr(kernel_loading, "ARRAYS_PAY", 10**12)
        encoded = columns_arrays_encode.encode_rows(columns, rows, **limits)
        expected = columns_plain.encode_rows(columns, rows, **limits)
        hashes = columns_arrays_encode.hash_keys(columns.keys)
        assert (encoded.buffer, encoded.runs) == (expected.buffer, expected.runs)
        assert hashes.tolist() == columns_plain.hash_keys(columns.keys).tolist()


def test_arrays_leave_headers_long_keys_and_batches_of_few_to_the_plain_loops() -> None:
    encode, hash_keys = columns_arrays_encode.encode_rows, columns_arrays_encode.hash_keys
    values = pa.array([b"x" * 100] * 500)
    rows = np.arange(500, dtype=np.int64)
    limits = {"max_bytes": 100_000, "max_records": 1_000}
    plain = record_columns(None, values, 0)
    assert encode(plain, rows, **limits) is not None
    assert encode(plain, rows, **limits | {"max_bytes": 1_000}) is None
    assert encode(plain, rows, **limits | {"max_records": 5}) is None
    headers = pa.array([[("h", b"v")]] * 500, HEADERS_TYPE)
    assert encode(record_columns(None, values, 0, headers), rows, **limits) is None
    assert hash_keys(pa.array([b"k" * columns_arrays_encode.LONGEST_KEY])) is not None
    assert hash_keys(pa.array([b"k" * (columns_arrays_encode.LONGEST_KEY + 1)])) is None


def test_headers_of_another_type_are_named() -> None:
    with pytest.raises(ValueError, match=r"headers are map<string, binary> or .*, not struct<a"):
        record_columns(None, pa.array([b"v"]), 0, pa.array([{"a": b"1"}]))
