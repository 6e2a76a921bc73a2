"""Does damage cost what it is in, and nothing else, when a process dies, and when it goes on?"""

from pathlib import Path

import pytest

from bradbury.protocol.errors import KafkaStorageError
from bradbury.protocol.records.record_batch import walk_batches
from bradbury.protocol.records.records import encode_records, stamp_producer
from bradbury.storage.directories.log_directory import LogDirectory
from bradbury.storage.disk.file_system import OsFileSystem
from bradbury.storage.log.log_damage import DamagedSegment
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.log.timestamp_search import begin_search
from bradbury.storage.log_config import LogConfig
from bradbury.tests.storage.log.test_log_damage import heal
from bradbury.tests.support.storage.logs import open_log, read_all, read_slice

CONFIG = LogConfig(segment_bytes=1 << 20, index_interval_bytes=200)
BATCHES = 20
FLUSHED = 15
EPOCHS = (0, 6, 12)
"""Where leader epochs 0, 1 and 2 begin."""


def written(path: Path, config: LogConfig = CONFIG) -> tuple[PartitionLog, list[bytes]]:
    """A log of one record a batch, in one segment with this config, and its batches."""
    log = open_log(path, config=config)
    for number in range(BATCHES):
        batch = encode_records([(1000 + number, None, b"%03d" % number * 20, ())])
        epoch = sum(number >= start for start in EPOCHS) - 1
        log.append_as_leader(batch, leader_epoch=epoch, now_ms=1000)
    content = read_all(log)
    return log, [content[at : at + header.size] for at, header in walk_batches(content)]


def died(path: Path, **rest: object) -> PartitionLog:
    """As a node opens it whose process was killed, with a checkpoint of what was flushed."""
    return open_log(
        path, config=CONFIG, recovery_point=FLUSHED, high_watermark=10, keeps_places=True, **rest
    )


def flip(path: Path, batches: list[bytes], number: int, at: int = 80) -> None:
    """A bit of the batch of this offset, in its value; `at` elsewhere."""
    file = path / "00000000000000000000.log"
    content = bytearray(file.read_bytes())
    content[sum(map(len, batches[:number])) + at] ^= 1
    file.write_bytes(content)


def examine(log: PartitionLog) -> None:
    for segment in list(log.segments):
        examination = log.damage.begin_examination(segment)
        assert examination is not None
        examination.run()
        log.damage.complete_examination(examination)


def read(log: PartitionLog, offset: int) -> bytes:
    end = log.log_end_offset
    return read_slice(log.read(offset, max_bytes=1 << 20, up_to=end, min_one_batch=True))


def test_behind_damage_below_the_recovery_point_all_that_is_sound_stays(tmp_path: Path) -> None:
    log, batches = written(tmp_path)
    log.close(clean=False)
    flip(tmp_path, batches, 7)
    log = died(tmp_path)
    assert log.recovery.is_damaged
    assert log.log_end_offset == BATCHES
    examine(log)
    assert read(log, 0) == b"".join(batches[:7])
    with pytest.raises(DamagedSegment) as told:
        read(log, 7)
    assert told.value.next_offset == 8
    assert read_all(log, 8) == b"".join(batches[8:])
    batch = encode_records([(1000, None, b"later", ())])
    assert log.append_as_leader(batch, leader_epoch=2, now_ms=1000).base_offset == BATCHES
    # The other replica's records, and its leader epochs, which the log knew.
    heal(log, b"".join(batches))
    assert read_all(log)[: len(b"".join(batches))] == b"".join(batches)
    log.close(clean=False)


def test_above_it_the_log_ends_at_the_first_flaw(tmp_path: Path) -> None:
    log, batches = written(tmp_path)
    log.close(clean=False)
    flip(tmp_path, batches, FLUSHED + 1)
    log = died(tmp_path)
    assert read_all(log) == b"".join(batches[: FLUSHED + 1])
    log.close(clean=False)


def test_damage_in_deleted_records_takes_none_that_are_left(tmp_path: Path) -> None:
    log, batches = written(tmp_path)
    log.close(clean=False)
    flip(tmp_path, batches, 2)
    log = open_log(tmp_path, config=CONFIG, recovery_point=0, log_start_offset=5, keeps_places=True)
    assert read_all(log) == b"".join(batches[5:])
    log.close(clean=False)


def test_a_file_that_ends_before_what_was_flushed_is_damaged(tmp_path: Path) -> None:
    log, batches = written(tmp_path)
    log.close(clean=False)
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(file.read_bytes()[: sum(map(len, batches[:12])) + 30])
    log = died(tmp_path)
    assert log.log_end_offset == 12
    assert log.recovery.is_damaged
    assert f"ends at 12, and was flushed to {FLUSHED}" in " ".join(log.recovery.reasons)
    log.close(clean=False)


def test_what_comes_in_the_place_of_lost_records_is_not_taken_for_flushed(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    directory = LogDirectory.open(OsFileSystem(), str(tmp_path), directory_id="d")
    directory.load_logs(lambda topic: CONFIG, now_ms=1000)
    path.mkdir()
    log, batches = written(path)
    log.flushing.flush()
    directory.logs["t", 0] = log
    directory.checkpoints.bring_up_to_date()
    directory.close(clean=False)
    file = path / "00000000000000000000.log"
    file.write_bytes(file.read_bytes()[: sum(map(len, batches[:12]))])
    for end in (12, 13):
        directory = LogDirectory.open(OsFileSystem(), str(tmp_path), directory_id="d")
        directory.load_logs(lambda topic: CONFIG, now_ms=1000, keeps_places=True)
        log = directory.logs["t", 0]
        assert log.log_end_offset == end
        assert log.flushing.recovery_point == 12
        batch = encode_records([(1000, None, b"in its place", ())])
        log.append_as_leader(batch, leader_epoch=3, now_ms=1000)
        directory.close(clean=False)  # before any checkpoint


def test_an_older_file_of_leader_epochs_does_not_outlive_a_scan(tmp_path: Path) -> None:
    log, _ = written(tmp_path)
    known = log.epochs.entries
    log.close(clean=False)
    # As a power loss leaves it that has kept the records: before a truncation to 0.
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n3\n1 0\n2 9\n4 18\n")
    log = open_log(tmp_path, config=CONFIG, recovery_point=0, keeps_places=True)
    assert log.epochs.entries == known
    log.close(clean=False)


def test_a_hole_in_which_an_epoch_began_is_healed_when_the_file_of_epochs_is_lost_too(
    tmp_path: Path,
) -> None:
    log, batches = written(tmp_path)
    known = log.epochs.entries
    log.close(clean=False)
    file = tmp_path / "00000000000000000000.log"
    content = bytearray(file.read_bytes())
    ends = [sum(map(len, batches[:number])) for number in range(BATCHES)]
    content[ends[5] : ends[8]] = bytes(ends[8] - ends[5])
    file.write_bytes(content)
    (tmp_path / "leader-epoch-checkpoint").unlink()
    log = died(tmp_path)
    assert log.epochs.entries == [(0, 0), (1, 8), (2, 12)]
    examine(log)
    heal(log, b"".join(batches))
    assert read_all(log) == b"".join(batches)
    assert log.epochs.entries == known
    log.close(clean=False)


def test_a_reader_goes_on_from_one_damaged_segment_into_the_next(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=CONFIG)
    batches = []
    for number in range(BATCHES):
        if number == 4:
            log.local.roll(now_ms=1000)
        batch = encode_records([(1000, None, b"%03d" % number * 20, ())])
        log.append_as_leader(batch, leader_epoch=0, now_ms=1000)
        batches.append(read_slice(log.read(number, max_bytes=1, up_to=99, min_one_batch=True)))
    log.close(clean=True)
    for file in tmp_path.glob("*.log"):
        content = bytearray(file.read_bytes())
        content[len(batches[0]) + 90] ^= 1  # its second batch
        file.write_bytes(content)
    log = open_log(tmp_path, clean=True, config=CONFIG, recovery_point=BATCHES, keeps_places=True)
    examine(log)
    seen, offset = b"", 0
    while offset < log.log_end_offset:
        try:
            piece = log.read(offset, max_bytes=1 << 20, up_to=BATCHES, min_one_batch=True)
        except DamagedSegment as error:
            offset = error.next_offset
            continue
        assert piece.size, offset
        seen, offset = seen + read_slice(piece), piece.next_offset
    assert seen == b"".join(batch for number, batch in enumerate(batches) if number not in (1, 5))
    log.close(clean=False)


def test_a_header_in_deleted_records_that_says_it_has_others_is_not_read(tmp_path: Path) -> None:
    unindexed = LogConfig(index_interval_bytes=1 << 20)
    log, batches = written(tmp_path, unindexed)
    log.close(clean=True)
    flip(tmp_path, batches, 3, at=25)  # last offset delta: as if it went on to 259
    log = open_log(
        tmp_path,
        clean=True,
        config=unindexed,
        recovery_point=BATCHES,
        log_start_offset=4,
        keeps_places=True,
    )
    with pytest.raises(KafkaStorageError, match="is being examined"):
        read(log, 4)
    examine(log)
    assert read_all(log) == b"".join(batches[4:])
    log.close(clean=False)


@pytest.mark.parametrize("offset", [5, 10])
def test_a_truncation_into_lost_records_leaves_nothing_unread_before_those_that_follow(
    tmp_path: Path, offset: int
) -> None:
    log, batches = written(tmp_path)
    log.close(clean=True)
    (tmp_path / "00000000000000000000.log").write_bytes(b"")
    log = open_log(tmp_path, clean=True, config=CONFIG, recovery_point=BATCHES, keeps_places=True)
    assert log.log_end_offset == BATCHES
    log.truncate_to(offset)
    assert log.log_end_offset == 0  # the leader sends it all again
    log.append_as_follower(b"".join(batches), now_ms=1000)
    examine(log)
    assert not log.damage.ranges
    assert read_all(log) == b"".join(batches)
    log.close(clean=False)


def test_of_records_that_are_left_the_newest_is_found_by_its_time(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=CONFIG)
    for time in (1000, 9000, 2000, 3000, 2500):
        log.append_as_leader(encode_records([(time, None, b"v", ())]), leader_epoch=0, now_ms=1)
    log.high_watermark = 5
    log.advance_log_start_offset(2)
    found = begin_search(log, up_to=5).first_with_max_timestamp()
    assert found is not None
    assert (found.timestamp, found.offset) == (3000, 3)
    log.close(clean=False)


def test_a_damaged_header_below_the_log_start_fences_nobody(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=CONFIG)
    batches = []
    for number in range(4):
        batch = encode_records([(1000, None, b"%d" % number * 40, ())])
        stamp_producer(batch, producer_id=1, producer_epoch=0, base_sequence=number)
        log.append_as_leader(bytearray(batch), leader_epoch=0, now_ms=1000)
        batches.append(bytes(batch))
    log.close(clean=False)
    flip(tmp_path, batches, 0, at=52)  # the producer's epoch
    log = open_log(tmp_path, config=CONFIG, recovery_point=0, log_start_offset=2, keeps_places=True)
    assert log.local.producers.entries[1].epoch == 0
    log.close(clean=False)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        "0\n3\n0 0\n1 7\n2 12\n",
        "0\n3\n0 0\n1 5\n2 12\n",
        "0\n3\n0 0\n1 6\n3 12\n",
        "0\n3\n0 0\n1 6\n2 1\n",
        "0\n2\n0 0\n2 12\n",
        "0\n1\n3 0\n",
    ],
)
def test_a_file_of_leader_epochs_that_is_false_is_made_again(
    tmp_path: Path, text: str, is_clean: bool
) -> None:
    log, _ = written(tmp_path)
    known = log.epochs.entries
    log.close(clean=is_clean)
    (tmp_path / "leader-epoch-checkpoint").write_text(text)
    log = open_log(
        tmp_path, clean=is_clean, config=CONFIG, recovery_point=BATCHES, keeps_places=True
    )
    assert log.epochs.entries == known
    log.close(clean=False)
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n3\n0 0\n1 6\n2 12\n"
