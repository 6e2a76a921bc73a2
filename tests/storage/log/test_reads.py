"""Which bytes does a read return? A plain list of batches is the oracle."""

import gc
import os
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from bradbury.protocol.errors import KafkaStorageError, OffsetOutOfRange
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.log.retention import apply_retention
from bradbury.storage.log.timestamp_search import begin_search
from bradbury.storage.log_config import LogConfig
from bradbury.tests.support.storage.batches import make_batch
from bradbury.tests.support.storage.logs import open_file_count, open_log, read_all, read_slice


class Stored(NamedTuple):
    base_offset: int
    next_offset: int
    content: bytes


def append(log: PartitionLog, counts: list[int], *, value: bytes = b"value") -> list[Stored]:
    stored = []
    for count in counts:
        batch = make_batch(count, value=value)
        result = log.append_as_leader(batch, leader_epoch=0, now_ms=1000)
        stored.append(Stored(result.base_offset, result.last_offset + 1, bytes(batch)))
    return stored


def expected_prefix(stored: list[Stored], fetch_offset: int, up_to: int) -> list[Stored]:
    return [s for s in stored if s.next_offset > fetch_offset and s.next_offset <= up_to]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=25),
    segment_bytes=st.sampled_from([256, 600, 100_000]),
    index_interval_bytes=st.sampled_from([0, 100, 4096]),
    max_bytes=st.sampled_from([0, 1, 100, 250, 10_000]),
    reopen=st.booleans(),
    data=st.data(),
)
def test_reads_at_every_offset_are_what_a_linear_scan_gives(
    tmp_path_factory: pytest.TempPathFactory,
    counts: list[int],
    segment_bytes: int,
    index_interval_bytes: int,
    max_bytes: int,
    reopen: bool,
    data: st.DataObject,
) -> None:
    directory = tmp_path_factory.mktemp("log")
    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes)
    log = open_log(directory, config=config)
    stored = append(log, counts)
    if reopen:
        log.close(clean=True)
        log = open_log(
            directory, config=config, clean=True, recovery_point=log.flushing.recovery_point
        )
    up_to = data.draw(st.sampled_from([0, *(s.next_offset for s in stored)]))
    for fetch_offset in data.draw(st.permutations(range(log.log_end_offset + 1))):
        for min_one_batch in (True, False):
            piece = log.read(
                fetch_offset, max_bytes=max_bytes, up_to=up_to, min_one_batch=min_one_batch
            )
            due = expected_prefix(stored, fetch_offset, up_to)
            got = read_slice(piece)
            whole = b""
            count = 0
            for each in due:
                if len(whole) >= len(got):
                    break
                whole += each.content
                count += 1
            assert got == whole, "whole batches, from the one that holds fetch_offset on"
            if not due:
                assert piece.size == 0
            elif min_one_batch or len(due[0].content) <= max_bytes:
                assert piece.size > 0
            else:
                assert piece.size == 0
                assert piece.is_limited
            assert piece.size <= max_bytes or (min_one_batch and count == 1)
            if piece.size:
                assert piece.next_offset == due[count - 1].next_offset
                if count < len(due) and piece.size + len(due[count].content) <= max_bytes:
                    starts = {segment.base_offset for segment in log.segments}
                    assert piece.next_offset in starts, "only a segment's end makes it short"


def test_an_offset_outside_the_log_is_out_of_range(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, [2, 2])
    log.high_watermark = 4
    log.advance_log_start_offset(2)
    for offset in (-1, 1, 5, 2**62):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, max_bytes=1000, up_to=4, min_one_batch=True)
    assert log.read(4, max_bytes=1000, up_to=4, min_one_batch=True).size == 0
    assert log.read(3, max_bytes=1000, up_to=2, min_one_batch=True).size == 0


def test_a_slice_stays_readable_after_its_segment_is_deleted_and_unlinked(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=256, retention_bytes=0, file_delete_delay_ms=10)
    log = open_log(tmp_path, config=config)
    stored = append(log, [3] * 8)
    piece = log.read(0, max_bytes=10_000, up_to=24, min_one_batch=True)
    log.high_watermark = 24
    assert apply_retention(log, now_ms=1000)
    assert log.local.delete_old_files(now_ms=1010) > 0
    assert not (tmp_path / f"{0:020d}.log").exists()
    assert piece.file is not None
    assert os.pread(piece.file.fileno(), piece.size, piece.position).startswith(stored[0].content)


def test_a_descriptor_is_closed_with_the_last_slice_of_a_deleted_segment(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=256, retention_bytes=0)
    log = open_log(tmp_path, config=config)
    append(log, [3] * 8)
    gc.collect()
    before = open_file_count(tmp_path)
    pieces = [
        log.read(segment.base_offset, max_bytes=1, up_to=24, min_one_batch=True)
        for segment in log.segments[:-1]
    ]
    log.high_watermark = 24
    apply_retention(log, now_ms=1000)
    assert open_file_count(tmp_path) >= before
    del pieces
    assert open_file_count(tmp_path) <= before


def test_the_active_segment_alone_is_open_after_sequential_appends_and_a_reopen(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_bytes=256))
    append(log, [3] * 20)
    log.close(clean=True)
    gc.collect()
    before = open_file_count(tmp_path)
    log = open_log(tmp_path, config=LogConfig(segment_bytes=256), clean=True)
    assert open_file_count(tmp_path) == before
    append(log, [1])
    assert open_file_count(tmp_path) == before + 1


def test_a_reader_of_a_large_log_gets_everything_once_whatever_its_buffer(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_bytes=300_000))
    stored = append(log, [1] * 300, value=bytes(3000))
    whole = b"".join(each.content for each in stored)
    for max_bytes in (1, 3000, 10_000, 65_536, 1 << 20):
        assert read_all(log, max_bytes=max_bytes) == whole


def test_a_closed_log_refuses_and_does_not_blame_the_disk(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, [1])
    log.close(clean=False)
    for use in (
        lambda: log.append_as_leader(make_batch(), leader_epoch=0, now_ms=1),
        lambda: log.read(0, max_bytes=1, up_to=1, min_one_batch=True),
        log.flushing.begin_flush,
        lambda: begin_search(log, up_to=1).first_at_or_after(0),
    ):
        with pytest.raises(KafkaStorageError, match="is closed"):
            use()


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=4), min_size=1, max_size=20),
    codec=st.sampled_from([0, 1, 2]),
    index_interval_bytes=st.sampled_from([0, 200]),
    reopen=st.booleans(),
)
def test_timestamps_lead_to_the_first_record_that_is_not_earlier(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[int]],
    codec: int,
    index_interval_bytes: int,
    reopen: bool,
) -> None:
    directory = tmp_path_factory.mktemp("log")
    config = LogConfig(segment_bytes=300, index_interval_bytes=index_interval_bytes)
    log = open_log(directory, config=config)
    for timestamps in batches:
        batch = make_batch(timestamps=timestamps, codec=codec)
        log.append_as_leader(batch, leader_epoch=3, now_ms=1000)
    if reopen:
        log.close(clean=True)
        log = open_log(directory, config=config, clean=True)
    records = [timestamp for timestamps in batches for timestamp in timestamps]
    end = len(records)
    for wanted in range(42):
        due = [(ts, offset, 3) for offset, ts in enumerate(records) if ts >= wanted]
        assert begin_search(log, up_to=end).first_at_or_after(wanted) == (due[0] if due else None)
        if due:
            assert begin_search(log, up_to=due[0][1]).first_at_or_after(wanted) is None
    newest = max(records)
    found = begin_search(log, up_to=end).first_with_max_timestamp()
    assert found == (newest, records.index(newest), 3)


def test_an_empty_log_has_no_timestamps(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert begin_search(log, up_to=0).first_at_or_after(0) is None
    assert begin_search(log, up_to=0).first_with_max_timestamp() is None
