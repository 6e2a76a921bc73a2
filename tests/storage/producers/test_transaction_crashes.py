"""Whatever moment the power goes at: does the index say what the log says of aborted transactions?"""

from collections.abc import Callable

import pytest

from bradbury.protocol.records.end_transaction_marker import read_marker
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.log_config import LogConfig
from bradbury.storage.segments.batch_scan import walk_headers
from bradbury.tests.support.storage.logs import open_log
from bradbury.tests.support.storage.memory_file_system import MemoryFileSystem
from bradbury.tests.support.storage.transactions import end, send, transaction_state

pytestmark = pytest.mark.thorough

DIRECTORY = "/data/t-0"
CONFIG = LogConfig(segment_bytes=350)


class PowerLoss(BaseException):
    """Nothing catches this, as nothing runs after a power loss."""


class Flushed:
    """What the checkpoint of the directory says: written after each flush."""

    def __init__(self) -> None:
        self.recovery_point = 0
        self.is_clean = False


def opened(disk: MemoryFileSystem, flushed: Flushed) -> PartitionLog:
    if not disk.is_directory("/data"):
        disk.make_directory("/data")
        disk.open_directory("/").sync()
    clean, flushed.is_clean = flushed.is_clean, False
    return open_log(
        DIRECTORY,
        file_system=disk,
        config=CONFIG,
        recovery_point=flushed.recovery_point,
        clean=clean,
    )


def flush(log: PartitionLog, flushed: Flushed) -> None:
    log.flushing.flush()
    flushed.recovery_point = log.flushing.recovery_point


def run(disk: MemoryFileSystem, flushed: Flushed) -> None:
    """Transactions over several segments, flushes, a truncation, a clean stop and a start."""
    log = opened(disk, flushed)
    for number in range(9):
        send(log, 0, epoch=number)
        send(log, 0, epoch=number, producer_id=8)
        if number % 3 != 1:
            end(log, is_commit=False, epoch=number)
        if number % 4 == 3:
            end(log, is_commit=False, epoch=number, producer_id=8)
            flush(log, flushed)
        if number == 6:
            flushed.recovery_point = min(flushed.recovery_point, log.log_end_offset - 3)
            log.truncate_to(log.log_end_offset - 3)
    log.close(clean=True)
    flushed.recovery_point, flushed.is_clean = log.log_end_offset, True
    log = opened(disk, flushed)
    send(log, 20, producer_id=9)
    end(log, is_commit=False, producer_id=9)
    flush(log, flushed)


def aborted_in(log: PartitionLog) -> list[tuple[int, int, int]]:
    """(producer, first offset, marker) of each, from the batches alone."""
    found, open_ = [], dict[int, int]()
    for segment in log.segments:
        for position, header in walk_headers(segment.file, 0, segment.size):
            if not header.is_control:
                open_.setdefault(header.producer_id, header.base_offset)
                continue
            marker = read_marker(segment.file.read_at(header.size, position))
            first_offset = open_.pop(header.producer_id, None)
            assert marker is not None
            if first_offset is not None and not marker.is_commit:
                found.append((header.producer_id, first_offset, header.base_offset))
    return found


def check(log: PartitionLog) -> None:
    aborted = [each for segment in log.segments for each in segment.transaction_index.all()]
    assert [each[:3] for each in aborted] == aborted_in(log)


def count(work: Callable[[MemoryFileSystem], None]) -> int:
    operations: list[str] = []
    disk = MemoryFileSystem()
    disk.before = lambda operation, path: operations.append(operation)
    work(disk)
    return len(operations)


@pytest.mark.parametrize("keep_contents", [False, True])
def test_the_index_agrees_with_the_log_after_a_power_loss_at_any_disk_operation(
    keep_contents: bool,
) -> None:
    for crash_at in range(count(lambda disk: run(disk, Flushed()))):
        disk, flushed, countdown = MemoryFileSystem(), Flushed(), [crash_at]

        def before(operation: str, path: str, countdown: list[int] = countdown) -> None:
            countdown[0] -= 1
            if countdown[0] < 0:
                raise PowerLoss

        disk.before = before
        with pytest.raises(PowerLoss):
            run(disk, flushed)
        after = disk.crash(keep_contents=keep_contents)
        log = opened(after, flushed)
        check(log)
        state = transaction_state(log)
        end(log, is_commit=False, epoch=9)
        check(log)
        log.close(clean=False)
        again = opened(after, flushed)
        check(again)
        again.truncate_to(again.log_end_offset - 1)
        assert transaction_state(again) == state
