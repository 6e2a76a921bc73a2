"""What does the log promise when the disk fails, fills up, or forgets?"""

import errno
from collections.abc import Callable
from uuid import UUID

import pytest

from bradbury.protocol.errors import KafkaStorageError
from bradbury.storage.directories.log_directory import LogDirectory
from bradbury.storage.disk.storage_failure import StorageFailure
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.log_config import LogConfig
from bradbury.tests.support.storage.batches import make_batch
from bradbury.tests.support.storage.logs import open_log, read_all
from bradbury.tests.support.storage.memory_file_system import MemoryFileSystem

SMALL = LogConfig(segment_bytes=256, index_interval_bytes=64)
DIRECTORY = "/data/log-0"
SIZE = len(make_batch())


def opened(disk: MemoryFileSystem, **rest: object) -> PartitionLog:
    return open_log(DIRECTORY, file_system=disk, config=SMALL, **rest)


def append(log: PartitionLog, count: int = 1) -> None:
    for _ in range(count):
        log.append_as_leader(make_batch(), leader_epoch=0, now_ms=1000)


def failing(operation: str, suffix: str, code: int) -> Callable[[str, str], None]:
    def before(called: str, path: str) -> None:
        if called == operation and path.endswith(suffix):
            raise OSError(code, "injected")

    return before


def healed(operation: str, path: str) -> None:
    """The disk works again."""


def test_a_failed_fsync_is_never_tried_again() -> None:
    disk = MemoryFileSystem()
    log = opened(disk)
    append(log, 3)
    work = log.flushing.begin_flush()
    assert work is not None
    disk.before = failing("sync", ".log", errno.EIO)
    with pytest.raises(StorageFailure):
        work.run()
    disk.before = healed
    with pytest.raises(StorageFailure):
        work.run()
    for use in (
        log.flushing.flush,
        log.flushing.begin_flush,
        lambda: append(log),
        lambda: log.close(clean=True),
    ):
        with pytest.raises(StorageFailure):
            use()
    assert log.flushing.recovery_point == 0


def test_a_failure_takes_all_logs_of_the_directory_offline() -> None:
    disk = MemoryFileSystem()
    directory = LogDirectory.open(disk, "/data", directory_id="d")
    directory.load_logs(lambda topic: SMALL, now_ms=1)
    one, two = (directory.create_log(name, 0, _id(), SMALL) for name in ("one", "two"))
    append(one)
    disk.before = failing("sync", ".log", errno.EIO)
    with pytest.raises(StorageFailure):
        one.flushing.flush()
    disk.before = healed
    with pytest.raises(StorageFailure):
        append(two)
    directory.close(clean=True)
    assert "/data/.kafka_cleanshutdown" not in disk.names


def _id() -> UUID:

    return UUID(int=1)


def test_a_full_disk_refuses_and_leaves_no_torn_batch_and_resumes() -> None:
    for space in range(SIZE):
        disk = MemoryFileSystem()
        log = open_log(DIRECTORY, file_system=disk)
        append(log, 2)
        disk.space = space
        with pytest.raises(KafkaStorageError) as caught:
            append(log)
        assert not isinstance(caught.value, StorageFailure)
        assert (log.log_end_offset, disk.size(f"{DIRECTORY}/{0:020d}.log")) == (2, 2 * SIZE)
        assert len(read_all(log)) == 2 * SIZE
        disk.space = None
        append(log)
        assert log.log_end_offset == 3


def test_a_full_disk_begins_no_leader_epoch_and_does_so_once_there_is_room() -> None:
    disk = MemoryFileSystem()
    log = opened(disk)
    append(log)
    disk.space = 0
    with pytest.raises(KafkaStorageError) as caught:
        log.local.assign_epoch(7)
    assert not isinstance(caught.value, StorageFailure)
    assert log.epochs.entries == [(0, 0)]
    disk.space = None
    log.local.assign_epoch(7)
    assert log.epochs.entries == [(0, 0), (7, 1)]


def test_a_full_disk_at_any_point_of_appends_and_rolls_loses_nothing_acknowledged() -> None:
    for space in range(0, 1400, 7):
        disk = MemoryFileSystem()
        log = opened(disk)
        disk.space = space
        refused = False
        for _ in range(20):
            try:
                append(log)
            except KafkaStorageError as error:
                assert not isinstance(error, StorageFailure)
                refused = True
        assert refused
        files = [name for name in disk.list_directory(DIRECTORY) if name.endswith(".log")]
        assert len(files) == len(log.segments), "a roll that failed leaves no segment behind"
        end = log.log_end_offset
        disk.space = None
        append(log, 4)
        assert log.log_end_offset == end + 4
        assert len(read_all(log)) == (end + 4) * SIZE
        again = opened(disk)
        assert read_all(again) == read_all(log)


def test_without_a_descriptor_a_roll_is_refused_and_done_once_there_is_one() -> None:
    disk = MemoryFileSystem()
    log = opened(disk)
    while len(log.segments) < 2:
        append(log)
    before = log.log_end_offset
    disk.before = failing("open", ".log", errno.EMFILE)
    with pytest.raises(KafkaStorageError, match="injected") as caught:
        append(log, 10)
    assert not isinstance(caught.value, StorageFailure)
    kept = log.log_end_offset
    assert len(read_all(log)) == kept * SIZE
    disk.before = healed
    append(log, 4)
    assert (before <= kept, log.log_end_offset, len(log.segments) > 2) == (True, kept + 4, True)
    assert len(read_all(log)) == (kept + 4) * SIZE
    assert read_all(opened(disk)) == read_all(log)


def test_a_failed_write_that_cannot_be_undone_takes_the_log_offline() -> None:
    disk = MemoryFileSystem()
    log = opened(disk)
    append(log)
    disk.space = 10
    disk.before = failing("truncate", ".log", errno.EIO)
    with pytest.raises(StorageFailure):
        append(log)


def test_an_io_error_in_a_write_takes_the_log_offline() -> None:
    disk = MemoryFileSystem()
    log = opened(disk)
    append(log)
    disk.before = failing("write", ".log", errno.EIO)
    with pytest.raises(StorageFailure):
        append(log)


def test_an_index_that_cannot_be_written_fails_no_append() -> None:
    disk = MemoryFileSystem()
    log = open_log(DIRECTORY, file_system=disk, config=LogConfig(index_interval_bytes=0))
    disk.before = failing("write", "index", errno.ENOSPC)
    append(log, 1200)
    assert read_all(log, 1100, max_bytes=500) == read_all(log)[1100 * SIZE :]


def test_whatever_was_flushed_survives_a_power_loss_at_any_disk_operation() -> None:
    """Crash before each operation of a run of appends, flushes, rolls and restarts."""

    def run(disk: MemoryFileSystem, flushed: list[int]) -> None:
        log = opened(disk)
        for number in range(12):
            append(log)
            if number % 4 == 3:
                log.flushing.flush()
                flushed.append(log.flushing.recovery_point)
        log.close(clean=True)

    operations: list[str] = []
    disk = MemoryFileSystem()
    disk.before = lambda operation, path: operations.append(operation)
    run(disk, [])
    for keep_contents in (False, True):
        for crash_at in range(len(operations)):
            disk = MemoryFileSystem()
            countdown = [crash_at]

            def before(operation: str, path: str, countdown: list[int] = countdown) -> None:
                countdown[0] -= 1
                if countdown[0] < 0:
                    raise PowerLoss

            disk.before = before
            flushed = [0]
            with pytest.raises(PowerLoss):
                run(disk, flushed)
            after = disk.crash(keep_contents=keep_contents)
            log = opened(after, recovery_point=flushed[-1])
            assert log.log_end_offset >= flushed[-1]
            assert len(read_all(log)) == log.log_end_offset * SIZE
            append(log)


class PowerLoss(BaseException):
    """Nothing catches this, as nothing runs after a power loss."""


def test_a_clean_stop_survives_a_power_loss_right_after_it() -> None:
    disk = MemoryFileSystem()
    directory = LogDirectory.open(disk, "/data", directory_id="d", cluster_id="c", node_id=1)
    directory.load_logs(lambda topic: SMALL, now_ms=1)
    log = directory.create_log("one", 0, _id(), SMALL)
    append(log, 9)
    content = read_all(log)
    directory.close(clean=True)
    after = LogDirectory.open(disk.crash(), "/data", directory_id="other")
    assert (after.was_clean, after.identity.cluster_id, after.identity.node_id) == (True, "c", 1)
    again = after.load_logs(lambda topic: SMALL, now_ms=1)["one", 0]
    assert again.recovery.reasons == ()
    assert again.recovery.segments_scanned == again.recovery.batches_replayed == 0
    assert read_all(again) == content
