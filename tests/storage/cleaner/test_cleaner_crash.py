"""A cleaning that dies at each of its calls to the disk: the log holds the old or the new, whole."""

from collections.abc import Callable, Iterator

import pytest

from bradbury.protocol.config_key import LONG_MAX
from bradbury.protocol.errors import CorruptMessage
from bradbury.protocol.records.record_batch import walk_batches
from bradbury.storage.cleaner.cleaner import (
    CleanedSegment,
    Cleaning,
    CleaningAborted,
    UncleanableLog,
)
from bradbury.storage.cleaner.cleaner_config import CleanerConfig
from bradbury.storage.disk.storage_failure import StorageFailure
from bradbury.storage.log.cleaner_manager import find_cleanable
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.log.retention import apply_retention
from bradbury.storage.log.segment_patch import SegmentChanged, SegmentPatch
from bradbury.storage.log_config import LogConfig
from bradbury.storage.segments.log_segment import LogSegment
from tests.support.storage.disk_deaths import Death, Died, killed
from tests.support.storage.keyed_logs import (
    SEED,
    Found,
    append,
    clean,
    keyed_batch,
    last_values,
    read_records,
    stored_bytes,
)
from tests.support.storage.logs import open_log, read_all, read_slice
from tests.support.storage.memory_file_system import Inode, MemoryFileSystem

PATH = "/data/t-0"
CONFIG = LogConfig(
    segment_bytes=1000, index_interval_bytes=100, cleanup_policy="compact", delete_retention_ms=0
)


def build() -> tuple[MemoryFileSystem, PartitionLog]:
    """Ten segments or so of which half is superseded, all of it on the disk."""
    disk = MemoryFileSystem()
    log = open_log(PATH, file_system=disk, config=CONFIG)
    for number in range(30):
        records = [
            (
                b"key-%d" % ((number * 7 + each) % 40),
                None if (number + each) % 9 == 0 else b"v" * 50,
            )
            for each in range(4)
        ]
        # Snappy: the header of gzip has the time of day, and two logs are to be the same.
        codec = 2 * (number % 2)
        append(log, keyed_batch(records, timestamp=1000 + 10 * number, codec=codec))
    log.local.roll(now_ms=1000)
    append(log, keyed_batch([(b"active", b"yes")]))
    log.flushing.flush()
    assert len(log.segments) > 6
    return disk, log


def begin(log: PartitionLog) -> Cleaning:
    found = find_cleanable(log, 2000)
    log.compaction.note_gaps(log.log_start_offset)  # as LogFlusher, which writes it down
    return log.compaction.begin_cleaning(
        CleanerConfig(),
        first_dirty_offset=found.first_dirty_offset,
        end_offset=found.end_offset,
        now_ms=2000,
        seed=SEED,
    )


def power_lost_names_kept(disk: MemoryFileSystem) -> MemoryFileSystem:
    """Every rename had reached the disk, and of the contents only what was synced."""
    after = MemoryFileSystem()
    for path, inode in disk.names.items():
        copy = None
        if inode is not None:
            copy = Inode()
            copy.synced = inode.synced
            copy.content = bytearray(inode.synced)
        after.names[path] = copy
    after.synced_names = dict(after.names)
    return after


CRASHES: dict[str, Callable[[MemoryFileSystem], MemoryFileSystem]] = {
    "killed": killed,
    "power lost": lambda disk: disk.crash(),
    "power lost, contents kept": lambda disk: disk.crash(keep_contents=True),
    "power lost, names kept": power_lost_names_kept,
}


def assert_whole(
    disk: MemoryFileSystem, before: list[Found], end_offset: int, *, config: LogConfig = CONFIG
) -> PartitionLog:
    log = open_log(PATH, file_system=disk, config=config, cleaner_offset=0)
    assert log.log_end_offset == end_offset, log.recovery.reasons
    found = read_records(log)
    assert set(found) <= set(before)
    assert [record.offset for record in found] == sorted({record.offset for record in found})
    assert last_values(found) == last_values(before)
    names = disk.list_directory(PATH)
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
    logs = {name.partition(".")[0] for name in names if name.endswith(".log")}
    indexes = {name.partition(".")[0] for name in names if "index" in name}
    assert indexes <= logs
    return log


def cleanings() -> Iterator[tuple[int, MemoryFileSystem, list[Found], int]]:
    """A disk for each call of a cleaning, which died there."""
    at = 0
    while True:
        disk, log = build()
        before, end_offset = read_records(log), log.log_end_offset
        death = Death(disk, at)
        try:
            clean(log)
        except Died:
            yield at, disk, before, end_offset
            at += 1
            continue
        assert at > 100
        assert {"rename", "sync", "write", "open"} <= {operation for operation, _ in death.calls}
        return


@pytest.mark.thorough
def test_a_death_at_any_call_leaves_the_old_or_the_new() -> None:
    for at, disk, before, end_offset in cleanings():
        for name, crash in CRASHES.items():
            after = crash(disk)
            try:
                log = assert_whole(after, before, end_offset)
                # What was not finished is done again.
                log.high_watermark = end_offset
                clean(log)
                closed = [r for r in read_records(log) if r.offset < log.segments[-1].base_offset]
                assert len({record.key for record in closed}) == len(closed)
                assert last_values(read_records(log)) == last_values(before)
            except AssertionError as error:
                raise AssertionError(f"{name} at call {at}: {error}") from error


@pytest.mark.long  # the square of the matrix above
def test_a_second_death_while_a_start_cleans_up_changes_nothing() -> None:
    for at, disk, before, end_offset in cleanings():
        if at % 5:  # every fifth is enough for the square of the matrix
            continue
        again = 0
        while True:
            after = killed(disk)
            Death(after, again)
            try:
                open_log(PATH, file_system=after, config=CONFIG)
            except Died:
                assert_whole(killed(after), before, end_offset)
                again += 7
                continue
            break


def test_a_log_that_is_not_compacted_any_more_may_still_have_gaps() -> None:
    disk, log = build()
    before, end_offset = read_records(log), log.log_end_offset
    clean(log)
    log.flushing.flush()
    config = LogConfig(segment_bytes=1000, index_interval_bytes=100)
    assert log.compaction.cleaner_offset is not None
    assert_whole(killed(disk), before, end_offset, config=config)
    # Without the checkpoint's word a gap would be a loss, and the rest were cut off.
    cut = open_log(PATH, file_system=killed(disk), config=config)
    assert cut.log_end_offset < end_offset


def test_a_full_disk_ends_a_cleaning_and_harms_nothing() -> None:
    disk, log = build()
    before = read_records(log)
    disk.space = 300
    cleaning = begin(log)
    cleaning.build_offset_map(lambda size: None)
    with pytest.raises(OSError, match="No space left") as caught:
        for group in cleaning.groups():
            log.compaction.replace_segments(
                cleaning, cleaning.clean_group(group, lambda size: None), 2000
            )
    failure = log.compaction.explain_cleaning_failure(cleaning, caught.value)
    assert isinstance(failure, CleaningAborted)
    assert log.health.is_online
    assert log.compaction.cleaner_offset == 0
    assert last_values(read_records(log)) == last_values(before)
    assert not [name for name in disk.list_directory(PATH) if name.endswith(".cleaned")]
    disk.space = None
    clean(log)
    assert last_values(read_records(log)) == last_values(before)


def test_a_disk_that_fails_in_the_swap_takes_the_directory_offline() -> None:
    disk, log = build()
    before, end_offset = read_records(log), log.log_end_offset

    def fail(operation: str, path: str) -> None:
        if operation == "rename" and path.endswith(".swap"):
            raise OSError(5, "Input/output error")

    disk.before = fail
    with pytest.raises(StorageFailure, match="Input/output error"):
        clean(log)
    assert not log.health.is_online
    assert_whole(killed(disk), before, end_offset)


def test_a_damaged_batch_makes_a_log_uncleanable_and_nothing_else() -> None:
    disk, log = build()
    segment = log.segments[1]
    (byte,) = segment.file.read_at(1, 100)
    segment.file.write_at(bytes([byte ^ 1]), 100)
    before = stored_bytes(log)
    cleaning = begin(log)
    with pytest.raises(CorruptMessage, match="wrong CRC") as caught:
        cleaning.build_offset_map(lambda size: None)
    assert isinstance(
        log.compaction.explain_cleaning_failure(cleaning, caught.value), UncleanableLog
    )
    assert log.health.is_online
    assert stored_bytes(log) == before
    assert not [name for name in disk.list_directory(PATH) if name.endswith(".cleaned")]


def begin_repair(log: PartitionLog, segment: LogSegment, whole: bytes) -> SegmentPatch:
    """A repair of a damaged segment that is ready to be applied; `whole` is what the log had."""
    log.damage.suspect(segment, "test")
    examination = log.damage.begin_examination(segment)
    assert examination is not None
    examination.run()
    log.damage.complete_examination(examination)
    patch = SegmentPatch(log, examination, 2000)
    patch.prepare()
    while (wanted := patch.wanted) is not None:
        start = next(at for at, header in walk_batches(whole) if header.last_offset >= wanted[0])
        patch.add(whole[start:])
    patch.finish()
    return patch


def damaged_while_cleaned() -> tuple[MemoryFileSystem, PartitionLog, Cleaning, CleanedSegment]:
    """A log whose first segment was damaged right after the cleaner had read it."""
    disk, log = build()
    cleaning = begin(log)
    cleaning.build_offset_map(lambda size: None)
    cleaned = cleaning.clean_group(next(iter(cleaning.groups())), lambda size: None)
    segment = log.segments[0]
    assert cleaned.segment.base_offset == segment.base_offset
    (byte,) = segment.file.read_at(1, 100)
    segment.file.write_at(bytes([byte ^ 1]), 100)
    return disk, log, cleaning, cleaned


def test_a_segment_is_repaired_and_cleaned_at_once_in_files_of_their_own() -> None:
    _, whole_log = build()
    whole, before = read_all(whole_log), last_values(read_records(whole_log))
    disk, log, cleaning, cleaned = damaged_while_cleaned()
    begin_repair(log, log.segments[0], whole).apply(2000)
    with pytest.raises(CleaningAborted):
        log.compaction.replace_segments(cleaning, cleaned, 2000)
    assert read_all(log) == whole
    disk, log, cleaning, cleaned = damaged_while_cleaned()
    patch = begin_repair(log, log.segments[0], whole)
    with pytest.raises(CorruptMessage):  # the cleaner removes what it has begun
        cleaning.clean_group(next(iter(cleaning.groups())), lambda size: None)
    patch.apply(2000)
    assert read_all(log) == whole
    disk, log, cleaning, cleaned = damaged_while_cleaned()
    patch = begin_repair(log, log.segments[0], whole)
    log.compaction.replace_segments(cleaning, cleaned, 2000)
    with pytest.raises(SegmentChanged):
        patch.apply(2000)
    patch.abandon()
    assert last_values(read_records(log)) == before
    assert not [name for name in disk.list_directory(PATH) if ".healed" in name]


def test_a_death_in_a_repair_leaves_the_log_whole_although_the_cleaner_has_begun_a_file() -> None:
    _, whole_log = build()
    whole = read_all(whole_log)
    at = 0
    while True:
        disk, log, _, _ = damaged_while_cleaned()
        patch = begin_repair(log, log.segments[0], whole)
        Death(disk, at)
        try:
            patch.apply(2000)
            break
        except Died:
            found = killed(disk)
            end = whole_log.log_end_offset
            after = open_log(
                PATH, file_system=found, config=CONFIG, cleaner_offset=0, recovery_point=end
            )
        at += 1
        assert after.log_end_offset == end
        # The damaged segment, or the repaired one: everything else is as it was.
        stored = stored_bytes(after)
        assert [i for i in range(len(whole)) if stored[i] != whole[i]] in ([], [100])
        assert len(stored) == len(whole)
        names = found.list_directory(PATH)
        assert not [name for name in names if name.endswith((".cleaned", ".healed", "swap"))]
    assert at > 4


def test_a_segment_that_is_healed_during_a_cleaning_ends_it_and_the_next_one_goes_on() -> None:
    """The cleaner has read the damaged file, which is not the log's any more when it says so."""
    _, log = build()
    before = last_values(read_records(log))
    whole = read_all(log)
    segment = log.segments[1]
    (byte,) = segment.file.read_at(1, 100)
    segment.file.write_at(bytes([byte ^ 1]), 100)
    cleaning = begin(log)
    with pytest.raises(CorruptMessage, match="wrong CRC") as caught:
        cleaning.build_offset_map(lambda size: None)
    begin_repair(log, segment, whole).apply(2000)
    failure = log.compaction.explain_cleaning_failure(cleaning, caught.value)
    assert isinstance(failure, CleaningAborted)
    clean(log)
    assert last_values(read_records(log)) == before


def test_a_truncation_during_a_cleaning_ends_it() -> None:
    disk, log = build()
    cleaning = begin(log)
    cleaning.build_offset_map(lambda size: None)
    cleaned = cleaning.clean_group(cleaning.groups()[0], lambda size: None)
    log.truncate_to(2)
    left = read_records(log)
    with pytest.raises(CleaningAborted):
        log.compaction.replace_segments(cleaning, cleaned, 2000)
    log.compaction.complete_cleaning(cleaning)
    assert log.compaction.cleaner_offset == 0
    assert read_records(log) == left
    assert not [name for name in disk.list_directory(PATH) if name.endswith(".cleaned")]
    failure = log.compaction.explain_cleaning_failure(cleaning, OSError(5, "Input/output error"))
    assert isinstance(failure, CleaningAborted)
    assert log.health.is_online


def test_a_log_that_is_renamed_or_closed_during_a_cleaning_takes_nothing_offline() -> None:
    disk, log = build()
    cleaning = begin(log)
    cleaning.build_offset_map(lambda size: None)
    disk.rename(PATH, "/data/u-0")
    log.local.relocate("/data/u-0")
    absent = FileNotFoundError(2, "No such file or directory")
    assert isinstance(log.compaction.explain_cleaning_failure(cleaning, absent), CleaningAborted)
    assert log.health.is_online
    cleaning = begin(log)
    log.close(clean=False)
    assert isinstance(log.compaction.explain_cleaning_failure(cleaning, absent), CleaningAborted)
    assert open_log("/data/u-0", file_system=disk, config=CONFIG).health.is_online


def test_retention_during_a_cleaning_wins() -> None:
    disk, log = build()
    cleaning = begin(log)
    cleaning.build_offset_map(lambda size: None)
    groups = cleaning.groups()
    log.advance_log_start_offset(log.segments[1].base_offset)
    assert apply_retention(log, now_ms=2000)
    # The files of the segment that went can still be read, under their new name.
    cleaned = cleaning.clean_group(groups[0], lambda size: None)
    with pytest.raises(CleaningAborted):
        log.compaction.replace_segments(cleaning, cleaned, 2000)
    assert not [name for name in disk.list_directory(PATH) if name.endswith(".cleaned")]
    clean(log)
    closed = [r for r in read_records(log) if r.offset < log.segments[-1].base_offset]
    assert len({record.key for record in closed}) == len(closed)


def test_a_cleaning_that_is_stopped_leaves_nothing_behind() -> None:
    disk, log = build()
    cleaning = begin(log)
    cleaning.build_offset_map(lambda size: None)

    def stop(size: int) -> None:
        raise CleaningAborted("the cleaner stops")

    with pytest.raises(CleaningAborted):
        cleaning.clean_group(cleaning.groups()[0], stop)
    assert not [name for name in disk.list_directory(PATH) if name.endswith(".cleaned")]


def test_readers_of_old_segments_go_on_while_they_are_replaced() -> None:
    _, log = build()
    old = log.segments[:-1]
    piece = log.read(0, max_bytes=1 << 20, up_to=log.log_end_offset, min_one_batch=True)
    before = read_slice(piece)
    contents = [segment.file.read_at(segment.size, 0) for segment in old]
    clean(log)
    replaced = [segment for segment in old if segment not in log.segments]
    assert replaced
    assert replaced[0] is old[0]
    assert read_slice(piece) == before
    # Also a search that holds the old list, and opens a segment only now.
    assert [segment.file.read_at(segment.size, 0) for segment in old] == contents
    assert [segment.locate(segment.base_offset) for segment in old] == [0] * len(old)
    log.local.delete_old_files(LONG_MAX)
    assert read_slice(piece) == before
