"""What does a reader get of a log of which a closed segment is damaged, and how is it healed?"""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from bradbury.protocol.errors import CorruptMessage, KafkaStorageError
from bradbury.protocol.records.record_batch import walk_batches
from bradbury.protocol.records.records import encode_records
from bradbury.storage.disk.file_system import File, OsFileSystem
from bradbury.storage.log.log_damage import DamagedSegment, segments_to_examine
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.log.segment_patch import SegmentPatch
from bradbury.storage.log_config import LogConfig
from bradbury.storage.producers.producer_state import WrittenBatch
from bradbury.tests.support.storage.batches import make_batch
from bradbury.tests.support.storage.logs import open_log, read_all, read_slice

BATCHES = 60
MAX_TIMESTAMP_AT, PRODUCER_ID_AT, PRODUCER_EPOCH_AT, BASE_SEQUENCE_AT = 35, 50, 52, 56
"""In the header of a batch; of numbers their last bytes, but for the first."""
CONFIG = LogConfig(segment_bytes=2_000, index_interval_bytes=200)
SKIPPING = LogConfig(segment_bytes=2_000, index_interval_bytes=200, bradbury_damaged_segment="skip")


def written(path: Path) -> PartitionLog:
    """One record a batch, so offsets count batches."""
    log = open_log(path, config=CONFIG)
    for number in range(BATCHES):
        batch = bytearray(encode_records([(1000, None, b"%03d" % number * 20, ())]))
        log.append_as_leader(batch, leader_epoch=0, now_ms=1000)
    return log


def stopped(path: Path) -> tuple[PartitionLog, bytes]:
    """A log that was closed, and what was in it."""
    log = written(path)
    content = read_all(log)
    log.close(clean=True)
    return log, content


def opened(path: Path, config: LogConfig = CONFIG) -> PartitionLog:
    return open_log(
        path,
        clean=True,
        config=config,
        recovery_point=BATCHES,
        keeps_places=True,
        high_watermark=60,
    )


def read(log: PartitionLog, offset: int) -> bytes:
    end = log.log_end_offset
    return read_slice(log.read(offset, max_bytes=1 << 20, up_to=end, min_one_batch=True))


def examine(log: PartitionLog) -> None:
    for segment in list(log.damage.suspects):
        examination = log.damage.begin_examination(segment)
        assert examination is not None
        examination.run()
        log.damage.complete_examination(examination)


def middle(path: Path) -> Path:
    logs = sorted(path.glob("*.log"))
    return logs[len(logs) // 2]


def damage(file: Path, how: str) -> None:
    content = bytearray(file.read_bytes())
    positions = [position for position, _ in walk_batches(content)]
    if how == "gone":
        file.unlink()
    elif how == "empty":
        file.write_bytes(b"")
    elif how == "cut":
        file.write_bytes(content[: positions[5] + 7])
    elif how == "length":
        content[positions[5] + 8] = 0x7F
        file.write_bytes(content)
    else:
        content[positions[5] + 80] ^= 1
        file.write_bytes(content)


def offsets_lost(file: Path, how: str) -> int:
    count = len(list(walk_batches(file.read_bytes())))
    return {"gone": count, "empty": count, "cut": count - 5, "length": 1, "byte": 1}[how]


HOW = ("gone", "empty", "cut", "length", "byte")


@pytest.mark.parametrize("how", HOW)
def test_it_is_told_where_the_gap_is_and_reads_on_behind_it(tmp_path: Path, how: str) -> None:
    _, content = stopped(tmp_path)
    file = middle(tmp_path)
    lost = offsets_lost(file, how)
    first = int(file.stem) + (0 if how in ("gone", "empty") else 5)
    damage(file, how)
    log = opened(tmp_path)
    with pytest.raises(KafkaStorageError, match="is being examined"):
        read(log, first)
    examine(log)
    with pytest.raises(DamagedSegment, match=f"offsets {first} to {first + lost - 1} .*skip"):
        read(log, first)
    rest = b"".join(
        content[position : position + header.size]
        for position, header in walk_batches(content)
        if header.base_offset >= first + lost
    )
    assert read_all(log, first + lost) == rest
    assert read(log, 0)


@pytest.mark.parametrize("how", HOW)
def test_with_skip_it_goes_on_behind_the_gap(tmp_path: Path, how: str) -> None:
    stopped(tmp_path)
    file = middle(tmp_path)
    lost = offsets_lost(file, how)
    first = int(file.stem) + (0 if how in ("gone", "empty") else 5)
    damage(file, how)
    log = opened(tmp_path, SKIPPING)
    with pytest.raises(KafkaStorageError):
        read(log, first)
    examine(log)
    found = [header.base_offset for _, header in walk_batches(read(log, first))]
    assert found[0] == first + lost
    assert log.damage.skipped_offsets == lost


def test_a_batch_too_large_for_what_is_left_of_a_fetch_is_read_by_the_next_one(
    tmp_path: Path,
) -> None:
    """Other partitions have filled the response; the segment is damaged elsewhere."""
    stopped(tmp_path)
    file = middle(tmp_path)
    damage(file, "byte")
    log = opened(tmp_path)
    first = int(file.stem)
    log.damage.suspect(log.segments.from_offset(first)[0], "a test")
    examine(log)
    assert log.damage.ranges
    left = log.read(first, max_bytes=10, up_to=BATCHES, min_one_batch=False)
    assert (left.size, left.is_limited) == (0, True)
    assert next(walk_batches(read(log, first)))[1].base_offset == first


@pytest.mark.parametrize("how", HOW)
def test_it_is_healed_by_what_another_replica_has(tmp_path: Path, how: str) -> None:
    _, content = stopped(tmp_path / "t-0")
    damage(middle(tmp_path / "t-0"), how)
    log = opened(tmp_path / "t-0")
    for segment in segments_to_examine(log.damage.ends()) or log.segments[:-1]:
        log.damage.suspect(segment, "test")
    examine(log)
    assert log.damage.ranges
    heal(log, content)
    assert log.damage.ranges == ()
    assert read_all(log) == content
    log.close(clean=False)
    assert read_all(open_log(tmp_path / "t-0", config=CONFIG, recovery_point=BATCHES)) == content


def heal(log: PartitionLog, content: bytes) -> None:
    path = log.damage.ranges[0].path
    segment = next(each for each in log.segments if each.files.path == path)
    examination = log.damage.begin_examination(segment)
    assert examination is not None
    examination.run()
    log.damage.complete_examination(examination)
    patch = SegmentPatch(log, examination, 2000)
    patch.prepare()
    while (wanted := patch.wanted) is not None:
        patch.add(batches_from(content, wanted[0]))
    patch.finish()
    patch.apply(2000)


def batches_from(content: bytes, offset: int) -> bytes:
    """Three batches, as an answer that is not long enough for all."""
    starts = [at for at, header in walk_batches(content) if header.last_offset >= offset]
    return content[starts[0] : starts[3] if len(starts) > 3 else len(content)]


def test_what_another_replica_sends_is_checked(tmp_path: Path) -> None:
    _, content = stopped(tmp_path / "t-0")
    damage(middle(tmp_path / "t-0"), "empty")
    log = opened(tmp_path / "t-0")
    log.damage.suspect(segments_to_examine(log.damage.ends())[0], "test")
    examine(log)
    [gap] = log.damage.ranges
    wrong_crc = bytearray(batches_from(content, gap.start))
    wrong_crc[70] ^= 1
    wrong_epoch = bytearray(batches_from(content, gap.start))
    wrong_epoch[12:16] = (7).to_bytes(4, "big")
    before = sorted(path.name for path in (tmp_path / "t-0").iterdir())
    for bad in (wrong_crc, wrong_epoch, batches_from(content, gap.start + 1), b""):
        segment = next(one for one in log.segments if one.files.path == gap.path)
        examination = log.damage.begin_examination(segment)
        assert examination is not None
        examination.run()
        patch = SegmentPatch(log, examination, 2000)
        patch.prepare()
        with pytest.raises(CorruptMessage):
            patch.add(bad)
        patch.abandon()
    assert sorted(path.name for path in (tmp_path / "t-0").iterdir()) == before
    assert log.damage.ranges == (gap,)


def test_a_healed_epoch_begins_where_the_log_does(tmp_path: Path) -> None:
    """Records were deleted up to the middle of the batch that was damaged."""
    for name, deletes in (("healed-0", True), ("other-0", False)):
        log = open_log(tmp_path / name, config=CONFIG)
        for _ in range(20):
            records = [(1000, None, b"%03d" % number * 20, ()) for number in range(2)]
            log.append_as_leader(bytearray(encode_records(records)), leader_epoch=1, now_ms=1000)
        content = read_all(log)
        if deletes:
            log.high_watermark = log.log_end_offset
            log.advance_log_start_offset(3)
            assert log.epochs.entries == [(1, 3)]
            log.close(clean=True)
    first = min((tmp_path / "healed-0").glob("*.log"))
    second = next(at for at, header in walk_batches(bytes(content)) if header.base_offset == 2)
    data = bytearray(first.read_bytes())
    data[second + 70] ^= 1
    first.write_bytes(data)
    log = opened(tmp_path / "healed-0")
    log.high_watermark = log.log_end_offset
    log.advance_log_start_offset(3)
    log.damage.suspect(log.segments[0], "test")
    examine(log)
    heal(log, content)
    assert not log.damage.ranges
    assert log.epochs.entries == [(1, 3)]


def test_nothing_is_suspect_in_a_sound_log(tmp_path: Path) -> None:
    _, content = stopped(tmp_path)
    log = opened(tmp_path)
    assert segments_to_examine(log.damage.ends()) == []
    assert read_all(log) == content
    assert not log.damage.suspects


def test_a_segment_that_this_process_has_written_is_examined_too(tmp_path: Path) -> None:
    """A reader comes to it over a segment that compaction has left nothing of."""
    log = written(tmp_path)
    log.compaction.note_gaps(0)
    passed, segment = list(log.segments)[:2]
    assert segment.is_proven
    content = bytearray(Path(segment.files.path).read_bytes())
    content[80] ^= 1
    Path(segment.files.path).write_bytes(content)
    with pytest.raises(KafkaStorageError, match="is being examined"):
        log.damage.look((passed, segment), 0, passed.base_offset)
    examine(log)
    first = segment.base_offset
    assert [(each.start, each.end) for each in log.damage.ranges] == [(first, first + 1)]


def test_records_missing_at_the_end_of_the_last_written_segment_are_missed(tmp_path: Path) -> None:
    """Only an empty segment comes after them, so no batch behind them shows that they are gone."""
    log = written(tmp_path)
    log.local.roll(now_ms=1000)
    log.close(clean=True)
    last, empty = sorted(tmp_path.glob("*.log"))[-2:]
    assert not empty.stat().st_size
    damage(last, "cut")
    log = opened(tmp_path)
    with pytest.raises(KafkaStorageError, match="is being examined"):
        read(log, BATCHES - 1)
    examine(log)
    first_lost = int(last.stem) + 5
    assert [(each.start, each.end) for each in log.damage.ranges] == [(first_lost, BATCHES)]


def test_offsets_are_not_given_again_after_the_last_segment_was_lost(tmp_path: Path) -> None:
    stopped(tmp_path)
    max(tmp_path.glob("*.log")).unlink()
    log = opened(tmp_path)
    assert log.log_end_offset == BATCHES
    assert "missing" in " ".join(log.recovery.reasons)


def test_a_file_that_cannot_be_read_costs_what_is_in_it_alone(tmp_path: Path) -> None:
    class BrokenFile:
        def __init__(self, file: object) -> None:
            self._file = file

        def __getattr__(self, name: str) -> object:
            return getattr(self._file, name)

        def read_at(self, size: int, position: int) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

    class BrokenDisk(OsFileSystem):
        def open(self, path: str, *, create: bool = False):  # type: ignore[no-untyped-def]
            file = super().open(path, create=create)
            return BrokenFile(file) if path == broken else file

    broken = ""
    stopped(tmp_path)
    broken = str(middle(tmp_path))
    log = open_log(
        tmp_path,
        clean=True,
        config=CONFIG,
        recovery_point=BATCHES,
        keeps_places=True,
        file_system=BrokenDisk(),
    )
    first = int(Path(broken).stem)
    with pytest.raises(KafkaStorageError):
        read(log, first)
    assert log.health.is_online, "another file may be fine"
    examine(log)
    with pytest.raises(DamagedSegment):
        read(log, first)
    assert read(log, log.damage.ranges[-1].end)


class ShortOfDescriptors(OsFileSystem):
    """So many of the next openings of log files fail."""

    failures = 0

    def open(self, path: str, *, create: bool = False) -> File:
        if self.failures and path.endswith(".log"):
            self.failures -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return super().open(path, create=create)


def descriptors_of(folder: Path) -> int:
    links = Path("/proc/self/fd").iterdir()
    return sum(str(folder) in str(link.readlink()) for link in links if link.is_symlink())


def reopened(folder: Path, file_system: OsFileSystem) -> PartitionLog:
    """A log of many small segments, after a clean stop."""
    config = LogConfig(segment_bytes=2_000, index_interval_bytes=200)
    options: dict[str, Any] = {
        "topic_id": None,
        "config": config,
        "clean": True,
        "now_ms": 1,
        "keeps_places": True,
    }
    log = PartitionLog.open(file_system, f"{folder}/t-0", recovery_point=0, **options)
    for number in range(60):
        batch = encode_records([(1_000, None, b"%03d" % number * 20, ())])
        log.append_as_leader(batch, leader_epoch=0, now_ms=1_000)
    log.high_watermark = 60
    log.close(clean=True)
    return PartitionLog.open(
        file_system, f"{folder}/t-0", recovery_point=60, high_watermark=60, **options
    )


def test_a_machine_that_is_short_of_descriptors_has_damaged_nothing(tmp_path: Path) -> None:
    file_system = ShortOfDescriptors()
    log = reopened(tmp_path, file_system)
    file_system.failures = 1
    with pytest.raises(KafkaStorageError):
        log.read(0, max_bytes=1 << 20, up_to=60, min_one_batch=True)
    segment = next(iter(log.damage.suspects))
    examination = log.damage.begin_examination(segment)
    assert examination is not None
    file_system.failures = 1
    with pytest.raises(OSError, match="Too many open files"):
        examination.run()
    assert segment in log.damage.suspects, "it is examined later"
    examination.run()
    assert log.damage.complete_examination(examination) == []
    assert log.read(0, max_bytes=1 << 20, up_to=60, min_one_batch=True).size


def test_looking_at_the_ends_keeps_no_file_open(tmp_path: Path) -> None:
    log = reopened(tmp_path, OsFileSystem())
    before = descriptors_of(tmp_path)
    ends = log.damage.ends()
    assert len(ends) >= 3
    assert segments_to_examine(ends) == []
    for segment in list(log.segments)[:-1]:
        examination = log.damage.begin_examination(segment)
        assert examination is not None
        examination.run()
        assert log.damage.complete_examination(examination) == []
    assert descriptors_of(tmp_path) == before


def test_other_replicas_are_not_led_over_a_gap(tmp_path: Path) -> None:
    stopped(tmp_path)
    file = middle(tmp_path)
    damage(file, "empty")
    log = opened(tmp_path, SKIPPING)
    log.damage.suspect(segments_to_examine(log.damage.ends())[0], "test")
    examine(log)
    [gap] = log.damage.ranges
    assert read(log, gap.start), "a consumer goes on"
    for offset in (gap.start, gap.end - 1):
        with pytest.raises(DamagedSegment):
            log.damage.refuse_gap(offset)
    log.damage.refuse_gap(gap.start - 1)
    log.damage.refuse_gap(gap.end)
    log.damage.may_heal = True
    with pytest.raises(KafkaStorageError, match="being fetched from another replica"):
        log.damage.refuse_gap(gap.start)
    with pytest.raises(KafkaStorageError, match="being fetched from another replica"):
        read(log, gap.start)  # nor is a consumer, while the records may come back


def test_a_follower_that_does_not_get_on_makes_the_leader_look(tmp_path: Path) -> None:
    log = written(tmp_path)
    segment = log.segments[1]
    for offset in (10, 20, segment.base_offset, segment.base_offset):
        log.damage.on_sent(2, offset, segment.base_offset + 1)
        log.damage.on_sent(3, offset + 1, segment.base_offset + 1)
    assert not log.damage.suspects
    log.damage.on_sent(2, segment.base_offset, segment.base_offset + 1)
    assert list(log.damage.suspects) == [segment]
    examine(log)
    assert log.damage.ranges == ()
    for _ in range(90):
        log.damage.on_sent(2, segment.base_offset, segment.base_offset + 1)
    assert not log.damage.suspects, "it is not read again and again"


def test_a_damaged_header_makes_no_segment_younger(tmp_path: Path) -> None:
    """Or retention would wait for a time that a flipped bit has made up."""
    stopped(tmp_path)
    file = middle(tmp_path)
    content = bytearray(file.read_bytes())
    position = [position for position, _ in walk_batches(content)][5]
    content[position + MAX_TIMESTAMP_AT] ^= 0x40
    file.write_bytes(content)
    for index in tmp_path.glob(f"{file.stem}.*index"):
        index.unlink()
    log = opened(tmp_path)
    segment = log.segments.from_offset(int(file.stem))[0]
    assert segment.newest_ms > 1 << 60
    log.damage.suspect(segment, "a test")
    examine(log)
    assert log.damage.ranges
    assert segment.newest_ms == 1000


@pytest.mark.parametrize("field_at", [PRODUCER_ID_AT, PRODUCER_EPOCH_AT, BASE_SEQUENCE_AT])
def test_what_a_damaged_header_said_of_producers_goes_when_it_is_healed(
    tmp_path: Path, field_at: int
) -> None:
    path, other = tmp_path / "damaged", tmp_path / "other"
    logs = [open_log(each, config=CONFIG) for each in (path, other)]
    for sequence in range(BATCHES):
        # The last batch of producer 8 is in the middle.
        producer_id = 8 if sequence < BATCHES // 2 else 7
        base_sequence = sequence if producer_id == 8 else sequence - BATCHES // 2
        for log in logs:
            batch = make_batch(
                value=b"%03d" % sequence * 20,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=base_sequence,
            )
            log.append_as_leader(batch, leader_epoch=0, now_ms=1000)
    known = _remembered(logs[0])
    for log in logs:
        log.close(clean=True)
    last = BATCHES // 2 - 1
    file = max(each for each in path.glob("*.log") if int(each.stem) <= last)
    content = bytearray(file.read_bytes())
    position = next(at for at, header in walk_batches(content) if header.base_offset == last)
    content[position + field_at] ^= 0x10
    file.write_bytes(content)
    for snapshot in path.glob("*.snapshot"):
        snapshot.unlink()
    log = opened(path)
    assert _remembered(log) != known, "headers are believed when a log is opened"
    segment = log.segments.from_offset(last)[0]
    log.damage.suspect(segment, "a test")
    examine(log)
    examination = log.damage.begin_examination(segment)
    assert examination is not None
    examination.run()
    patch = SegmentPatch(log, examination, now_ms=1000)
    patch.prepare()
    while patch.wanted is not None:
        patch.add(read(opened(other), patch.wanted[0]))
    patch.finish()
    patch.apply(now_ms=1000)
    assert _remembered(log) == known


def _remembered(log: PartitionLog) -> dict[int, tuple[int, list[WrittenBatch]]]:
    return {
        producer_id: (entry.epoch, list(entry.batches))
        for producer_id, entry in log.local.producers.entries.items()
    }


def test_a_log_that_knows_its_producers_again_writes_snapshots_again(tmp_path: Path) -> None:
    """Also where what was lost had none: the start could not know that."""
    _, content = stopped(tmp_path)
    middle(tmp_path).unlink()
    for snapshot in tmp_path.glob("*.snapshot"):
        snapshot.unlink()
    log = opened(tmp_path)
    with pytest.raises(KafkaStorageError):
        read(log, int(middle(tmp_path).stem))
    examine(log)
    assert log.local.lacks_producers
    heal(log, content)
    assert not log.local.lacks_producers
    log.local.roll(now_ms=1000)
    assert (tmp_path / f"{BATCHES:020d}.snapshot").exists()
