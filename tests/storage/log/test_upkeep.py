"""When do records leave a log, and when are they safe on the disk?"""

from functools import partial
from pathlib import Path

import pytest

from bradbury.protocol.errors import OffsetOutOfRange
from bradbury.storage.disk.file_system import OsFileSystem
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.log.retention import SegmentDeletion, apply_retention
from bradbury.storage.log.timestamp_search import begin_search
from bradbury.storage.log_config import LONG_MAX, LogConfig
from bradbury.tests.support.storage import batches
from bradbury.tests.support.storage.logs import open_log, read_all
from bradbury.tests.support.storage.memory_file_system import MemoryFileSystem

make_batch = partial(batches.make_batch, key=b"key")  # compacted topics want keys
SIZE = len(make_batch())
TWO = 2 * SIZE  # two batches of one record fill a segment


def fill(log: PartitionLog, count: int, *, start_ms: int = 1000) -> None:
    """`count` batches of one record, 100 ms apart, all committed."""
    for number in range(count):
        batch = make_batch(timestamps=[start_ms + 100 * number])
        epoch = max(number // 3, log.epochs.latest_epoch)
        log.append_as_leader(batch, leader_epoch=epoch, now_ms=start_ms + 100 * number)
    log.high_watermark = log.log_end_offset


def names(directory: Path, suffix: str) -> list[int]:
    return sorted(int(path.name.split(".")[0]) for path in directory.glob("*" + suffix))


def test_retention_by_size_keeps_at_least_that_many_bytes(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_bytes=TWO, retention_bytes=3 * SIZE))
    fill(log, 10)
    deletions = apply_retention(log, now_ms=1000)
    assert [each.base_offset for each in deletions] == [0, 2, 4]
    assert deletions[0] == SegmentDeletion(0, 2, TWO, f"retention.bytes={3 * SIZE}")
    assert (log.log_start_offset, log.segments.size_in_bytes) == (6, 2 * TWO)
    with pytest.raises(OffsetOutOfRange):
        log.read(5, max_bytes=1, up_to=10, min_one_batch=True)
    assert apply_retention(log, now_ms=1000) == []


def test_retention_by_time_goes_by_the_newest_record_of_a_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_bytes=TWO, retention_ms=1000))
    fill(log, 10)  # segments end at 1100, 1300, 1500, 1700, 1900
    assert apply_retention(log, now_ms=2100) == []
    assert [each.base_offset for each in apply_retention(log, now_ms=2301)] == [0, 2]
    assert log.log_start_offset == 4


def test_when_all_is_too_old_an_empty_segment_remains(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_bytes=TWO, retention_ms=1000))
    fill(log, 5)
    assert len(apply_retention(log, now_ms=100_000)) == 3
    assert (log.log_start_offset, log.log_end_offset, log.segments.size_in_bytes) == (5, 5, 0)
    assert apply_retention(log, now_ms=100_000) == []
    result = log.append_as_leader(make_batch(), leader_epoch=9, now_ms=1000)
    assert result.base_offset == 5
    assert open_log(tmp_path).log_start_offset == 5


def test_records_that_are_not_committed_are_kept(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_bytes=TWO, retention_bytes=0))
    for _ in range(6):
        log.append_as_leader(make_batch(), leader_epoch=0, now_ms=1000)
    log.high_watermark = 3
    assert [each.base_offset for each in apply_retention(log, now_ms=1000)] == [0]


def test_nothing_is_deleted_for_age_or_size_when_retention_is_off_or_compacting(
    tmp_path: Path,
) -> None:
    off = LogConfig(segment_bytes=TWO, retention_ms=-1)
    compacting = LogConfig(segment_bytes=TWO, retention_bytes=0, cleanup_policy="compact")
    for name, config in (("off", off), ("compacting", compacting)):
        log = open_log(tmp_path / name, config=config)
        fill(log, 6)
        assert apply_retention(log, now_ms=LONG_MAX) == []


def test_segments_below_the_log_start_go_whatever_the_policy(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=TWO, retention_ms=-1, cleanup_policy="compact")
    log = open_log(tmp_path, config=config)
    fill(log, 6)
    with pytest.raises(OffsetOutOfRange):
        log.advance_log_start_offset(7)
    log.advance_log_start_offset(3)
    assert apply_retention(log, now_ms=0) == [SegmentDeletion(0, 2, TWO, "below log start offset")]
    assert log.log_start_offset == 3
    assert log.epochs.entries == [(1, 3)]


def test_files_are_renamed_at_once_and_unlinked_after_the_delay(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=TWO, retention_bytes=TWO, file_delete_delay_ms=500)
    log = open_log(tmp_path, config=config)
    fill(log, 6)
    apply_retention(log, now_ms=1000)
    assert names(tmp_path, ".log") == [4]
    assert names(tmp_path, ".log.deleted") == [0, 2]
    assert log.local.delete_old_files(now_ms=1499) == 0
    assert log.local.delete_old_files(now_ms=1500) == 7  # log and two indexes each, one snapshot
    assert names(tmp_path, ".deleted") == []


def test_a_new_configuration_acts_at_once(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_bytes=TWO))
    fill(log, 6)
    assert apply_retention(log, now_ms=2000) == []
    log.local.reconfigure(LogConfig(segment_bytes=1 << 20, retention_bytes=TWO))
    assert len(apply_retention(log, now_ms=2000)) == 2
    fill(log, 6)
    assert len(log.segments) == 1


@pytest.mark.parametrize("offset", range(1, 10))
def test_truncation_leaves_exactly_the_batches_below(tmp_path: Path, offset: int) -> None:
    config = LogConfig(segment_bytes=TWO, index_interval_bytes=0)
    log = open_log(tmp_path, config=config)
    fill(log, 10)
    log.flushing.flush()
    content = read_all(log)
    dropped = log.truncate_to(offset)
    assert dropped == (10 - offset) * SIZE
    assert log.log_end_offset == log.flushing.recovery_point == log.high_watermark == offset
    assert read_all(log) == content[: offset * SIZE]
    assert log.epochs.entries == [(e, 3 * e) for e in range(4) if 3 * e < offset]
    found = begin_search(log, up_to=offset).first_with_max_timestamp()
    assert found is not None
    assert found.offset == offset - 1
    assert begin_search(log, up_to=10).first_at_or_after(1000 + 100 * offset) is None
    fill(log, 3, start_ms=5000)
    assert log.log_end_offset == offset + 3
    for start in range(offset + 3):
        assert len(read_all(log, start)) == (offset + 3 - start) * SIZE
    again = open_log(tmp_path, config=config)
    assert read_all(again) == read_all(log)
    assert again.recovery.bytes_truncated == 0
    assert log.local.delete_old_files(now_ms=0) >= 0
    assert names(tmp_path, ".deleted") == []


@pytest.mark.parametrize("segment_bytes", [TWO, 100 * SIZE])
@pytest.mark.parametrize("offset", [0, 3, 6])
def test_a_power_loss_does_not_bring_back_what_was_truncated(
    offset: int, segment_bytes: int
) -> None:
    """The log has grown again since, and its high watermark is known to be above."""
    config = LogConfig(segment_bytes=segment_bytes)
    disk = MemoryFileSystem()
    log = open_log("/data/t-0", file_system=disk, config=config)
    fill(log, 8)
    log.flushing.flush()
    before = read_all(log)
    log.truncate_to(offset)
    fill(log, 8 - offset, start_ms=9000)
    log.high_watermark = 8
    after = open_log(
        "/data/t-0", file_system=disk.crash(), config=config, high_watermark=log.high_watermark
    )
    assert after.log_end_offset == offset
    assert read_all(after) == before[: offset * SIZE]


def test_truncation_inside_a_batch_removes_the_whole_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(2):
        log.append_as_leader(make_batch(5), leader_epoch=0, now_ms=1000)
    log.truncate_to(7)
    assert log.log_end_offset == 5


def test_truncation_at_or_below_the_start_empties_the_log_and_starts_there(tmp_path: Path) -> None:
    log = open_log(tmp_path, log_start_offset=20)
    fill(log, 3)
    log.truncate_to(10)
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)
    assert log.append_as_leader(make_batch(), leader_epoch=7, now_ms=1).base_offset == 10
    again = open_log(tmp_path)
    assert (again.log_start_offset, again.log_end_offset) == (10, 11)


def test_the_recovery_point_moves_only_when_the_flush_is_complete(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_bytes=TWO))
    fill(log, 5)
    work = log.flushing.begin_flush()
    assert work is not None
    fill(log, 2)
    work.run()
    assert (log.flushing.recovery_point, log.flushing.unflushed_records) == (0, 7)
    log.flushing.complete_flush(work)
    assert (log.flushing.recovery_point, log.flushing.unflushed_records) == (5, 2)
    log.flushing.flush()
    assert log.flushing.begin_flush() is None


def test_a_flush_begun_before_a_truncation_does_not_vouch_for_what_came_after(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path)
    fill(log, 5)
    work = log.flushing.begin_flush()
    assert work is not None
    log.truncate_to(2)
    fill(log, 4)
    work.run()
    log.flushing.complete_flush(work)
    assert log.flushing.recovery_point == 0


def test_flush_messages_and_flush_ms_say_when_a_flush_is_due(tmp_path: Path) -> None:
    config = LogConfig(flush_messages=3, flush_ms=500)
    log = open_log(tmp_path, config=config)
    assert not log.flushing.needs_flush(now_ms=10_000)
    log.append_as_leader(make_batch(2), leader_epoch=0, now_ms=1000)
    assert not log.flushing.needs_flush(now_ms=1499)
    assert log.flushing.needs_flush(now_ms=1500)
    log.append_as_leader(make_batch(), leader_epoch=0, now_ms=1100)
    assert log.flushing.needs_flush(now_ms=1100)
    log.flushing.flush()
    assert not log.flushing.needs_flush(now_ms=10_000)
    log.append_as_leader(make_batch(), leader_epoch=0, now_ms=10_000)
    assert not log.flushing.needs_flush(now_ms=10_499)
    never = open_log(tmp_path / "never")
    fill(never, 50)
    assert not never.flushing.needs_flush(now_ms=10**15)


def test_a_flush_runs_on_while_its_log_is_deleted(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", config=LogConfig(segment_bytes=TWO))
    fill(log, 5)
    work = log.flushing.begin_flush()
    assert work is not None
    log.close(clean=False)
    OsFileSystem().rename(str(tmp_path / "log"), str(tmp_path / "gone"))
    work.run()
