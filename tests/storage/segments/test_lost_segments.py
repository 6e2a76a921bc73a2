"""Is a log file that is gone missed, whatever it was, and is one that was deleted left in peace?"""

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from bradbury.cli.main import run
from bradbury.protocol.errors import KafkaStorageError
from bradbury.protocol.records.records import encode_records
from bradbury.storage.directories.directory_identity import DirectoryIdentity, write_identity
from bradbury.storage.directories.log_directory import LogDirectory
from bradbury.storage.disk.file_system import OsFileSystem, sync_directory
from bradbury.storage.log.log_damage import DamagedSegment, segments_to_examine
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.log.retention import apply_retention
from bradbury.storage.log_config import LogConfig
from bradbury.storage.segments.batch_scan import walk_headers
from bradbury.storage.segments.closed_segments import CLOSED_SEGMENTS
from bradbury.storage.segments.lost_segments import LOST, is_lost, mark_lost
from bradbury.tests.storage.log.test_log_damage import heal
from bradbury.tests.support.storage.logs import open_log, read_all
from bradbury.tests.support.storage.memory_file_system import MemoryFileSystem

BATCHES = 60
PLAIN = LogConfig(segment_bytes=2_000, index_interval_bytes=200)
COMPACTED = LogConfig(segment_bytes=2_000, index_interval_bytes=200, cleanup_policy="compact")
ALL_INDEXES = (".index", ".timeindex")


def opened(path: Path, config: LogConfig, *, clean: bool = True, **options: Any) -> PartitionLog:
    return open_log(
        path,
        config=config,
        clean=clean,
        keeps_places=True,
        **{
            "recovery_point": BATCHES,
            "high_watermark": BATCHES,
            "log_start_offset": 0,
            **options,
        },
    )


def stopped(path: Path, config: LogConfig = PLAIN) -> tuple[list[Path], bytes]:
    """The log files that a clean stop has left, and what is in them. A record a batch."""
    log = open_log(path, config=config)
    for number in range(BATCHES):
        records = [(1000, b"key%d" % number, b"%03d" % number * 20, ())]
        log.append_as_leader(bytearray(encode_records(records)), leader_epoch=0, now_ms=1000)
    log.high_watermark = BATCHES
    content = read_all(log)
    log.close(clean=True)
    return sorted(path.glob("*.log")), content


def examine(log: PartitionLog) -> None:
    for segment in segments_to_examine(log.damage.ends()):
        examination = log.damage.begin_examination(segment)
        assert examination is not None
        examination.run()
        log.damage.complete_examination(examination)


def lost(log: PartitionLog) -> list[tuple[int, int]]:
    examine(log)
    return [(each.start, each.end) for each in log.damage.ranges]


LEFT = {
    "its index": (".timeindex",),
    "its time index": (".index",),
    "an empty log": None,
    "nothing": ALL_INDEXES,
}


@pytest.mark.thorough
@pytest.mark.parametrize("config", [PLAIN, COMPACTED], ids=["plain", "compacted"])
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize(
    ("number", "left"),
    [(number, left) for number in range(3) for left in LEFT if left != "nothing" or not number],
)
def test_one_that_is_gone_is_missed_in_this_run_and_in_later_ones(
    tmp_path: Path, config: LogConfig, clean: bool, number: int, left: str
) -> None:
    logs, content = stopped(tmp_path / "t-0", config)
    gone = logs[number]
    others = LEFT[left]
    if others is None:
        gone.write_bytes(b"")
    else:
        gone.unlink()
        for suffix in others:
            gone.with_suffix(suffix).unlink()
    expected = [(int(gone.stem), int(logs[number + 1].stem))]
    for is_clean in (clean, True, False):
        log = opened(tmp_path / "t-0", config, clean=is_clean)
        assert (log.log_start_offset, log.log_end_offset) == (0, BATCHES)
        assert lost(log) == expected
        with pytest.raises(DamagedSegment):
            log.read(expected[0][0], max_bytes=1, up_to=BATCHES, min_one_batch=True)
        log.close(clean=False)
    log = opened(tmp_path / "t-0", config)
    examine(log)
    heal(log, content)
    assert read_all(log) == content
    log.close(clean=True)
    assert lost(opened(tmp_path / "t-0", config)) == []


@pytest.mark.parametrize("config", [PLAIN, COMPACTED], ids=["plain", "compacted"])
def test_all_are_gone(tmp_path: Path, config: LogConfig) -> None:
    stopped(tmp_path, config)
    for path in tmp_path.iterdir():
        path.unlink()
    for _ in range(2):
        log = opened(tmp_path, config)
        assert (log.log_start_offset, log.log_end_offset) == (0, BATCHES)
        assert lost(log) == [(0, BATCHES)]
        log.close(clean=True)


def test_where_nobody_knows_the_start_the_first_segment_is_it(tmp_path: Path) -> None:
    logs, _ = stopped(tmp_path)
    for suffix in (".log", *ALL_INDEXES):
        logs[0].with_suffix(suffix).unlink()
    (tmp_path / CLOSED_SEGMENTS).unlink()
    log = opened(tmp_path, PLAIN, log_start_offset=None)
    assert log.log_start_offset == int(logs[1].stem)
    assert lost(log) == []


def test_what_was_not_flushed_is_named_and_the_replica_leaves_the_isr(tmp_path: Path) -> None:
    logs, _ = stopped(tmp_path)
    for suffix in (".log", *ALL_INDEXES):
        logs[0].with_suffix(suffix).unlink()
    log = opened(tmp_path, PLAIN, clean=False, recovery_point=0)
    assert log.log_start_offset == int(logs[1].stem)
    assert log.recovery.is_damaged
    assert f"begins at {int(logs[1].stem)}, and had records from 0 on" in log.recovery.reasons[0]


@pytest.mark.parametrize("is_there", [True, False], ids=["empty", "gone"])
def test_where_a_crash_has_taken_what_was_not_flushed_the_log_is_cut(
    tmp_path: Path, is_there: bool
) -> None:
    """As from any flaw above the recovery point: the leader still has it, or nobody was told."""
    logs, content = stopped(tmp_path)
    start = int(logs[1].stem)
    logs[1].unlink()
    if is_there:
        logs[1].touch()
    log = opened(tmp_path, PLAIN, clean=False, recovery_point=start, high_watermark=start)
    assert (log.log_start_offset, log.log_end_offset) == (0, start)
    assert lost(log) == []
    assert read_all(log) == content[: len(read_all(log))]
    records = [(1000, b"key", b"again", ())]
    log.append_as_leader(bytearray(encode_records(records)), leader_epoch=1, now_ms=1000)
    assert log.log_end_offset == start + 1


def test_a_compacted_log_with_damage_is_not_compacted_over_it(tmp_path: Path) -> None:
    logs, _ = stopped(tmp_path, COMPACTED)
    logs[1].unlink()
    opened(tmp_path, COMPACTED).close(clean=True)
    assert logs[1].read_bytes() == LOST


class Killed(Exception):
    pass


class DyingDisk(OsFileSystem):
    """The process dies behind so many renames and unlinks."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def _count(self) -> None:
        if not self.left:
            raise Killed
        self.left -= 1

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._count()
        super().unlink(path)


@pytest.mark.parametrize("start", [0, None], ids=["checkpoint of before", "none"])
def test_one_that_was_deleted_is_not_missed_wherever_a_kill_came(
    tmp_path: Path, start: int | None
) -> None:
    """In the deletion, in the start after it, and with the log start not yet on the disk."""
    killed = 0
    bases = {int(file.stem) for file in stopped(tmp_path / "made")[0]}
    for in_deletion in range(0, 12, 3):
        for in_start in range(0, 12, 2):
            path = tmp_path / f"{in_deletion}-{in_start}" / "t-0"
            shutil.copytree(tmp_path / "made", path)
            disk = DyingDisk(10**9)
            log = opened(path, PLAIN, file_system=disk)
            disk.left = in_deletion
            log.advance_log_start_offset(45)
            try:
                apply_retention(log, now_ms=1000)
                disk.left = 10**9
            except Killed:
                killed += 1
            for again in (in_start, 3, 10**9):
                disk = DyingDisk(again)
                options: dict[str, Any] = {"clean": False, "log_start_offset": start}
                try:
                    log = opened(path, PLAIN, file_system=disk, **options)
                except Killed:
                    killed += 1
            assert lost(log) == []
            assert not any("missing" in reason for reason in log.recovery.reasons)
            assert log.log_start_offset in bases
            log.local.delete_old_files(10**9)
            assert list(path.glob("*.deleted")) == []
    assert killed > 10


@pytest.mark.parametrize("start", [0, 3], ids=["at its first record", "in the midst of one"])
def test_what_made_room_on_a_full_disk_is_not_missed(tmp_path: Path, start: int) -> None:
    """The checkpoint with the new log start was refused: the marks beside the records are left."""
    path = tmp_path / "t-0"
    stopped(path)
    log = opened(path, PLAIN)
    log.advance_log_start_offset(45)
    apply_retention(log, now_ms=1000)
    assert log.local.delete_old_files(10**9, keeps_marks=True) > 0
    assert list(path.glob("*.log.deleted")) == []
    assert list(path.glob("*.index.deleted"))
    for _ in range(2):  # killed once more, and still no room
        log = opened(path, PLAIN, clean=False, log_start_offset=start)
        assert lost(log) == []
        assert not any("missing" in reason for reason in log.recovery.reasons)
    log.local.delete_old_files(10**9)
    assert list(path.glob("*.deleted")) == []


@pytest.mark.parametrize("config", [PLAIN, COMPACTED], ids=["plain", "compacted"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_reader_waits_until_it_is_known(tmp_path: Path, config: LogConfig, number: int) -> None:
    logs, _ = stopped(tmp_path, config)
    logs[number].unlink()
    log = opened(tmp_path, config)
    with pytest.raises(KafkaStorageError, match="is being examined"):
        log.read(int(logs[number].stem), max_bytes=1, up_to=BATCHES, min_one_batch=True)
    assert str(logs[number]) in {segment.files.path for segment in log.damage.suspects}


@pytest.mark.parametrize("config", [PLAIN, COMPACTED], ids=["plain", "compacted"])
def test_a_sound_segment_does_not_speak_for_the_one_before_it(
    tmp_path: Path, config: LogConfig
) -> None:
    logs, _ = stopped(tmp_path, config)
    log = opened(tmp_path, config)
    first = log.segments[0]
    position, last = list(walk_headers(first.file, 0, first.size))[-1]
    log.close(clean=True)
    with logs[0].open("r+b") as file:
        file.truncate(position)
    log = opened(tmp_path, config)
    examination = log.damage.begin_examination(log.segments[1])
    assert examination is not None
    examination.run()
    log.damage.complete_examination(examination)
    assert log.segments[1].unproven == 0
    with pytest.raises(KafkaStorageError, match="is being examined"):
        log.read(last.base_offset, max_bytes=1, up_to=BATCHES, min_one_batch=True)
    assert str(logs[0]) in {segment.files.path for segment in log.damage.suspects}


# --- what the list of closed segments says ------------------------------------------------------


def remove(log: Path) -> None:
    for path in log.parent.glob(f"{log.stem}.*"):
        path.unlink()


@pytest.mark.parametrize("config", [PLAIN, COMPACTED], ids=["plain", "compacted"])
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("numbers", [(0,), (1,), (0, 1), (1, 2)])
def test_one_that_is_gone_with_all_that_belongs_to_it_is_missed(
    tmp_path: Path, config: LogConfig, clean: bool, numbers: tuple[int, ...]
) -> None:
    """And nobody knows where the log began."""
    logs, content = stopped(tmp_path / "t-0", config)
    for number in numbers:
        remove(logs[number])
    expected = [(int(logs[number].stem), int(logs[number + 1].stem)) for number in numbers]
    for is_clean in (clean, True, False):
        log = opened(tmp_path / "t-0", config, clean=is_clean, log_start_offset=None)
        assert (log.log_start_offset, log.log_end_offset) == (0, BATCHES)
        assert lost(log) == expected
        log.close(clean=False)
    log = opened(tmp_path / "t-0", config)
    examine(log)
    while log.damage.ranges:
        heal(log, content)
    assert read_all(log) == content
    log.close(clean=True)
    assert lost(opened(tmp_path / "t-0", config)) == []


def test_one_of_a_compacted_log_that_was_cut_between_two_batches_is_missed(
    tmp_path: Path,
) -> None:
    """What is left is sound, and no index speaks of more."""
    logs, content = stopped(tmp_path, COMPACTED)
    log = opened(tmp_path, COMPACTED)
    last = list(walk_headers(log.segments[1].file, 0, log.segments[1].size))[-1]
    log.close(clean=True)
    with logs[1].open("r+b") as file:
        file.truncate(last[0])
    for suffix in ALL_INDEXES:
        logs[1].with_suffix(suffix).unlink()
    for _ in range(2):
        log = opened(tmp_path, COMPACTED)
        assert lost(log) == [(last[1].base_offset, int(logs[2].stem))]
        log.close(clean=True)
    log = opened(tmp_path, COMPACTED)
    examine(log)
    heal(log, content)
    assert read_all(log) == content


def test_what_the_list_says_of_records_that_were_not_flushed_does_not_count(
    tmp_path: Path,
) -> None:
    logs, _ = stopped(tmp_path)
    remove(logs[1])
    start = int(logs[1].stem)
    log = opened(tmp_path, PLAIN, clean=False, recovery_point=start, high_watermark=start)
    assert (log.log_start_offset, log.log_end_offset) == (0, start)
    assert lost(log) == []


@pytest.mark.parametrize("damage", ["deleted", "emptied", "flipped", "a directory"])
def test_without_the_list_the_others_say_what_they_know(tmp_path: Path, damage: str) -> None:
    logs, content = stopped(tmp_path)
    path = tmp_path / CLOSED_SEGMENTS
    listed = path.read_bytes()
    path.unlink()
    if damage == "emptied":
        path.touch()
    elif damage == "flipped":
        path.write_bytes(listed[:9] + bytes([listed[9] ^ 1]) + listed[10:])
    elif damage == "a directory":
        path.mkdir()
    logs[1].unlink()
    log = opened(tmp_path, PLAIN)
    assert lost(log) == [(int(logs[1].stem), int(logs[2].stem))]
    heal(log, content)
    assert read_all(log) == content
    log.close(clean=True)
    assert len(path.read_bytes().split(b"\n")) == len(listed.split(b"\n")) - 1, "without the active"


def test_a_full_disk_that_takes_no_list_deletes_all_the_same(tmp_path: Path) -> None:
    stopped(tmp_path)
    log = opened(tmp_path, PLAIN, file_system=FullDisk())
    log.advance_log_start_offset(45)
    apply_retention(log, now_ms=1000)
    assert log.local.delete_old_files(10**9) > 0
    assert not (tmp_path / CLOSED_SEGMENTS).exists()
    log.close(clean=False)
    assert lost(opened(tmp_path, PLAIN, log_start_offset=None, clean=False)) == []


class FullDisk(OsFileSystem):
    """It has no room for another list."""

    def rename(self, source: str, target: str) -> None:
        if target.endswith(CLOSED_SEGMENTS):
            raise OSError(errno.ENOSPC, "No space left on device", target)
        super().rename(source, target)


@pytest.mark.parametrize("where", ["before", "between"])
def test_where_records_were_deleted_up_to_the_middle_of_a_batch_it_heals(
    tmp_path: Path, where: str
) -> None:
    log = open_log(tmp_path, config=PLAIN)
    for number in range(BATCHES):
        records = [(1000, b"key", b"%03d" % number * 10, ())] * 4
        log.append_as_leader(bytearray(encode_records(records)), leader_epoch=0, now_ms=1000)
    log.high_watermark = end = log.log_end_offset
    content = read_all(log)
    start = int(sorted(tmp_path.glob("*.log"))[0 if where == "before" else 1].stem) + 6
    log.advance_log_start_offset(start)
    left = read_all(log)
    log.close(clean=True)
    [gone, following, *_] = [
        path for path in sorted(tmp_path.glob("*.log")) if int(path.stem) + 30 > start
    ]
    gone.unlink()
    options = {"recovery_point": end, "high_watermark": end, "log_start_offset": start}
    log = opened(tmp_path, PLAIN, **options)
    assert lost(log) == [(start, int(following.stem))]
    heal(log, content)
    assert read_all(log) == left
    assert log.log_start_offset == start
    log.close(clean=True)
    log = opened(tmp_path, PLAIN, **options)
    assert lost(log) == []
    assert read_all(log) == left


def test_a_directory_that_kafka_has_written_to_since_has_no_list(tmp_path: Path) -> None:
    """It may have compacted or deleted what we have listed: its checkpoints have no checksum."""
    (tmp_path / "data").mkdir()
    logs, _ = stopped(tmp_path / "data" / "t-0", COMPACTED)
    checkpoint = tmp_path / "data" / "recovery-point-offset-checkpoint"

    def missing(text: str) -> list[str]:
        checkpoint.write_text(text)
        directory = LogDirectory.open(
            OsFileSystem(), str(tmp_path / "data"), directory_id="d", node_id=1, cluster_id="c"
        )
        loaded = directory.load_logs(lambda topic: COMPACTED, now_ms=1000, keeps_places=True)
        reasons = [each for each in loaded["t", 0].recovery.reasons if "missing" in each]
        directory.close(clean=False)
        return reasons

    write_identity(
        OsFileSystem(),
        str(tmp_path / "data"),
        DirectoryIdentity(directory_id="d", cluster_id="c", node_id=1),
    )
    listed = (tmp_path / "data" / "t-0" / CLOSED_SEGMENTS).read_bytes()
    remove(logs[1])
    assert missing(f"0\n1\nt 0 {BATCHES}\n") == []
    assert (tmp_path / "data" / "t-0" / CLOSED_SEGMENTS).read_bytes() != listed
    (tmp_path / "data" / "t-0" / CLOSED_SEGMENTS).write_bytes(listed)
    checksum = crc32c(f"t 0 {BATCHES}".encode())
    assert len(missing(f"0\n2\nt 0 {BATCHES}\n# 0 {checksum}\n")) == 1


def test_what_was_quarantined_is_not_taken_for_cut_off(
    tmp_path: Path,
) -> None:
    logs, _ = stopped(tmp_path / "t-0", COMPACTED)
    size = logs[1].stat().st_size
    with logs[1].open("r+b") as file:
        file.seek(logs[1].stat().st_size - 30)
        file.write(bytes(20))
    assert run(["log", "quarantine", str(tmp_path / "t-0")]) == 0
    assert logs[1].stat().st_size < size
    log = opened(tmp_path / "t-0", COMPACTED)
    assert lost(log) == []


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_time_index_without_its_last_entries_is_made_again(tmp_path: Path, clean: bool) -> None:
    """Else retention took the segment for older than it is."""
    log = open_log(tmp_path, config=PLAIN)
    for number in range(BATCHES):
        records = [(1000 + number, b"key", b"%03d" % number * 20, ())]
        log.append_as_leader(bytearray(encode_records(records)), leader_epoch=0, now_ms=1000)
    log.flushing.flush()
    newest = log.segments[1].newest_ms
    log.close(clean=clean)
    index = sorted(tmp_path.glob("*.timeindex"))[1]
    content = index.read_bytes()
    index.write_bytes(content[:-24])
    log = opened(tmp_path, PLAIN, clean=clean)
    assert log.segments[1].newest_ms == newest
    assert index.read_bytes() == content
    log.close(clean=True)
    assert opened(tmp_path, PLAIN).recovery.reasons == ()


def test_the_mark_outlives_a_loss_of_power() -> None:
    """Else the next start finds an empty file, which in a compacted log is none that was lost."""
    disk = MemoryFileSystem()
    disk.make_directory("/t-0")
    disk.open("/t-0/1.log", create=True).close()
    sync_directory(disk, "/t-0")
    sync_directory(disk, "/")
    mark_lost(disk, "/t-0/1.log")
    assert is_lost(disk.crash(), "/t-0/1.log")
