"""Which logs are compacted, up to where, and how fast; and when segments are closed for it."""

from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from bradbury.storage.cleaner.cleaner_config import CleanerConfig
from bradbury.storage.directories.log_directory import LogDirectory
from bradbury.storage.disk.file_system import OsFileSystem
from bradbury.storage.disk.throttler import CHECK_INTERVAL_MS, Throttler
from bradbury.storage.log.cleaner_manager import choose_filthiest, find_cleanable
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.log_config import LogConfig
from tests.support.storage.keyed_logs import append, clean, keyed_batch, read_records
from tests.support.storage.logs import open_log

TOPIC_ID = UUID(int=7)


def config(**rest: object) -> LogConfig:
    return LogConfig(segment_bytes=150, cleanup_policy="compact", **rest)  # type: ignore[arg-type]


def fill(log: PartitionLog, count: int, *, timestamp: int = 1000, step: int = 0) -> None:
    """Segments of one batch of 136 bytes each; the last is the active one."""
    for number in range(count):
        append(log, keyed_batch([(b"k", b"v" * 64)], timestamp=timestamp + step * number))


def test_all_closed_segments_below_the_high_watermark_can_be_cleaned(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=config())
    fill(log, 5)
    found = find_cleanable(log, 2000)
    assert (found.first_dirty_offset, found.end_offset) == (0, 4)
    assert found.clean_bytes == 0
    assert found.cleanable_bytes == 4 * log.segments[0].size
    assert found.cleanable_ratio == 1.0
    uncommitted = open_log(tmp_path, config=config(), high_watermark=2)
    assert find_cleanable(uncommitted, 2000).end_offset == 2


def test_a_log_is_cleaned_when_more_than_the_ratio_is_dirty(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=config(min_cleanable_dirty_ratio=0.5))
    fill(log, 3)
    clean(log)
    (left,) = {record.offset for record in read_records(log)} - {2}
    assert left == 1
    assert not find_cleanable(log, 2000).is_needed
    fill(log, 1)
    half = find_cleanable(log, 2000)
    assert half.cleanable_ratio == 0.5
    assert not half.is_needed
    fill(log, 1)
    assert find_cleanable(log, 2000).is_needed


def test_the_dirtiest_log_comes_first(tmp_path: Path) -> None:
    logs = [open_log(tmp_path / str(count), config=config()) for count in range(3)]
    for count, log in enumerate(logs):
        fill(log, 3)
        clean(log)
        fill(log, count * 2)
    candidates = [find_cleanable(log, 2000) for log in logs]
    chosen = choose_filthiest(candidates)
    assert chosen is not None
    assert chosen.log is logs[2]
    assert choose_filthiest(candidates[:1]) is None


def test_young_records_are_left_alone(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=config(min_compaction_lag_ms=250))
    fill(log, 5, timestamp=1000, step=100)
    assert [find_cleanable(log, now).end_offset for now in (1249, 1250, 1350, 5000)] == [0, 1, 2, 4]
    assert not find_cleanable(log, 1249).is_needed


def test_an_old_record_makes_a_log_overdue_whatever_its_ratio(tmp_path: Path) -> None:
    settings = config(max_compaction_lag_ms=500, min_cleanable_dirty_ratio=1.0)
    log = open_log(tmp_path, config=settings)
    fill(log, 2)
    assert not find_cleanable(log, 1500).is_needed
    assert find_cleanable(log, 1501).is_needed
    # The active segment is closed for it: by the next record, or by the cleaner if there is none.
    assert not log.compaction.roll_if_overdue(1500)
    assert log.compaction.roll_if_overdue(1501)
    assert not log.compaction.roll_if_overdue(1501)
    assert find_cleanable(log, 1501).end_offset == 2
    fill(log, 1, timestamp=2000)
    append(log, keyed_batch([(b"k", b"")], timestamp=2501))
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2, 3]


def test_a_first_dirty_offset_that_cannot_be_is_the_log_start(tmp_path: Path) -> None:
    for number, offset in enumerate((99, -1, None)):
        log = open_log(tmp_path / str(number), config=config(), cleaner_offset=offset)
        fill(log, 3)
        assert find_cleanable(log, 2000).first_dirty_offset == 0
    log.advance_log_start_offset(2)
    assert find_cleanable(log, 2000).first_dirty_offset == 2


def test_a_truncated_log_is_dirty_from_there_on(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=config())
    fill(log, 6)
    clean(log)
    assert log.compaction.cleaner_offset == 5
    log.truncate_to(4)
    fill(log, 6)
    assert find_cleanable(log, 2000).first_dirty_offset == 4


def test_the_checkpoint_is_kafkas_and_survives_a_restart(tmp_path: Path) -> None:
    def open_directory() -> LogDirectory:
        directory = LogDirectory.open(OsFileSystem(), str(tmp_path), directory_id="d")
        directory.load_logs(lambda topic: LogConfig(), now_ms=1000)
        return directory

    directory = open_directory()
    log = directory.create_log("t", 3, TOPIC_ID, config())
    directory.create_log("never-compacted", 0, TOPIC_ID, LogConfig())
    fill(log, 6)
    # As before a cleaning: noted, then on the disk, then segments are replaced.
    log.compaction.note_gaps(log.log_start_offset)
    first = directory.checkpoints.begin()
    assert first is not None
    first.run()
    clean(log)
    directory.close(clean=False)
    directory = open_directory()  # died before the next checkpoint
    log = directory.logs["t", 3]
    assert log.compaction.cleaner_offset == 0
    assert [record.offset for record in read_records(log)] == [4, 5]
    log.local.reconfigure(config())
    log.high_watermark = log.log_end_offset
    clean(log)
    work = directory.checkpoints.begin()
    assert work is not None
    work.run()
    checkpoint = tmp_path / "cleaner-offset-checkpoint"
    assert "t 3 5" in checkpoint.read_text().splitlines()
    before = read_records(log)
    directory.close(clean=False)
    for damage in (None, b"garbage"):
        if damage is not None:
            checkpoint.write_bytes(damage)
        (tmp_path / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
        directory = open_directory()
        log = directory.logs["t", 3]
        assert read_records(log) == before
        assert log.compaction.cleaner_offset == (5 if damage is None else 0)
        directory.close(clean=False)


def test_segments_are_joined_as_far_as_one_may_grow(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=config(index_interval_bytes=0))
    for number in range(40):
        append(log, keyed_batch([(b"k%d" % number, b"v" * 60)]))
    log.local.roll(now_ms=1000)
    assert len(log.segments) == 41
    log.local.reconfigure(LogConfig(segment_bytes=1000, cleanup_policy="compact"))
    clean(log)
    assert [r.offset for r in read_records(log)] == list(range(40))
    assert all(segment.size <= 1000 for segment in log.segments)
    assert len(log.segments) == 7
    for offset in range(40):
        piece = log.read(offset, max_bytes=1, up_to=40, min_one_batch=True)
        assert piece.next_offset == offset + 1
    # A snapshot lives and dies with the segment that begins there.
    bases = {segment.base_offset for segment in log.segments} - {0}
    assert {int(path.stem) for path in tmp_path.glob("*.snapshot")} == bases


def test_a_map_that_is_full_ends_the_round_and_the_next_goes_on(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=config())
    for number in range(12):
        append(log, keyed_batch([(b"k%d" % (number % 6), b"v" * 60)]))
    ends = []
    while (
        cleaning := clean(log, dedupe_buffer_size=4 * 24, io_buffer_load_factor=1.0)
    ) is not None:
        ends.append(cleaning.end_offset)
        assert cleaning.report.buffer_utilization <= 1.0
    assert ends == [4, 8, 11]
    assert [r.offset for r in read_records(log)] == [5, 6, 7, 8, 9, 10, 11]


def test_memory_for_keys_is_shared_by_the_threads() -> None:
    assert CleanerConfig().most_keys == 128 * 1024**2 // 24 * 9 // 10
    assert CleanerConfig(threads=4, dedupe_buffer_size=96000).most_keys == 900
    assert CleanerConfig(dedupe_buffer_size=1).most_keys == 1


@given(st.lists(st.integers(1, 10**7), min_size=1, max_size=60), st.floats(1e3, 1e9))
def test_the_rate_is_kept_on_average(sizes: list[int], rate: float) -> None:
    throttler = Throttler(rate)
    now = start = 5000.0
    passed = 0
    for size in sizes:
        wait = throttler.observe(size, now)
        passed += size
        now += wait
        # What came after the last look may be on top of it.
        if wait:
            assert passed <= rate * (now - start) / 1000 * 1.000001
        now += CHECK_INTERVAL_MS


def test_a_slow_stream_is_never_made_to_wait() -> None:
    throttler = Throttler(1000.0)
    assert [throttler.observe(50, 100.0 * n) for n in range(1, 50)] == [0.0] * 49


def test_a_burst_waits_for_what_it_took_too_much() -> None:
    throttler = Throttler(1000.0)
    assert throttler.observe(500, 0.0) == 0.0
    assert throttler.observe(500, 400.0) == pytest.approx(600.0)
    assert throttler.observe(100, 1000.0) == 0.0


def test_segments_of_different_partitions_are_not_closed_at_the_same_time(tmp_path: Path) -> None:
    ages = {}
    for number in range(8):
        for settings in (
            LogConfig(segment_ms=1000),
            LogConfig(segment_ms=1000, segment_jitter_ms=600),
        ):
            log = open_log(tmp_path / f"{settings.segment_jitter_ms}-{number}", config=settings)
            append(log, keyed_batch([(b"k", b"v")], timestamp=0))
            age = 0
            while len(log.segments) == 1:
                age += 1
                append(log, keyed_batch([(b"k", b"v")], timestamp=age))
            ages[settings.segment_jitter_ms, number] = age
    assert {ages[0, number] for number in range(8)} == {1001}
    jittered = {ages[600, number] for number in range(8)}
    assert len(jittered) > 4
    assert all(401 < age <= 1001 for age in jittered)


@pytest.mark.parametrize(
    ("policy", "age"), [("compact", 301), ("compact,delete", 301), ("delete", 1001)]
)
def test_a_segment_is_closed_in_time_to_be_compacted(tmp_path: Path, policy: str, age: int) -> None:
    """The active one is not compacted, so max.compaction.lag.ms ends it, too (KIP-354)."""
    settings = LogConfig(segment_ms=1000, max_compaction_lag_ms=300, cleanup_policy=policy)
    log = open_log(tmp_path, config=settings)
    append(log, keyed_batch([(b"k", b"v")], timestamp=0))
    append(log, keyed_batch([(b"k", b"v")], timestamp=age - 1))
    assert len(log.segments) == 1
    append(log, keyed_batch([(b"k", b"v")], timestamp=age))
    assert len(log.segments) == 2
