"""What does damage cost that transactions of the same segment are about? Nothing of them.

The log: a plain record, a transaction that is aborted, one that is committed, one that stays open.
Each batch is damaged in turn, alone and together with the file that would have made up for it.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bradbury.protocol.records.record_batch import read_header, walk_batches
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.log.segment_patch import SegmentPatch
from bradbury.storage.log_config import LogConfig
from bradbury.storage.producers.producer_recovery import merged
from bradbury.storage.segments.transaction_index import AbortedTransaction
from bradbury.tests.support.storage.batches import make_batch
from bradbury.tests.support.storage.disk_deaths import Death, Died, killed
from bradbury.tests.support.storage.logs import open_log, read_all
from bradbury.tests.support.storage.memory_file_system import MemoryFileSystem
from bradbury.tests.support.storage.transactions import (
    commit_all,
    end,
    read_committed,
    send,
    transaction_state,
)

MEMORY = "/data/t-0"
BATCHES = 9
ABORTED, COMMITTED, OPEN = 1, 2, 3


def write(log: PartitionLog) -> None:
    """A record a batch."""

    def put() -> None:
        log.append_as_leader(make_batch(1), leader_epoch=0, now_ms=1000)

    put()
    send(log, 0, producer_id=ABORTED)
    send(log, 0, producer_id=COMMITTED)
    put()
    end(log, is_commit=False, producer_id=ABORTED)
    put()
    end(log, is_commit=True, producer_id=COMMITTED)
    send(log, 0, producer_id=OPEN)
    put()


def made(path: Path, *, is_closed: bool) -> tuple[bytes, object, list[int]]:
    """What was written, what is known of producers, and what a reader of committed records sees.

    With `is_closed` it is in a segment that is not the last.
    """
    log = open_log(path, config=LogConfig())
    write(log)
    if is_closed:
        log.local.roll(now_ms=1000)
        end(log, is_commit=True, producer_id=OPEN)
    commit_all(log)
    content, state, committed = read_all(log), transaction_state(log), read_committed(log)
    log.close(clean=True)
    return content, state, committed


def opened(path: Path, end_offset: int, **options: Any) -> PartitionLog:
    log = open_log(
        path,
        **{
            "clean": True,
            "recovery_point": end_offset,
            "high_watermark": end_offset,
            "log_start_offset": 0,
            "keeps_places": True,
            **options,
        },
    )
    for segment in log.segments:
        examination = log.damage.begin_examination(segment)
        assert examination is not None
        examination.run()
        log.damage.complete_examination(examination)
    return log


def heal(log: PartitionLog, content: bytes) -> None:
    finished_patch(log, content).apply(2000)


def finished_patch(log: PartitionLog, content: bytes) -> SegmentPatch:
    [path] = {each.path for each in log.damage.ranges}
    segment = next(each for each in log.segments if each.files.path == path)
    if segment is log.segments.active:
        log.local.roll(now_ms=1000)
    examination = log.damage.begin_examination(segment)
    assert examination is not None
    examination.run()
    patch = SegmentPatch(log, examination, 2000)
    patch.prepare()
    while (wanted := patch.wanted) is not None:
        starts = [at for at, header in walk_batches(content) if header.base_offset >= wanted[0]]
        patch.add(content[starts[0] :])
    patch.finish()
    return patch


def damage(log_file: Path, number: int, byte: int) -> None:
    content = bytearray(log_file.read_bytes())
    positions = [position for position, _ in walk_batches(content)]
    content[positions[number] + byte] ^= 0x10
    log_file.write_bytes(content)


def nothing(path: Path) -> None:
    pass


def without_snapshots(path: Path) -> None:
    for snapshot in path.glob("*.snapshot"):
        snapshot.unlink()


def without_indexes(path: Path) -> None:
    """Of offsets: all of them are made again."""
    for index in path.glob("*.index"):
        index.unlink()


def with_a_garbled_transaction_index(path: Path) -> None:
    for index in path.glob("*.txnindex"):
        index.write_bytes(index.read_bytes()[:-3])


BESIDES = (nothing, without_snapshots, without_indexes, with_a_garbled_transaction_index)


@pytest.mark.thorough
@pytest.mark.parametrize("is_closed", [False, True], ids=["the last segment", "a closed one"])
@pytest.mark.parametrize("byte", [8, 16, 50, 62], ids=str)
@pytest.mark.parametrize("besides", BESIDES, ids=lambda each: each.__name__)
def test_healed_it_is_as_before(
    tmp_path: Path, besides: Callable[[Path], None], byte: int, is_closed: bool
) -> None:
    for number in range(BATCHES):
        path = tmp_path / str(number) / "t-0"
        path.mkdir(parents=True)
        content, state, committed = made(path, is_closed=is_closed)
        end_offset = [header.next_offset for _, header in walk_batches(content)][-1]
        damage(min(path.glob("*.log")), number, byte)
        besides(path)
        log = opened(path, end_offset)
        lost = [(each.start, each.end) for each in log.damage.ranges]
        assert lost == [(number, number + 1)], number
        if besides in (nothing, without_indexes):
            assert transaction_state(log) == state, number
            assert log.last_stable_offset == (BATCHES + 1 if is_closed else BATCHES - 2)
        heal(log, content)
        for _ in range(2):
            assert transaction_state(log) == state, number
            assert read_committed(log) == committed, number
            assert read_all(log) == content
            log.close(clean=True)
            log = opened(path, end_offset)


def first_transaction(log: PartitionLog, *, is_commit: bool) -> None:
    send(log, 0, producer_id=COMMITTED)
    send(log, 1, producer_id=COMMITTED)
    end(log, is_commit=is_commit, producer_id=COMMITTED)


def next_transaction(log: PartitionLog, *, is_commit: bool) -> None:
    """In the last segment: another one of the same producer."""
    if is_commit:
        send(log, 2, producer_id=COMMITTED)
    end(log, is_commit=is_commit, producer_id=COMMITTED)


@pytest.mark.parametrize("rolls", [False, True], ids=["the same segment", "a later one"])
@pytest.mark.parametrize("lost", [0, 1, 2], ids=["first record", "last record", "marker"])
@pytest.mark.parametrize("commits", [(True, False), (False, True), (True, True), (False, False)])
def test_what_ends_a_transaction_while_it_is_damaged_is_of_the_right_one_when_it_is_healed(
    tmp_path: Path, commits: tuple[bool, bool], lost: int, rolls: bool
) -> None:
    logs = [open_log(tmp_path / name / "t-0", config=LogConfig()) for name in ("whole", "healed")]
    for log in logs:
        first_transaction(log, is_commit=commits[0])
        log.local.roll(now_ms=1000)
        commit_all(log)
        log.close(clean=True)
    damage(min((tmp_path / "healed" / "t-0").glob("*.log")), lost, 62)
    for snapshot in (tmp_path / "healed" / "t-0").glob("*.snapshot"):
        snapshot.unlink()
    whole, healed = (opened(tmp_path / name / "t-0", 3) for name in ("whole", "healed"))
    for log in (whole, healed):
        next_transaction(log, is_commit=commits[1])
        commit_all(log)
        if rolls:
            log.local.roll(now_ms=1000)
    heal(healed, read_all(whole))
    for _ in range(2):
        assert read_committed(healed) == read_committed(whole)
        assert transaction_state(healed) == transaction_state(whole)
        healed.close(clean=True)
        healed = opened(tmp_path / "healed" / "t-0", whole.log_end_offset)


def without_power(disk: MemoryFileSystem) -> MemoryFileSystem:
    return disk.crash()


@pytest.mark.thorough
@pytest.mark.parametrize("ends", [killed, without_power], ids=lambda each: each.__name__)
@pytest.mark.parametrize("lost", [0, 1, 2], ids=["first record", "last record", "marker"])
@pytest.mark.parametrize("commits", [(True, False), (False, True), (True, True), (False, False)])
def test_a_death_while_it_is_healed_leaves_no_index_or_snapshot_of_a_log_with_a_hole(
    commits: tuple[bool, bool], lost: int, ends: Callable[[MemoryFileSystem], MemoryFileSystem]
) -> None:
    """What was made while the segment was damaged is in later segments, and is wrong once that is
    healed: at each call to the disk of the exchange the process dies, and a start follows.
    """
    at = 0
    while True:
        disks = [MemoryFileSystem() for _ in range(2)]
        for disk in disks:
            log = open_log(MEMORY, file_system=disk)
            first_transaction(log, is_commit=commits[0])
            log.local.roll(now_ms=1000)
            commit_all(log)
            log.close(clean=True)
        damage_in_memory(disks[1], lost, 62)
        whole, healed = (opened(Path(MEMORY), 3, file_system=disk) for disk in disks)
        for log in (whole, healed):
            next_transaction(log, is_commit=commits[1])
            log.local.roll(now_ms=1000)
            end(log, is_commit=True, producer_id=OPEN)
            commit_all(log)
            log.flushing.flush()
        patch = finished_patch(healed, read_all(whole))
        death = Death(disks[1], at)
        with suppress(Died):
            patch.apply(2000)
        after = opened(Path(MEMORY), whole.log_end_offset, file_system=ends(disks[1]), clean=False)
        if after.damage.ranges:
            heal(after, read_all(whole))
        assert read_all(after) == read_all(whole)
        assert (at, read_committed(after)) == (at, read_committed(whole))
        assert transaction_state(after) == transaction_state(whole)
        if len(death.calls) < at:
            break
        at += 1
    assert at > 8


def damage_in_memory(disk: MemoryFileSystem, number: int, byte: int) -> None:
    """Of the first segment; the snapshots are gone as well."""
    names = disk.list_directory(MEMORY)
    for name in names:
        if name.endswith(".snapshot"):
            disk.unlink(f"{MEMORY}/{name}")
    file = disk.open(f"{MEMORY}/{min(name for name in names if name.endswith('.log'))}")
    content = bytearray(file.read_at(file.size(), 0))
    positions = [position for position, _ in walk_batches(content)]
    content[positions[number] + byte] ^= 0x10
    file.write_at(bytes(content), 0)
    file.sync()


def test_aborted_records_are_not_shown_while_it_is_damaged(tmp_path: Path) -> None:
    content, _, committed = made(tmp_path, is_closed=True)
    marker = next(
        number
        for number, (position, header) in enumerate(walk_batches(content))
        if header.is_control and read_header(content[position:]).producer_id == ABORTED
    )
    damage(min(tmp_path.glob("*.log")), marker, 16)
    without_indexes(tmp_path)
    log = opened(tmp_path, BATCHES + 1)
    index = log.segments[0].transaction_index
    assert [each.producer_id for each in index.all()] == [ABORTED]
    assert committed


@pytest.mark.parametrize("is_closed", [False, True], ids=["the last segment", "a closed one"])
def test_nor_where_the_indexes_are_gone_as_well(tmp_path: Path, is_closed: bool) -> None:
    made(tmp_path, is_closed=is_closed)
    damage(min(tmp_path.glob("*.log")), 0, 62)
    without_indexes(tmp_path)
    min(tmp_path.glob("*.txnindex")).unlink()
    log = opened(tmp_path, BATCHES + is_closed)
    assert [(each.start, each.end) for each in log.damage.ranges] == [(0, 1)]
    index = log.segments[0].transaction_index
    assert [each.producer_id for each in index.all()] == [ABORTED]


@pytest.mark.parametrize("besides", [nothing, without_indexes], ids=lambda each: each.__name__)
def test_what_is_said_of_indexes_is_said_only_where_they_were_gone(
    tmp_path: Path, besides: Callable[[Path], None]
) -> None:
    made(tmp_path, is_closed=False)
    damage(min(tmp_path.glob("*.log")), BATCHES - 1, 8)
    besides(tmp_path)
    recovery = opened(tmp_path, BATCHES).recovery
    are_gone = besides is without_indexes
    assert recovery.indexes_rebuilt == are_gone
    assert any("absent or damaged" in reason for reason in recovery.reasons) == are_gone


def flip(byte: int) -> Callable[[Path], None]:
    def damage(index: Path) -> None:
        content = bytearray(index.read_bytes())
        content[byte] ^= 1
        index.write_bytes(content)

    return damage


def replace_by_directory(index: Path) -> None:
    index.unlink()
    index.mkdir()


def make_unreadable(index: Path) -> None:
    """Not even root can open a link to itself."""
    index.unlink()
    index.symlink_to(index.name)


ALONE: dict[str, Callable[[Path], None]] = {
    "deleted": Path.unlink,
    "emptied": lambda index: os.truncate(index, 0),
    "cut": lambda index: os.truncate(index, 17),
    "without its last entry": lambda index: os.truncate(index, 34),
    "with one too many": lambda index: index.write_bytes(index.read_bytes() * 2) and None,
    "flipped in its version": flip(0),
    "flipped in its producer": flip(9),
    "flipped in its offset": flip(17),
    "flipped at its end": flip(-1),
    "a directory": replace_by_directory,
    "unreadable": make_unreadable,
}


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("is_closed", [False, True], ids=["the last segment", "a closed one"])
@pytest.mark.parametrize("damage", ALONE)
def test_a_transaction_index_that_is_damaged_alone_is_made_again(
    tmp_path: Path, damage: str, is_closed: bool, is_clean: bool
) -> None:
    log = open_log(tmp_path, config=LogConfig())
    write(log)
    send(log, 0, producer_id=4)
    end(log, is_commit=False, producer_id=4)
    if is_closed:
        log.local.roll(now_ms=1000)
    end(log, is_commit=True, producer_id=OPEN)
    commit_all(log)
    end_offset, committed = log.log_end_offset, read_committed(log)
    log.flushing.flush()
    log.close(clean=is_clean)
    [index] = tmp_path.glob("*.txnindex")
    content = index.read_bytes()
    assert len(content) == 2 * 34
    ALONE[damage](index)
    log = open_log(
        tmp_path,
        clean=is_clean,
        recovery_point=end_offset,
        high_watermark=end_offset,
        log_start_offset=0,
        keeps_places=True,
    )
    assert any(str(index) in reason for reason in log.recovery.reasons) or not (
        is_clean or is_closed  # scanned, and made again with all that is
    )
    assert read_committed(log) == committed
    log.close(clean=True)
    assert index.read_bytes() == content


def test_a_transaction_ends_with_its_first_marker() -> None:
    """Its marker was damaged when the index was made again: the next one seemed to end it."""
    was = AbortedTransaction(1000, 22, last_offset=32, last_stable_offset=33)
    seemed = AbortedTransaction(1000, 22, last_offset=33, last_stable_offset=34)
    other = AbortedTransaction(1001, 26, last_offset=30, last_stable_offset=22)
    assert merged([seemed], [was, other], 30, 40) == [other, was]
    assert merged([was], [seemed, other], 30, 40) == [other, was]
    assert merged([was._replace(last_stable_offset=31)], [was], 30, 40) == [
        was._replace(last_stable_offset=31)
    ]
    assert merged([seemed], [was], 33, 40) == [seemed]
