"""What a cleaning leaves of each batch: horizons, markers, producers, codecs, odd records."""

import struct
from pathlib import Path

import pytest
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import given, settings, strategies as st
from kafka.record import MemoryRecords as KafkaPythonRecords

from bradbury.protocol import kernel_loading
from bradbury.protocol.errors import CorruptMessage
from bradbury.protocol.records.record_batch import (
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    HEADER_SIZE,
    TRANSACTIONAL_MASK,
    build_batch,
    read_header,
    stamp,
)
from bradbury.protocol.varint import encode_varint
from bradbury.storage.cleaner.cleaner_compiled import CompiledOffsetMap
from bradbury.storage.cleaner.cleaner_kernels import siphash
from bradbury.storage.cleaner.cleaner_plain import PlainOffsetMap
from bradbury.storage.cleaner.cleaner_rows import GROWTH, RecordRows, Rewrite
from bradbury.storage.log.aborted_transactions import find_aborted
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.log_config import LogConfig
from bradbury.storage.segments.batch_scan import walk_headers
from bradbury.storage.segments.transaction_index import (
    AbortedTransaction,
    read_transaction_index,
)
from tests.support.storage.keyed_logs import (
    SEED,
    append,
    clean,
    keyed_batch,
    read_records,
    stored_bytes,
)
from tests.support.storage.logs import open_log

CONFIG = LogConfig(cleanup_policy="compact", delete_retention_ms=100)
ABORT, COMMIT = 0, 1


@pytest.fixture(params=["plain", "compiled"], autouse=True)
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(
        kernel_loading, "PLAIN_RECORDS", {"plain": 1 << 60, "compiled": 0}[request.param]
    )
    return str(request.param)


def headers(log: PartitionLog) -> list[object]:
    return [
        header
        for segment in log.segments
        for _, header in walk_headers(segment.file, 0, segment.size)
    ]


def follow(log: PartitionLog, batch: bytearray) -> int:
    """Append as a follower does, which takes transactions; returns the base offset."""
    offset = log.log_end_offset
    stamp(batch, base_offset=offset, leader_epoch=0)
    log.append_as_follower(batch, now_ms=1000)
    log.high_watermark = log.log_end_offset
    return offset


def marker(kind: int, producer_id: int, *, timestamp: int = 1000, epoch: int = 0) -> bytearray:
    key, value = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0)
    body = b"\0\0\0" + encode_varint(len(key)) + key + encode_varint(len(value)) + value + b"\0"
    return build_batch(
        encode_varint(len(body)) + body,
        record_count=1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        attributes=TRANSACTIONAL_MASK | CONTROL_MASK,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


@pytest.mark.parametrize("codec", range(5))
def test_a_rewritten_batch_keeps_everything_but_the_records_that_went(
    tmp_path: Path, codec: int
) -> None:
    log = open_log(tmp_path, config=CONFIG)
    batch = keyed_batch(
        [(b"a", b"1" * 50), (b"b", b"2" * 50), (b"c", b"3" * 50)],
        codec=codec,
        timestamp=5000,
        producer_id=7,
        producer_epoch=3,
        base_sequence=11,
    )
    append(log, keyed_batch([(b"z", b"0")]))
    append(log, bytearray(batch))
    append(log, keyed_batch([(b"b", b"4"), (b"a", b"5")], timestamp=6000))
    log.local.roll(now_ms=1000)
    clean(log)
    assert [record[:1] + record[2:] for record in read_records(log)] == [
        (0, b"z", b"0"), (3, b"c", b"3" * 50), (4, b"b", b"4"), (5, b"a", b"5"),
    ]  # fmt: skip
    assert read_records(log)[1].timestamp == 5002
    before, after = read_header(batch), headers(log)[1]
    assert after.base_offset == 1  # type: ignore[attr-defined]
    for field in ("last_offset_delta", "attributes", "producer_id", "producer_epoch",
                  "base_sequence", "base_timestamp", "max_timestamp"):  # fmt: skip
        assert getattr(after, field) == getattr(before, field), field
    assert after.record_count == 1  # type: ignore[attr-defined]
    if codec in (0, 1, 2):  # what kafka-python can open here
        records = KafkaPythonRecords(stored_bytes(log))
        found = []
        while records.has_next():
            each = records.next_batch()
            assert each.validate_crc()
            found += [(record.offset, record.key) for record in each]
        assert found == [(0, b"z"), (3, b"c"), (4, b"b"), (5, b"a")]


def test_a_deletion_gets_a_horizon_and_goes_after_it(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=CONFIG)
    append(log, keyed_batch([(b"a", b"1"), (b"b", b"2")]))
    append(log, keyed_batch([(b"a", None), (b"c", b"3")], timestamp=1234))
    append(log, keyed_batch([(b"d", b"4")]))
    log.local.roll(now_ms=1000)
    clean(log, now_ms=2000)
    header = headers(log)[1]
    assert header.attributes & DELETE_HORIZON_MASK  # type: ignore[attr-defined]
    assert header.base_timestamp == 2100  # type: ignore[attr-defined]
    assert [(r.offset, r.timestamp, r.value) for r in read_records(log)] == [
        (1, 1001, b"2"), (2, 1234, None), (3, 1235, b"3"), (4, 1000, b"4"),
    ]  # fmt: skip
    for now_ms, left in ((2099, [1, 2, 3, 4]), (2100, [1, 3, 4])):
        append(log, keyed_batch([(b"e", b"%d" % now_ms)]))
        log.local.roll(now_ms=1000)
        clean(log, now_ms=now_ms)
        assert [r.offset for r in read_records(log)][: len(left)] == left
        assert read_records(log)[len(left) - 2].timestamp == 1235


def test_log_append_time_stays_what_it_was(tmp_path: Path) -> None:
    config = LogConfig(cleanup_policy="compact", message_timestamp_type="LogAppendTime")
    log = open_log(tmp_path, config=config)
    append(log, keyed_batch([(b"a", b"1"), (b"b", None)]), now_ms=777)
    append(log, keyed_batch([(b"a", b"2")]), now_ms=888)
    log.local.roll(now_ms=1000)
    clean(log, now_ms=5000)
    assert [(r.offset, r.timestamp) for r in read_records(log)] == [(1, 777), (2, 888)]
    assert log.segments[0].max_timestamp == 888


def test_the_last_batch_of_an_active_producer_stays_without_its_records(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=CONFIG)
    batches = [
        keyed_batch([(b"a", b"%d" % n)], producer_id=7, producer_epoch=1, base_sequence=n)
        for n in range(3)
    ]
    for batch in batches:
        append(log, bytearray(batch))
    append(log, keyed_batch([(b"a", b"last")]))
    log.local.roll(now_ms=1000)
    clean(log)
    assert [r.value for r in read_records(log)] == [b"last"]
    first, second = headers(log)
    assert (first.base_offset, first.record_count, first.base_sequence) == (2, 0, 2)  # type: ignore[attr-defined]
    assert (first.producer_id, first.producer_epoch) == (7, 1)  # type: ignore[attr-defined]
    assert second.base_offset == 3  # type: ignore[attr-defined]
    for path in tmp_path.glob("*.snapshot"):
        path.unlink()
    again = open_log(tmp_path, config=CONFIG, high_watermark=4)
    assert again.append_as_leader(bytearray(batches[2]), leader_epoch=0, now_ms=1).duplicate
    # It goes when the producer has written more, or is forgotten.
    append(again, keyed_batch([(b"q", b"3")], producer_id=7, producer_epoch=1, base_sequence=3))
    again.local.roll(now_ms=1000)
    clean(again)
    assert [h.base_offset for h in headers(again)] == [3, 4]  # type: ignore[attr-defined]


def test_the_last_batch_of_what_was_cleaned_stays_so_that_the_end_is_known(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig())
    append(log, keyed_batch([(b"a", b"1")]))
    append(log, keyed_batch([(None, b"2"), (None, b"3")]))
    append(log, keyed_batch([(None, b"4"), (None, b"5")]))
    log.local.reconfigure(CONFIG)
    log.local.roll(now_ms=1000)
    clean(log)
    assert [r.offset for r in read_records(log)] == [0]
    assert [(h.base_offset, h.last_offset, h.record_count) for h in headers(log)] == [  # type: ignore[attr-defined]
        (0, 0, 1),
        (3, 4, 0),
    ]
    append(log, keyed_batch([(b"a", b"6")]))
    log.local.roll(now_ms=1000)
    clean(log)
    assert [h.base_offset for h in headers(log)] == [5]  # type: ignore[attr-defined]


def test_records_without_a_key_are_dropped_and_counted(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig())
    append(log, keyed_batch([(b"a", b"1"), (None, b"2"), (None, None)]))
    log.local.reconfigure(CONFIG)
    append(log, keyed_batch([(b"b", b"3")]))
    log.local.roll(now_ms=1000)
    cleaning = clean(log)
    assert cleaning is not None
    assert cleaning.report.keyless_records == 2
    assert [r.offset for r in read_records(log)] == [0, 3]


def test_aborted_data_goes_at_once_and_its_marker_after_the_horizon(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=CONFIG)
    append(log, keyed_batch([(b"a", b"before")]))
    options = {"transactional": True, "producer_id": 9, "producer_epoch": 0}
    first = follow(log, keyed_batch([(b"a", b"x")], base_sequence=0, **options))  # type: ignore[arg-type]
    last = follow(log, marker(ABORT, 9))
    follow(log, keyed_batch([(b"b", b"kept")], base_sequence=1, **options))  # type: ignore[arg-type]
    committed = follow(log, marker(COMMIT, 9))
    append(log, keyed_batch([(b"c", b"end")]))
    log.local.roll(now_ms=1000)
    path = log.segments[0].files.path_prefix + ".txnindex"
    aborted = AbortedTransaction(9, first, last, last + 1)
    assert read_transaction_index(log.local.file_system, path) == [aborted]
    clean(log, now_ms=2000)
    assert [r.value for r in read_records(log)] == [b"before", b"kept", b"end"]
    # Data was met before the marker: it stays, and so does the index's entry.
    assert read_transaction_index(log.local.file_system, path) == [aborted]
    markers = [h.base_offset for h in headers(log) if h.is_control]  # type: ignore[attr-defined]
    assert markers == [last, committed]
    for now_ms, left in ((3000, [last, committed]), (3099, [last, committed]), (3100, [committed])):
        append(log, keyed_batch([(b"d", b"%d" % now_ms)]))
        log.local.roll(now_ms=1000)
        clean(log, now_ms=now_ms)
        assert read_transaction_index(log.local.file_system, path) == []
        markers = [h.base_offset for h in headers(log) if h.is_control]  # type: ignore[attr-defined]
        assert markers == left
    records = AiokafkaRecords(stored_bytes(log))
    while records.has_next():
        assert records.next_batch().validate_crc()


def test_an_aborted_record_does_not_take_an_older_ones_place_wherever_its_marker_is(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path, config=CONFIG)
    append(log, keyed_batch([(b"a", b"committed")]))
    options = {"transactional": True, "producer_id": 9, "producer_epoch": 0}
    follow(log, keyed_batch([(b"a", b"aborted")], base_sequence=0, **options))  # type: ignore[arg-type]
    append(log, keyed_batch([(b"b", b"other")]))
    log.local.roll(now_ms=1000)
    aborted = follow(log, marker(ABORT, 9))
    clean(log, now_ms=2000)
    assert [record.value for record in read_records(log)] == [b"committed", b"other"]
    assert [each[:3] for each in find_aborted(log, 0, log.log_end_offset)] == [(9, 1, aborted)]


def test_the_last_marker_of_a_producer_without_batches_is_kept_for_its_epoch(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path, config=CONFIG)
    options = {"transactional": True, "producer_id": 9, "producer_epoch": 0}
    append(log, keyed_batch([(b"b", b"other")]))
    follow(log, keyed_batch([(b"a", b"1")], base_sequence=0, **options))  # type: ignore[arg-type]
    last = follow(log, marker(COMMIT, 9, epoch=3))
    append(log, keyed_batch([(b"a", b"2")]))
    append(log, keyed_batch([(b"b", b"2")]))
    for now_ms in (2000, 3000, 4000):
        log.local.roll(now_ms=1000)
        clean(log, now_ms=now_ms)
        append(log, keyed_batch([(b"c", b"%d" % now_ms)]))
    kept = [h for h in headers(log) if h.is_control]  # type: ignore[attr-defined]
    assert [(h.base_offset, h.record_count, h.producer_epoch) for h in kept] == [(last, 0, 3)]  # type: ignore[attr-defined]
    log.close(clean=False)
    for path in tmp_path.glob("*.snapshot"):
        path.unlink()
    again = open_log(tmp_path, config=CONFIG, cleaner_offset=0)
    assert again.local.producers.entries[9].epoch == 3


RECORD = st.tuples(
    st.one_of(st.none(), st.binary(max_size=20)), st.one_of(st.none(), st.binary(max_size=200))
)
BATCHES = st.lists(st.lists(RECORD, min_size=1, max_size=6), min_size=1, max_size=6)


@given(batches=BATCHES, limit=st.integers(1, 12), start=st.integers(0, 10), shift=st.integers(-(2**40), 2**40), drops=st.lists(st.booleans(), min_size=6, max_size=6))  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_both_twins_choose_and_write_the_same(
    batches: list[list[tuple[bytes | None, bytes | None]]],
    limit: int,
    start: int,
    shift: int,
    drops: list[bool],
) -> None:
    source, rows = b"", []
    offset = 0
    for records, drop in zip(batches, drops, strict=False):
        content = bytes(keyed_batch(records))[HEADER_SIZE:]
        rows.append(
            RecordRows(
                len(source),
                len(source) + len(content),
                len(records),
                offset,
                len(records) - 1,
                1000,
                int(drop),
            )
        )
        source += content
        offset += len(records)
    twins = [PlainOffsetMap(limit, SEED), CompiledOffsetMap(limit, SEED)]
    assert len({twin.index(source, rows, start) for twin in twins}) == 1
    assert len({(twin.entries, twin.latest_offset) for twin in twins}) == 1
    found = [twin.filter(source, rows) for twin in twins]
    assert found[0].kept == found[1].kept
    for each_shift in (0, shift):
        rewrites, position = [], 0
        for number, kept in enumerate(found[0].kept):
            rewrites.append(Rewrite(number, position, each_shift))
            position += kept.size + GROWTH * kept.record_count
        targets = [bytearray(position + 1), bytearray(position + 1)]
        ends = [one.rewrite(rewrites, target) for one, target in zip(found, targets, strict=True)]
        assert ends[0] == ends[1]
        for (_, begin, _), end in zip(rewrites, ends[0], strict=True):
            assert targets[0][begin:end] == targets[1][begin:end]


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_damaged_records_are_an_error_to_both_twins_and_never_more(data: st.DataObject) -> None:
    content = bytearray(keyed_batch([(b"key", b"value"), (b"key2", None), (None, b"x" * 90)]))
    records = content[HEADER_SIZE:]
    for _ in range(data.draw(st.integers(1, 4))):
        records[data.draw(st.integers(0, len(records) - 1))] = data.draw(st.integers(0, 255))
    rows = [RecordRows(0, len(records), 3, 0, 2, 1000, 0)]
    answers = []
    for twin in (PlainOffsetMap(10, SEED), CompiledOffsetMap(10, SEED)):
        try:
            twin.index(records, rows, 0)
            answers.append(twin.filter(records, rows).kept)
        except CorruptMessage:
            answers.append(None)
    assert answers[0] == answers[1] or None in answers


@pytest.mark.parametrize(
    ("length", "expected"),
    [(0, "a3817f04ba25a8e66df67214c7550293"), (1, "da87c1d86b99af44347659119b22fc45")],
)
def test_the_hash_is_siphash_with_128_bits(length: int, expected: str) -> None:
    """The first vectors of the authors' own test."""
    import numpy as np

    key = np.frombuffer(bytes(range(16)), "<u8").astype(np.uint64)
    source = np.frombuffer(bytes(range(length)) + b"\0", np.uint8)
    words = siphash(source, 0, length, key[0], key[1])
    assert b"".join(int(word).to_bytes(8, "little") for word in words).hex() == expected
