"""What does a consumer get of the bytes that a fetch brought, and what of bytes that are wrong?

Every test runs with the compiled loops, with the plain ones and with arrays.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from bradbury.protocol import kernel_loading
from bradbury.protocol.columns import (
    columns_arrays_decode,
    columns_compiled,
    columns_loops,
    columns_plain,
)
from bradbury.protocol.columns.columns import (
    AbortedProducers,
    DecodedBatches,
    decode_batches,
    warm_up,
)
from bradbury.protocol.errors import CorruptMessage, InvalidRecord, KafkaError
from bradbury.protocol.records.compression import CompressionType, compress
from bradbury.protocol.records.record_batch import (
    HEADER,
    build_batch,
    compute_crc,
    read_header,
    stamp,
    stamp_max_timestamp,
)
from bradbury.protocol.records.records import (
    ControlType,
    encode_control_batch,
    encode_record,
    encode_records,
    iterate_records,
)

CODECS = list(CompressionType)
ROOT = Path(__file__).resolve().parents[2] / ".path"
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

fields = st.none() | st.binary(max_size=20)
headers = st.lists(st.tuples(st.text(max_size=4), fields), max_size=2)
times = st.integers(0, 2**45)
record_lists = st.lists(st.tuples(times, fields, fields, headers), min_size=1, max_size=6)


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


def decode(buffer: bytes, *, fetch_offset: int = 0, **options: object) -> DecodedBatches:
    return decode_batches(
        buffer, topic="flights", partition=3, fetch_offset=fetch_offset, **options
    )


def batch(*values: bytes, base_offset: int = 0, **options: object) -> bytearray:
    return encode_records(
        [(1000 + index, None, value, ()) for index, value in enumerate(values)],
        base_offset=base_offset,
        **options,
    )


@pytest.mark.thorough
@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.LZ4])
@given(
    values=st.lists(
        st.none() | st.binary(max_size=40) | st.integers(0, 14).map(bytes), min_size=1, max_size=9
    )
)
@relaxed
def test_views_of_values_are_the_values(loops: str, codec: int, values: list) -> None:
    records = [(0, b"key", value, (("h", b"v"), ("i", None))) for value in values]
    buffer = encode_records(records, codec=codec) + encode_records(
        records, base_offset=len(values), codec=codec
    )
    copied, viewed = decode(buffer), decode(buffer, value_views=True)
    viewed.values.validate(full=True)
    assert viewed.values.type == pa.binary_view()
    assert viewed.values.to_pylist() == copied.values.to_pylist() == values * 2
    assert viewed.values.null_count == copied.values.null_count
    assert viewed.values.cast(pa.binary()) == copied.values
    assert (viewed.keys, viewed.headers) == (copied.keys, copied.headers)
    for joined in [viewed.values.slice(1), pa.concat_arrays([viewed.values, viewed.values])]:
        assert joined.to_pylist() == (values * 4)[-len(joined) :]


def test_a_view_of_what_is_not_compressed_has_the_fetched_bytes_themselves(loops: str) -> None:
    buffer = batch(b"x" * 10_000, b"y" * 10_000)
    values = decode(buffer, value_views=True).values
    buffer[buffer.index(b"y")] = ord("!")
    assert values[0].as_py() == b"x" * 10_000
    assert values[1].as_py() == b"!" + b"y" * 9_999


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch(loops: str) -> None:
    first, second = batch(b"a", b"b"), batch(b"c", base_offset=2)
    for cut in range(len(second)):
        decoded = decode(first + second[:cut])
        assert decoded.values.to_pylist() == [b"a", b"b"]
        assert decoded.next_offset == 2
        assert (decoded.consumed_bytes, decoded.needed_bytes) == (len(first), 0)


def test_a_first_batch_that_does_not_fit_says_how_large_it_is(loops: str) -> None:
    first = batch(b"a" * 100)
    for cut in range(12, len(first)):
        decoded = decode(first[:cut], fetch_offset=0)
        assert (len(decoded), decoded.next_offset) == (0, 0)
        assert (decoded.consumed_bytes, decoded.needed_bytes) == (0, len(first))
    assert decode(first[:11]).needed_bytes == 0  # not even that is known


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("base", [0, 2**31 + 5, 2**62])
def test_records_outside_the_asked_offsets_are_left_out(loops: str, codec: int, base: int) -> None:
    buffer = b""
    for start in range(0, 9, 3):
        names = [b"%d" % (start + index) for index in range(3)]
        buffer += batch(*names, base_offset=base + start, codec=codec)
    for first in range(9):
        for end in range(first, 11):
            decoded = decode(buffer, fetch_offset=base + first, end_offset=base + end)
            expected = list(range(first, min(end, 9)))
            assert decoded.offsets.tolist() == [base + offset for offset in expected]
            assert decoded.values.to_pylist() == [b"%d" % offset for offset in expected]
            assert decoded.next_offset == base + min(end, 9)
            assert len(decoded.timestamp_types) == len(expected)


def test_next_offset_never_goes_back(loops: str) -> None:
    decoded = decode(batch(b"a", b"b"), fetch_offset=7)
    assert (len(decoded), decoded.next_offset) == (0, 7)


def test_after_compaction_gaps_and_empty_batches_are_passed(loops: str) -> None:
    gaps = build_batch(
        encode_record(0, 1, b"k", b"a") + encode_record(7, 4, None, b"b"),
        record_count=2,
        last_offset_delta=9,
        base_timestamp=10,
        max_timestamp=17,
        base_offset=100,
    )
    empty = build_batch(
        b"",
        record_count=0,
        last_offset_delta=4,
        base_timestamp=10,
        max_timestamp=17,
        base_offset=110,
        attributes=CompressionType.ZSTD,
    )
    decoded = decode(gaps + empty, fetch_offset=90)
    assert decoded.offsets.tolist() == [101, 104]
    assert decoded.timestamps.tolist() == [10, 17]
    assert decoded.next_offset == 115


def test_each_record_knows_whose_clock_its_timestamp_is_from(loops: str) -> None:
    ours = batch(b"a", b"b")
    theirs = batch(b"c", b"d", base_offset=2)
    stamp_max_timestamp(theirs, 77, log_append_time=True)
    decoded = decode(ours + theirs, fetch_offset=1)
    assert decoded.timestamps.tolist() == [1001, 77, 77]
    assert decoded.timestamp_types.tolist() == [0, 1, 1]


def test_timestamps_may_run_backwards_and_be_at_the_ends_of_time(loops: str) -> None:
    times = [5, 3, -1, 2**63 - 1, -(2**63)]
    buffer = encode_records([(time, None, b"", ()) for time in times])
    assert decode(buffer).timestamps.tolist() == times


def marker(kind: ControlType, producer_id: int, offset: int) -> bytearray:
    return encode_control_batch(
        kind,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=0,
        base_offset=offset,
    )


def transactional(producer_id: int, *values: bytes, base_offset: int) -> bytearray:
    return batch(
        *values,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


@pytest.fixture
def transactions() -> bytes:
    """Producer 1 aborts, then commits; producer 2 commits in between."""
    return b"".join(
        [
            transactional(1, b"aborted", b"aborted", base_offset=0),
            transactional(2, b"two", base_offset=2),
            batch(b"plain", base_offset=3),
            marker(ControlType.ABORT, 1, 4),
            transactional(1, b"one", base_offset=5),
            marker(ControlType.COMMIT, 2, 6),
            marker(ControlType.COMMIT, 1, 7),
        ]
    )


def test_read_uncommitted_sees_all_but_the_markers(loops: str, transactions: bytes) -> None:
    decoded = decode(transactions)
    assert decoded.values.to_pylist() == [b"aborted", b"aborted", b"two", b"plain", b"one"]
    assert decoded.next_offset == 8


def test_read_committed_sees_no_aborted_record(loops: str, transactions: bytes) -> None:
    decoded = decode(transactions, aborted=[(1, 0)])
    assert decoded.values.to_pylist() == [b"two", b"plain", b"one"]
    assert decoded.offsets.tolist() == [2, 3, 5]
    assert decoded.next_offset == 8


def test_an_answer_that_takes_several_calls_forgets_no_marker(loops: str) -> None:
    parts = [
        transactional(1, b"aborted", base_offset=0),
        marker(ControlType.ABORT, 1, 1),
        transactional(1, b"kept", base_offset=2),
    ]
    aborted = AbortedProducers([(1, 0)])
    assert decode(b"".join(parts[:2]), aborted=aborted).values.to_pylist() == []
    assert decode(parts[2], aborted=aborted).values.to_pylist() == [b"kept"]


def test_an_aborted_transaction_that_begins_later_hides_nothing_earlier(loops: str) -> None:
    buffer = b"".join(
        [
            transactional(1, b"kept", base_offset=0),
            marker(ControlType.COMMIT, 1, 1),
            transactional(1, b"aborted", base_offset=2),
            marker(ControlType.ABORT, 1, 3),
        ]
    )
    assert decode(buffer, aborted=[(1, 2)]).values.to_pylist() == [b"kept"]


def test_mixed_codecs_keep_their_order(loops: str) -> None:
    buffer = b"".join(
        batch(b"%d" % offset * 50, base_offset=offset, codec=codec)
        for offset, codec in enumerate([0, 3, 4, 0, 1, 2, 0])
    )
    decoded = decode(buffer)
    assert decoded.values.to_pylist() == [b"%d" % offset * 50 for offset in range(7)]
    assert decode(buffer, fetch_offset=3).offsets.tolist() == [3, 4, 5, 6]


def test_what_is_decoded_does_not_need_the_buffer_any_more(loops: str) -> None:
    buffer = batch(b"a" * 50, b"b" * 50)
    decoded = decode(buffer)
    buffer[:] = bytes(len(buffer))
    assert decoded.values.to_pylist() == [b"a" * 50, b"b" * 50]


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_fetch_decompresses_no_more_than_its_limit_at_once(loops: str, codec: int) -> None:
    buffer = b"".join(batch(bytes(1000), base_offset=offset, codec=codec) for offset in range(5))
    offset, position, calls = 0, 0, 0
    while position < len(buffer):
        decoded = decode(buffer[position:], fetch_offset=offset, decompress_limit=2500)
        assert decoded.offsets.tolist() == list(range(offset, min(offset + 2, 5)))
        offset, position, calls = (
            decoded.next_offset,
            position + decoded.consumed_bytes,
            calls + 1,
        )
    assert calls == 3
    with pytest.raises(InvalidRecord, match="more than 900 bytes"):
        decode(buffer, decompress_limit=900)


def test_uncompressed_batches_are_bounded_by_the_limit_too_but_one_always_fits(
    loops: str,
) -> None:
    buffer = b"".join(batch(bytes(1000), base_offset=offset) for offset in range(3))
    assert decode(buffer, decompress_limit=10).offsets.tolist() == [0]


def with_header(buffer: bytearray, **changed: int) -> bytearray:
    """The batch with other header fields and the CRC they need."""
    header = read_header(buffer)._replace(**changed)
    HEADER.pack_into(buffer, 0, *header)
    if header.size == len(buffer):
        buffer[17:21] = compute_crc(buffer).to_bytes(4, "big")
    return buffer


@pytest.mark.parametrize(
    "changed",
    [
        {"base_offset": -1},
        {"base_offset": 2**63 - 1},
        {"last_offset_delta": -1},
        {"last_offset_delta": 0},
        {"record_count": -1},
        {"record_count": 1},
        {"record_count": 3},
        {"record_count": 2**31 - 1},
        {"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 1},
        {"record_count": 0},
        {"batch_length": -1},
        {"batch_length": -(2**31)},
        {"batch_length": 0},
        {"batch_length": 48},
        {"crc": 5, "batch_length": 70},
    ],
    ids=str,
)
def test_headers_that_lie_are_corrupt(loops: str, changed: dict[str, int]) -> None:
    with pytest.raises(CorruptMessage):
        decode(with_header(batch(b"a" * 10, b"b" * 10), **changed))


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_another_magic_is_refused(loops: str, magic: int) -> None:
    with pytest.raises(InvalidRecord, match=f"magic {magic}"):
        decode(with_header(batch(b"a"), magic=magic))


def test_a_wrong_crc_is_corrupt_unless_the_consumer_does_not_check(loops: str) -> None:
    buffer = batch(b"a")
    buffer[17] ^= 1
    with pytest.raises(CorruptMessage, match="CRC"):
        decode(buffer)
    assert decode(buffer, check_crc=False).values.to_pylist() == [b"a"]


def test_what_is_no_utf8_in_a_header_key_is_shown_as_replacement_characters(loops: str) -> None:
    record = bytearray(encode_record(0, 0, None, None, [("ab", b"1"), ("cd", None)]))
    record[record.index(b"ab")] = 0xFF
    buffer = build_batch(bytes(record), record_count=1, base_timestamp=0, max_timestamp=0)
    headers = decode(buffer).headers
    assert headers is not None
    assert headers.to_pylist() == [
        [{"key": "\ufffdb", "value": b"1"}, {"key": "cd", "value": None}]
    ]


@relaxed
@given(records=record_lists, cut=st.integers(0, 10**6))
def test_every_strict_prefix_of_the_records_is_corrupt(loops: str, records: list, cut: int) -> None:
    whole = bytes(encode_records(records)[61:])
    buffer = build_batch(
        whole[: cut % len(whole)], record_count=len(records), base_timestamp=0, max_timestamp=0
    )
    with pytest.raises(CorruptMessage):
        decode(buffer)


def outcome(records: bytes, count: int, last_offset_delta: int, loops: object) -> object:
    copied, viewed = (
        columns_of(records, count, last_offset_delta, loops, value_views=value_views)
        for value_views in (False, True)
    )
    assert copied == viewed
    return copied


def columns_of(
    records: bytes, count: int, last_offset_delta: int, loops: object, *, value_views: bool
) -> object:
    """What the loops make of the records: columns as lists, or the class of the error.

    Of what arrays leave to the plain loops it is None.

    All records are asked for: of one that is not, only the plain loops look at the header keys.
    """
    batches = np.array([[0, len(records), count, 10, last_offset_delta, 7, -(2**63)]], np.int64)
    try:
        parsed = loops.decode_records(
            np.frombuffer(records, np.uint8),
            batches,
            fetch_offset=10,
            end_offset=10**9,
            value_views=value_views,
        )
    except KafkaError as error:
        return type(error)
    if parsed is None:
        return None
    columns = []
    for array in (parsed.keys, parsed.values, parsed.headers):
        if array is not None:
            array.validate(full=True)
        columns.append(None if array is None else array.to_pylist())
    numbers = (parsed.offsets, parsed.timestamps, parsed.rows_per_batch)
    return columns + [array.tolist() for array in numbers]


@pytest.mark.thorough
@settings(deadline=None, max_examples=400)
@given(
    records=record_lists,
    changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4),
    count=st.integers(0, 8),
    last_offset_delta=st.integers(0, 10),
)
def test_both_loops_make_the_same_of_damaged_records(
    records: list, changes: list, count: int, last_offset_delta: int
) -> None:
    """The damage is behind a right CRC, as from a broken or hostile producer."""
    damaged = bytearray(encode_records(records)[61:])
    for position, byte in changes:
        damaged[position % len(damaged)] = byte
    arguments = (bytes(damaged), count or len(records), last_offset_delta or len(records) - 1)
    assert outcome(*arguments, columns_compiled) == (plain := outcome(*arguments, columns_plain))
    assert outcome(*arguments, columns_arrays_decode) in (plain, None)


@settings(deadline=None, max_examples=400)
@given(st.binary(max_size=60), st.integers(0, 8), st.integers(0, 100))
@example(b"\xff" * 20, 2, 100)
@example(b"\x80" * 20, 2, 100)
@example(b"\xfe\xff\xff\xff\x0f" * 4, 1, 100)
def test_both_loops_make_the_same_of_garbage(garbage: bytes, count: int, delta: int) -> None:
    plain = outcome(garbage, count, delta, columns_plain)
    assert outcome(garbage, count, delta, columns_compiled) == plain
    assert outcome(garbage, count, delta, columns_arrays_decode) in (plain, None)


@given(records=st.lists(st.tuples(times, fields, fields, headers), min_size=1, max_size=80))
@settings(deadline=None)
def test_arrays_decode_sound_records_themselves(records: list) -> None:
    content = bytes(encode_records(records)[61:])
    arguments = (content, len(records), len(records) - 1)
    assert outcome(*arguments, columns_arrays_decode) == outcome(*arguments, columns_plain)


SOUND = encode_record(0, 0, b"k", b"v", ())
UNUSUAL = {
    "a long length": bytes([SOUND[0] | 0x80, 0x80, 0x80, 0x80, 0]) + SOUND[1:],
    "many headers": encode_record(
        0, 0, b"k", b"v", [("h", b"")] * (columns_arrays_decode.MOST_HEADERS + 1)
    ),
    "a far timestamp": encode_record(2**60, 0, b"k", b"v", ()),
}


@pytest.mark.parametrize("record", UNUSUAL.values(), ids=UNUSUAL)
def test_arrays_leave_what_is_unusual_to_the_plain_loops(
    record: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert columns_of(SOUND, 1, 0, columns_arrays_decode, value_views=False) is not None
    assert columns_of(record, 1, 0, columns_arrays_decode, value_views=False) is None
    monkeypatch.setattr(kernel_loading, "ARRAYS_PAY", 0)
    keys, values, *_ = columns_of(record, 1, 0, columns_plain, value_views=False)
    assert (keys, values) == ([b"k"], [b"v"])


@pytest.mark.thorough
@relaxed
@given(records=record_lists, codec=st.sampled_from(CODECS), data=st.data())
def test_a_changed_byte_only_ever_raises_kafka_errors(
    loops: str, records: list, codec: int, data: st.DataObject
) -> None:
    buffer = encode_records(records, codec=codec)
    position = data.draw(st.integers(0, len(buffer) - 1))
    buffer[position] = data.draw(st.integers(0, 255))
    try:
        decode(buffer, check_crc=False, decompress_limit=10**6)
    except KafkaError:
        pass


@relaxed
@given(garbage=st.binary(max_size=300))
def test_garbage_only_ever_raises_kafka_errors(loops: str, garbage: bytes) -> None:
    for options in ({}, {"check_crc": False, "aborted": [(1, 0)]}):
        try:
            decode(garbage, **options)
        except KafkaError:
            pass


@relaxed
@given(garbage=st.binary(max_size=100), codec=st.sampled_from(CODECS), count=st.integers(0, 20))
def test_garbage_in_a_good_batch_only_ever_raises_kafka_errors(
    loops: str, garbage: bytes, codec: int, count: int
) -> None:
    buffer = build_batch(
        compress(codec, garbage),
        record_count=count,
        base_timestamp=0,
        max_timestamp=0,
        attributes=codec,
        last_offset_delta=50,
    )
    try:
        decoded = decode(buffer)
    except KafkaError:
        return
    assert len(decoded) == count
    assert decoded.keys.to_pylist() == [record.key for record in iterate_records(buffer)]


def test_a_whole_fetch_of_many_small_batches_comes_back(loops: str) -> None:
    buffer, offset = bytearray(), 0
    for size in range(1, 60):
        piece = batch(*[b"%d" % index for index in range(size)])
        stamp(piece, base_offset=offset, leader_epoch=1)
        buffer += piece
        offset += size
    decoded = decode(buffer)
    assert decoded.offsets.tolist() == list(range(offset))
    assert decoded.values.to_pylist() == [b"%d" % i for n in range(1, 60) for i in range(n)]


LOADING = """
import sys
if sys.argv[1] == "nowhere":
    from numba.core.caching import CacheImpl
    CacheImpl._locator_classes = []  # as where neither package nor home can be written
from bradbury.protocol import kernel_loading
from bradbury.protocol.columns import columns
from bradbury.protocol.records.records import encode_records
batch = encode_records([(0, None, b"x", ())] * 1000 * kernel_loading.OF_ARRAYS_FOR_ONE)
loaded = []
for _ in range(202):
    columns.decode_batches(batch, topic="t", partition=0, fetch_offset=0)
    loaded.append(columns.kernels_ready())
from bradbury.protocol.columns import columns_kernels
hits = sum(columns_kernels.parse.stats.cache_hits.values())
print(loaded.index(True), "pandas" in sys.modules, hits)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cache", "hits"),
    [
        ("writable", ["0", "1"]),
        pytest.param("nowhere", ["0", "0"], marks=pytest.mark.long),
    ],
)
def test_a_process_loads_the_kernels_when_it_has_done_enough_plainly(
    cache: str, hits: list[str], tmp_path: Path
) -> None:
    """The second process finds them on disk, or compiles again where no directory can keep them."""
    for expected_hits in hits:
        probe = subprocess.run(
            [sys.executable, "-c", LOADING, cache],
            env={**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert probe.stdout.split() == ["200", "False", expected_hits]
    assert any(tmp_path.rglob("*.nbi")) is (cache == "writable")
