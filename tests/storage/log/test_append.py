"""What does a leader take from a producer, and what does a follower take from its leader?"""

from collections.abc import Callable
from pathlib import Path

import pytest
from kafka.record import MemoryRecords

from bradbury.protocol.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
    OffsetOutOfRange,
    RecordListTooLarge,
)
from bradbury.protocol.records.record_batch import build_batch, check_batch, compute_crc, stamp
from bradbury.storage.log.log_compaction import UnnotedGap
from bradbury.storage.log.timestamp_search import begin_search
from bradbury.storage.log_config import LogConfig
from bradbury.tests.support.storage.batches import make_batch
from bradbury.tests.support.storage.logs import open_log, read_all
from bradbury.tests.support.storage.memory_file_system import MemoryFileSystem

HOUR_MS = 3_600_000


def patched(position: int, value: bytes, batch: bytearray | None = None) -> bytearray:
    """A batch of two records with other bytes at `position`, and a CRC that agrees."""
    batch = make_batch(2) if batch is None else batch
    batch[position : position + len(value)] = value
    batch[17:21] = compute_crc(batch).to_bytes(4, "big")
    return batch


def short(value: int) -> bytes:
    return value.to_bytes(2, "big", signed=True)


def integer(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


def long(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def test_offsets_and_epoch_are_stamped_and_nothing_else_changes(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    sent = make_batch(3)
    log.append_as_leader(bytearray(sent), leader_epoch=4, now_ms=1000)
    result = log.append_as_leader(memoryview(bytearray(sent)), leader_epoch=5, now_ms=1000)
    assert result == (3, 5, -1, 0, False)
    stored = read_all(log, 3)
    assert stored == long(3) + sent[8:12] + integer(5) + sent[16:]
    assert log.epochs.entries == [(4, 0), (5, 3)]
    assert log.end_offset_for_epoch(4) == (4, 3)
    assert log.end_offset_for_epoch(5) == (5, 6)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: make_batch(2)[:60], CorruptMessage),
        (lambda: make_batch(2)[:-1], CorruptMessage),
        (lambda: make_batch(2) + b"x", CorruptMessage),
        (lambda: make_batch(2)[:-1] + b"\xff", CorruptMessage),
        (lambda: patched(8, integer(-1)), CorruptMessage),
        (lambda: patched(16, b"\x01"), InvalidRecord),
        (lambda: patched(0, long(7)), InvalidRecord),
        (lambda: patched(57, integer(3)), InvalidRecord),
        (lambda: patched(23, integer(5)), InvalidRecord),
        (lambda: patched(23, integer(-1) + b"", patched(57, integer(0))), InvalidRecord),
        (lambda: patched(21, short(7)), InvalidRecord),
        (lambda: patched(21, short(0x20)), InvalidRecord),
        (lambda: patched(21, short(0x10)), InvalidRecord),
        (lambda: patched(43, long(9)), InvalidRecord),
        (lambda: patched(51, short(0), patched(43, long(9))), InvalidRecord),
        (lambda: patched(53, integer(0), patched(43, long(9))), InvalidRecord),
        (lambda: make_batch(timestamps=[1001 + HOUR_MS]), InvalidTimestamp),
        (lambda: patched(35, long(-1), patched(21, short(8))), InvalidTimestamp),
        (lambda: make_batch(value=bytes(2000)), MessageTooLarge),
    ],
    ids=[
        "shorter than a header", "cut", "longer", "wrong CRC", "negative length", "magic 1",
        "base offset 7", "record count 3", "last offset delta 5", "no records", "codec 7",
        "control", "transactional without a producer", "producer without epoch and sequence",
        "producer without sequence", "producer without epoch", "an hour ahead",
        "LogAppendTime without a time", "too large",
    ],
)  # fmt: skip
def test_a_bad_batch_is_refused_with_kafkas_code_and_leaves_no_trace(
    tmp_path: Path, make: Callable[[], bytearray], error: type[KafkaError]
) -> None:
    log = open_log(tmp_path, config=LogConfig(max_message_bytes=1000))
    with pytest.raises(error):
        log.append_as_leader(make(), leader_epoch=0, now_ms=1000)
    assert (log.log_end_offset, log.segments.size_in_bytes, log.epochs.entries) == (0, 0, [])


def test_a_leader_of_an_earlier_epoch_than_the_log_is_fenced(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_as_leader(make_batch(), leader_epoch=2, now_ms=1000)
    with pytest.raises(FencedLeaderEpoch):
        log.append_as_leader(make_batch(), leader_epoch=1, now_ms=1000)
    stale = make_batch()
    stale[0:8], stale[12:16] = long(1), integer(1)
    with pytest.raises(InvalidRecord):
        log.append_as_follower(stale, now_ms=1000)
    assert (log.log_end_offset, log.epochs.entries) == (1, [(2, 0)])


def test_a_batch_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_bytes=100))
    with pytest.raises(RecordListTooLarge):
        log.append_as_leader(make_batch(value=bytes(100)), leader_epoch=0, now_ms=1000)


def test_timestamps_too_far_back_are_refused_for_any_record_of_a_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(message_timestamp_before_max_ms=100))
    log.append_as_leader(make_batch(timestamps=[900, 1000]), leader_epoch=0, now_ms=1000)
    for codec in (0, 1):
        batch = make_batch(timestamps=[1000, 899, 1000], codec=codec)
        with pytest.raises(InvalidTimestamp):
            log.append_as_leader(batch, leader_epoch=0, now_ms=1000)


def test_log_append_time_replaces_the_timestamps_and_renews_the_crc(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(message_timestamp_type="LogAppendTime"))
    batch = make_batch(timestamps=[10 * HOUR_MS, 5])
    result = log.append_as_leader(batch, leader_epoch=0, now_ms=777)
    assert result.log_append_time_ms == 777
    header = check_batch(read_all(log))
    assert (header.is_log_append_time, header.max_timestamp) == (True, 777)
    read = MemoryRecords(read_all(log)).next_batch()
    assert [record.timestamp for record in read] == [777, 777]
    assert begin_search(log, up_to=2).first_at_or_after(700) == (777, 0, 0)
    with pytest.raises(InvalidTimestamp):
        log.append_as_leader(patched(21, short(8)), leader_epoch=0, now_ms=778)


def test_a_log_append_time_bit_is_cleared_on_a_create_time_topic(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_as_leader(patched(21, short(8)), leader_epoch=0, now_ms=1000)
    header = check_batch(read_all(log))
    assert (header.is_log_append_time, header.max_timestamp) == (False, 1000)


def test_records_without_timestamps_are_never_out_of_range(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(message_timestamp_before_max_ms=0))
    batch = build_batch(
        b"\x0e\x00\x00\x00\x01\x02a\x00", record_count=1, base_timestamp=-1, max_timestamp=-1
    )
    log.append_as_leader(batch, leader_epoch=0, now_ms=1000)
    assert begin_search(log, up_to=1).first_with_max_timestamp() is None


@pytest.mark.parametrize("segment_bytes", [256, 100_000])
def test_a_follower_holds_its_leaders_bytes_and_answers(tmp_path: Path, segment_bytes: int) -> None:
    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=64)
    leader = open_log(tmp_path / "leader", config=config)
    for number in range(30):
        batch = make_batch(2, producer_id=5, producer_epoch=0, base_sequence=2 * number)
        leader.append_as_leader(batch, leader_epoch=number // 10, now_ms=1000)
    content = read_all(leader)
    follower = open_log(tmp_path / "follower", config=config)
    taken = 0
    for size in (1, 500, 60, 2000, len(content)):
        position = follower.segments.size_in_bytes
        follower.append_as_follower(memoryview(content)[position : position + size], now_ms=1)
        assert follower.segments.size_in_bytes >= taken
        taken = follower.segments.size_in_bytes
    assert read_all(follower) == content
    assert follower.epochs.entries == leader.epochs.entries == [(0, 0), (1, 20), (2, 40)]
    for offset in range(60):
        assert read_all(follower, offset) == read_all(leader, offset)
    retry = make_batch(2, producer_id=5, producer_epoch=0, base_sequence=54)
    assert follower.append_as_leader(retry, leader_epoch=3, now_ms=1000).duplicate
    if segment_bytes == 256:
        assert all(segment.size <= 256 for segment in follower.segments)
        assert len(follower.segments) == 10


def test_a_follower_refuses_what_does_not_join_on_or_is_damaged(tmp_path: Path) -> None:
    leader = open_log(tmp_path / "leader")
    for _ in range(4):
        leader.append_as_leader(make_batch(2), leader_epoch=0, now_ms=1000)
    content = read_all(leader)
    size = len(content) // 4
    follower = open_log(tmp_path / "follower")
    follower.append_as_follower(memoryview(content)[: 2 * size], now_ms=1)
    with pytest.raises(OffsetOutOfRange):
        follower.append_as_follower(memoryview(content)[size:], now_ms=1)
    damaged = bytearray(content[2 * size :])
    damaged[-1] ^= 1
    with pytest.raises(CorruptMessage):
        follower.append_as_follower(damaged, now_ms=1)
    assert read_all(follower) == content[: 2 * size]


def test_an_empty_follower_whose_start_is_inside_a_batch_begins_at_that_batch(
    tmp_path: Path,
) -> None:
    leader = open_log(tmp_path / "leader")
    leader.append_as_leader(make_batch(10), leader_epoch=0, now_ms=1000)
    follower = open_log(tmp_path / "follower", log_start_offset=4)
    follower.append_as_follower(read_all(leader), now_ms=1)
    assert (follower.log_start_offset, follower.log_end_offset) == (0, 10)
    assert open_log(tmp_path / "follower").log_end_offset == 10


def test_a_follower_keeps_the_gaps_that_compaction_left(tmp_path: Path) -> None:
    config = LogConfig(cleanup_policy="compact", index_interval_bytes=0)
    log = open_log(tmp_path, config=config)
    batches = []
    for base_offset in (3, 10, 2**33):
        batch = make_batch(2)
        batch[0:8] = long(base_offset)
        batch[12:16] = integer(0)
        batches.append(bytes(batch))
    with pytest.raises(UnnotedGap):  # a start would take it for a loss
        log.append_as_follower(b"".join(batches), now_ms=1)
    assert log.log_end_offset == 0
    log.compaction.note_gaps(log.log_start_offset)
    log.append_as_follower(b"".join(batches), now_ms=1)
    assert log.log_end_offset == 2**33 + 2
    assert len(log.segments) == 2, "an offset that does not fit an index begins a segment"
    assert read_all(log, 0) == b"".join(batches)
    assert read_all(log, 5) == b"".join(batches[1:])
    assert read_all(log, 12) == batches[2]
    assert read_all(open_log(tmp_path, config=config), 5) == b"".join(batches[1:])


def test_a_segment_is_rolled_by_size_by_age_of_its_records_and_by_a_full_index(
    tmp_path: Path,
) -> None:
    size = len(make_batch())
    by_size = open_log(tmp_path / "size", config=LogConfig(segment_bytes=2 * size))
    by_age = open_log(tmp_path / "age", config=LogConfig(segment_ms=100))
    by_index = open_log(
        tmp_path / "index", config=LogConfig(segment_index_bytes=36, index_interval_bytes=0)
    )
    for number in range(6):
        for log in (by_size, by_age, by_index):
            batch = make_batch(timestamps=[1000 + 51 * number])
            log.append_as_leader(batch, leader_epoch=0, now_ms=5000)
    assert [s.base_offset for s in by_size.segments] == [0, 2, 4]
    assert [s.base_offset for s in by_age.segments] == [0, 2, 4]
    assert [s.base_offset for s in by_index.segments] == [0, 3]


def test_age_is_known_again_after_a_restart(tmp_path: Path) -> None:
    config = LogConfig(segment_ms=100)
    log = open_log(tmp_path, config=config)
    log.append_as_leader(make_batch(timestamps=[1000]), leader_epoch=0, now_ms=1000)
    log.close(clean=True)
    log = open_log(tmp_path, config=config, clean=True)
    log.append_as_leader(make_batch(timestamps=[1101]), leader_epoch=0, now_ms=1101)
    assert [s.base_offset for s in log.segments] == [0, 1]


def test_the_high_watermark_never_goes_back_nor_beyond_the_end(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_as_leader(make_batch(5), leader_epoch=0, now_ms=1000)
    seen = []
    for offset in (3, 1, 4, 9, 0):
        log.high_watermark = offset
        seen.append(log.high_watermark)
    assert seen == [3, 3, 4, 5, 5]
    assert log.last_stable_offset == 5
    again = open_log(tmp_path, high_watermark=99)
    assert again.high_watermark == 5


def test_a_follower_takes_batches_of_several_epochs_that_were_assigned_before(
    tmp_path: Path,
) -> None:
    leader = open_log(str(tmp_path / "leader"))
    for epoch in (0, 3, 7):
        for _ in range(2):
            leader.append_as_leader(make_batch(), leader_epoch=epoch, now_ms=1000)
    follower = open_log(str(tmp_path / "follower"))
    batches = read_all(leader)
    epochs = follower.epochs.new_epochs(batches, up_to=7)
    assert epochs == [(0, 0), (3, 2), (7, 4)]
    follower.local.assign_epochs(epochs)
    follower.append_as_follower(batches, now_ms=1000)
    assert read_all(follower) == batches
    assert follower.epochs.entries == leader.epochs.entries
    with pytest.raises(InvalidRecord, match="epoch 8"):
        follower.epochs.new_epochs(make_batch_of_epoch(8), up_to=7)


def test_an_epoch_that_goes_on_before_a_new_one_begins_keeps_its_beginning(tmp_path: Path) -> None:
    """Else the epoch before it would seem to end too late, and a divergence would be missed."""
    leader = open_log(str(tmp_path / "leader"))
    for epoch in (2, 2, 4, 4, 4, 5):
        leader.append_as_leader(make_batch(), leader_epoch=epoch, now_ms=1000)
    batches = read_all(leader)
    size = len(batches) // 6
    follower = open_log(str(tmp_path / "follower"))
    follower.append_as_follower(batches[: 3 * size], now_ms=1000)
    news = batches[3 * size :]
    follower.local.assign_epochs(follower.epochs.new_epochs(news, up_to=5))
    follower.append_as_follower(news, now_ms=1000)
    assert follower.epochs.entries == leader.epochs.entries == [(2, 0), (4, 2), (5, 5)]
    assert follower.end_offset_for_epoch(2) == (2, 2)


def test_while_a_new_epoch_reaches_the_disk_nothing_of_the_former_one_is_appended() -> None:
    """It is written in a thread; the leader of the former epoch may not know yet."""
    disk = MemoryFileSystem()
    log = open_log("/data/t-0", file_system=disk)
    log.append_as_leader(make_batch(), leader_epoch=3, now_ms=1000)
    refused = []

    def append_meanwhile(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith("leader-epoch-checkpoint.tmp"):
            with pytest.raises(FencedLeaderEpoch):
                log.append_as_leader(make_batch(), leader_epoch=3, now_ms=1000)
            refused.append(path)

    disk.before = append_meanwhile
    log.local.assign_epoch(5)
    assert len(refused) == 1
    assert (log.log_end_offset, log.epochs.entries) == (1, [(3, 0), (5, 1)])


def make_batch_of_epoch(epoch: int) -> bytearray:
    batch = make_batch()
    stamp(batch, base_offset=6, leader_epoch=epoch)
    return batch


def test_an_epoch_without_records_goes_with_a_truncation_at_the_end(tmp_path: Path) -> None:
    log = open_log(str(tmp_path))
    log.append_as_leader(make_batch(), leader_epoch=0, now_ms=1000)
    log.local.assign_epoch(5)
    assert log.truncate_to(1) == 0
    assert (log.log_end_offset, log.epochs.entries) == (1, [(0, 0)])


def test_a_first_batch_without_a_timestamp_does_not_make_its_segment_old(tmp_path: Path) -> None:
    """Its age is that of the file, then."""
    now_ms = 1_000_000_000
    log = open_log(tmp_path, config=LogConfig(segment_ms=60_000), now_ms=now_ms)
    for timestamp in (-1, now_ms):
        batch = make_batch(timestamps=[timestamp])
        log.append_as_leader(batch, leader_epoch=0, now_ms=now_ms)
    assert len(log.segments) == 1
