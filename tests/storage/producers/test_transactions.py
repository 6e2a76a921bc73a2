"""What does one partition know of transactions, and what does it show of them?"""

from errno import EIO, EMFILE
from pathlib import Path

import pytest

from bradbury.protocol.errors import (
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTxnState,
    KafkaStorageError,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from bradbury.protocol.records.end_transaction_marker import read_marker
from bradbury.protocol.records.record_batch import read_header
from bradbury.protocol.records.records import ControlType, encode_control_batch
from bradbury.storage.disk.file_system import OsFileSystem
from bradbury.storage.log.aborted_transactions import find_aborted
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.log.retention import apply_retention
from bradbury.storage.log_config import LogConfig
from bradbury.storage.producers.verification_guard import VerificationGuard
from bradbury.tests.support.storage.batches import make_batch
from bradbury.tests.support.storage.logs import open_log, read_all
from bradbury.tests.support.storage.memory_file_system import MemoryFileSystem
from bradbury.tests.support.storage.transactions import (
    commit_all,
    end,
    read_committed,
    send,
    transaction_state,
    transactional_batch,
)

DAY_MS = 24 * 3_600_000


def index_files(log: PartitionLog) -> list[str]:
    return sorted(path.name for path in Path(log.directory).glob("*.txnindex*"))


def test_a_transaction_is_late_five_minutes_after_any_should_have_been_aborted(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path)
    producers = log.local.producers
    assert not producers.has_late_transaction(1_000_000_000, 900_000)
    send(log, 0, 1, timestamp=1000)
    assert not producers.has_late_transaction(1000 + 900_000 + 300_000, 900_000)
    assert producers.has_late_transaction(1001 + 900_000 + 300_000, 900_000)
    send(log, 1, 1, timestamp=2000)  # its producer is still there
    assert not producers.has_late_transaction(1001 + 900_000 + 300_000, 900_000)
    end(log, is_commit=False)
    assert not producers.has_late_transaction(1_000_000_000, 900_000)


@pytest.mark.parametrize("refused", [EMFILE, EIO], ids=["descriptors", "broken"])
def test_an_index_that_cannot_be_opened_breaks_no_disk_unless_it_is_the_disk(refused: int) -> None:
    disk = MemoryFileSystem()
    log = open_log("/data/log-0", file_system=disk)
    send(log, 0, 2)
    end(log, is_commit=False)
    commit_all(log)
    log.flushing.flush()

    def before(operation: str, path: str) -> None:
        if path.endswith(".txnindex"):
            raise OSError(refused, "injected")

    disk.before = before
    with pytest.raises(KafkaStorageError, match="injected"):
        find_aborted(log, 0, 3)
    disk.before = lambda operation, path: None
    assert log.health.is_online == (refused == EMFILE)
    if log.health.is_online:
        assert [each.producer_id for each in find_aborted(log, 0, 3)] == [7]


# --- what is stable --------------------------------------------------------------------------------


def test_records_become_stable_when_their_marker_is_committed(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_as_leader(make_batch(2), leader_epoch=0, now_ms=1000)
    send(log, 0, 3)
    commit_all(log)
    assert (log.high_watermark, log.last_stable_offset) == (5, 2)
    log.append_as_leader(make_batch(1), leader_epoch=0, now_ms=1000)
    commit_all(log)
    assert log.last_stable_offset == 2  # what is of no transaction waits behind it
    end(log, is_commit=True)
    assert (log.high_watermark, log.last_stable_offset) == (6, 2)
    commit_all(log)
    assert (log.high_watermark, log.last_stable_offset) == (7, 7)
    assert read_committed(log) == [0, 1, 2, 3, 4, 5]


def test_the_first_of_several_open_transactions_counts(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for producer_id in (1, 2, 3):
        send(log, 0, producer_id=producer_id)
    end(log, is_commit=True, producer_id=2)
    commit_all(log)
    assert log.last_stable_offset == 0
    end(log, is_commit=False, producer_id=1)
    commit_all(log)
    assert log.last_stable_offset == 2
    send(log, 1, producer_id=1)
    end(log, is_commit=True, producer_id=3)
    commit_all(log)
    assert log.last_stable_offset == 5
    assert read_committed(log) == [1, 2]


def test_a_decided_transaction_is_unstable_over_a_restart_until_its_marker_is_committed(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path)
    send(log, 0)
    send(log, 0, producer_id=8)
    log.high_watermark = 2
    end(log, is_commit=True)
    end(log, is_commit=True, producer_id=8)
    assert log.last_stable_offset == 0
    log.close(clean=True)
    for clean in (True, False):
        log = open_log(tmp_path, clean=clean, high_watermark=2)
        assert log.last_stable_offset == 0
        log.high_watermark = 3
        assert log.last_stable_offset == 1
        log.close(clean=True)
    log.high_watermark = 4
    assert log.last_stable_offset == 4


def test_deleted_records_are_stable(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0, 4)
    commit_all(log)
    log.advance_log_start_offset(3)
    assert log.last_stable_offset == 3
    with pytest.raises(OffsetOutOfRange):
        log.advance_log_start_offset(5)


def test_an_open_transaction_does_not_keep_old_segments(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_bytes=100, retention_ms=0))
    for sequence in range(4):
        send(log, sequence)
    commit_all(log)
    assert apply_retention(log, 10_000)
    assert log.log_start_offset == log.last_stable_offset == 4


# --- who may write -------------------------------------------------------------------------------


def test_a_transaction_begins_when_its_coordinator_has_agreed(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    producers = log.local.producers
    with pytest.raises(InvalidTxnState):
        send(log, 0, guard=None)
    guard = producers.begin_verification(7, 0, 0, supports_epoch_bump=False, now_ms=0)
    assert not producers.has_open_transaction(7, 0)
    assert send(log, 0, guard=guard).base_offset == 0
    assert producers.has_open_transaction(7, 0)
    assert producers.begin_verification(7, 0, 1, supports_epoch_bump=False, now_ms=0) is None
    assert send(log, 1, guard=None).base_offset == 1
    with pytest.raises(InvalidTxnState):  # another epoch is another transaction
        send(log, 0, guard=None, epoch=1)


def test_what_a_coordinator_said_before_a_marker_is_of_the_transaction_before(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path)
    producers = log.local.producers
    guard = producers.begin_verification(7, 0, 0, supports_epoch_bump=False, now_ms=0)
    end(log, is_commit=False)
    with pytest.raises(InvalidTxnState):
        send(log, 0, guard=guard)
    other = producers.begin_verification(7, 0, 0, supports_epoch_bump=False, now_ms=0)
    assert other is not guard
    assert send(log, 0, guard=other).base_offset == 1


def test_a_retry_needs_no_open_transaction(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0, 2)
    end(log, is_commit=True)
    again = send(log, 0, 2, guard=None)
    assert (again.duplicate, again.base_offset) == (True, 0)


def test_a_batch_of_no_transaction_is_refused_while_its_producer_has_one_open(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path)
    send(log, 0)
    plain = transactional_batch(sequence=1, transactional=False)
    with pytest.raises(InvalidTxnState):
        log.append_as_leader(plain, leader_epoch=0, now_ms=1000)
    end(log, is_commit=True)
    assert log.append_as_leader(plain, leader_epoch=0, now_ms=1000).base_offset == 2


def test_the_marker_of_the_transaction_before_leaves_a_question_about_the_next_one(
    tmp_path: Path,
) -> None:
    """From transaction.version 2 on: the producer goes on when the end is decided, and the marker,
    which has the next epoch, may come after its next batch."""
    log = open_log(tmp_path)
    send(log, 0)
    producers = log.local.producers
    guard = producers.begin_verification(7, 1, 0, supports_epoch_bump=True, now_ms=0)
    end(log, is_commit=True, epoch=1, version=2)
    assert send(log, 0, epoch=1, guard=guard).base_offset == 2
    end(log, is_commit=False, epoch=2, version=2)
    late = producers.begin_verification(7, 2, 0, supports_epoch_bump=True, now_ms=0)
    end(log, is_commit=False, epoch=3, version=2)  # it has timed out meanwhile
    with pytest.raises(InvalidTxnState):
        send(log, 0, epoch=2, guard=late)


def test_a_higher_sequence_waits_for_the_lowest_that_is_verified(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    producers = log.local.producers
    guards = [
        producers.begin_verification(7, 0, sequence, supports_epoch_bump=False, now_ms=0)
        for sequence in (5, 3, 4)
    ]
    assert len(set(guards)) == 1
    for sequence in (5, 4):
        with pytest.raises(OutOfOrderSequenceNumber):
            send(log, sequence, guard=guards[0])
    assert send(log, 3, guard=guards[0]).base_offset == 0
    assert send(log, 4, guard=guards[0]).base_offset == 1


def test_a_client_whose_epochs_rise_begins_at_sequence_zero(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    begin = log.local.producers.begin_verification
    guard = begin(7, 0, 3, supports_epoch_bump=True, now_ms=0)
    with pytest.raises(OutOfOrderSequenceNumber):
        send(log, 3, guard=guard)
    assert send(log, 0, guard=begin(7, 0, 0, supports_epoch_bump=True, now_ms=0)).base_offset == 0


def test_after_a_marker_of_the_next_epoch_it_begins_at_zero_and_after_one_of_its_own_it_goes_on(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path)
    begin = log.local.producers.begin_verification
    send(log, 0)
    end(log, is_commit=True, epoch=1, version=2)
    with pytest.raises(OutOfOrderSequenceNumber):
        send(log, 3, epoch=1, guard=begin(7, 1, 3, supports_epoch_bump=True, now_ms=0))
    guard = begin(7, 1, 0, supports_epoch_bump=True, now_ms=0)
    send(log, 0, epoch=1, guard=guard)
    end(log, is_commit=True, epoch=1)  # by a coordinator that does not raise epochs
    guard = begin(7, 1, 1, supports_epoch_bump=True, now_ms=0)
    assert send(log, 1, epoch=1, guard=guard).base_offset == 4


def test_a_coordinator_writes_in_a_producers_name_without_a_sequence(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    own = {"leader_epoch": 0, "now_ms": 1000, "opened": True, "is_own": True}
    guard = log.local.producers.begin_verification(7, 1, -1, supports_epoch_bump=True, now_ms=0)
    with pytest.raises(InvalidTxnState):
        log.append_as_leader(transactional_batch(epoch=1, sequence=-1), **own)  # type: ignore[arg-type]
    for _ in range(2):
        batch = transactional_batch(epoch=1, sequence=-1)
        log.append_as_leader(batch, guard=guard, **own)  # type: ignore[arg-type]
    assert log.local.producers.open_transactions == {7: 0}
    with pytest.raises(InvalidTxnState):  # of a former epoch
        log.append_as_leader(transactional_batch(epoch=0, sequence=-1), **own)  # type: ignore[arg-type]
    end(log, is_commit=True, epoch=1)
    commit_all(log)
    assert read_committed(log) == [0, 1]


def test_clients_may_not_write_markers_nor_transactions_without_a_producer(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    marker = encode_control_batch(
        ControlType.COMMIT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1000
    )
    with pytest.raises(InvalidRecord):
        log.append_as_leader(marker, leader_epoch=0, now_ms=1000)
    with pytest.raises(InvalidRecord):
        send(log, -1, producer_id=-1, epoch=-1)


# --- markers ---------------------------------------------------------------------------------------


def test_a_marker_is_a_control_batch_as_kafka_writes_it(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(max_message_bytes=1))
    end(log, is_commit=True, epoch=3, coordinator_epoch=9, timestamp=1234)
    content = read_all(log)
    header = read_header(content)
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    assert (header.producer_id, header.producer_epoch, header.max_timestamp) == (7, 3, 1234)
    assert read_marker(content) == (True, 9)


def test_markers_of_former_epochs_are_fenced(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0, epoch=2)
    with pytest.raises(InvalidProducerEpoch):
        end(log, is_commit=True, epoch=1)
    end(log, is_commit=False, epoch=3, coordinator_epoch=5)
    with pytest.raises(InvalidProducerEpoch):
        send(log, 1, epoch=2)
    with pytest.raises(TransactionCoordinatorFenced):
        end(log, is_commit=False, epoch=3, coordinator_epoch=4)
    assert send(log, 0, epoch=3).base_offset == 2


def test_after_a_marker_of_a_new_epoch_sequences_begin_at_zero(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0, 3)
    end(log, is_commit=True, epoch=1)
    with pytest.raises(OutOfOrderSequenceNumber):
        send(log, 3, epoch=1)
    assert send(log, 0, epoch=1).base_offset == 4


def test_a_late_marker_does_not_end_the_next_transaction(tmp_path: Path) -> None:
    """From transaction.version 2 on each transaction has an epoch, and its marker the next."""
    log = open_log(tmp_path)
    send(log, 0)
    end(log, is_commit=True, epoch=1, version=2)
    end(log, is_commit=True, epoch=1, version=2)  # written again, without a transaction
    send(log, 0, epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        end(log, is_commit=True, epoch=1, version=2)
    end(log, is_commit=False, epoch=2, version=2)
    commit_all(log)
    assert read_committed(log) == [0]


def test_a_repeated_marker_changes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0)
    for _ in range(3):
        end(log, is_commit=False)
    commit_all(log)
    assert log.last_stable_offset == 4
    assert len(find_aborted(log, 0, 4)) == 1


def test_a_producer_with_an_open_transaction_is_not_forgotten(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0)
    assert log.local.expire_producers(1000 + 2 * DAY_MS) == 0
    end(log, is_commit=True, timestamp=5000)
    assert log.local.expire_producers(4000 + DAY_MS) == 0
    assert log.local.expire_producers(5000 + DAY_MS) == 1


def test_a_question_that_nobody_follows_up_is_forgotten(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    guard = log.local.producers.begin_verification(7, 0, 0, supports_epoch_bump=False, now_ms=5)
    assert isinstance(guard, VerificationGuard)
    log.local.expire_producers(5 + DAY_MS)
    with pytest.raises(InvalidTxnState):
        send(log, 0, guard=guard)


# --- the index of aborted transactions ---------------------------------------------------------------


def test_an_aborted_transaction_is_found_from_any_of_its_records(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_bytes=160))
    for producer_id, is_commit in ((1, False), (2, True), (3, False)):
        for sequence in range(3):
            send(log, sequence, producer_id=producer_id)
        end(log, is_commit=is_commit, producer_id=producer_id)
    commit_all(log)
    assert len(log.segments) > 4
    found = [each[:3] for each in find_aborted(log, 0, 12)]
    assert found == [(1, 0, 3), (3, 8, 11)]
    assert [each[:3] for each in find_aborted(log, 2, 9)] == found
    assert find_aborted(log, 4, 8) == []
    assert [each[0] for each in find_aborted(log, 3, 4)] == [1]
    assert [each[0] for each in find_aborted(log, 11, 12)] == [3]


def test_the_entry_of_an_abort_says_what_was_stable_then(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0, producer_id=1)
    send(log, 0, producer_id=2)
    end(log, is_commit=False, producer_id=2)
    end(log, is_commit=False, producer_id=1)
    commit_all(log)
    assert find_aborted(log, 0, 4) == [(2, 1, 2, 0), (1, 0, 3, 4)]


def test_only_segments_with_aborts_have_an_index(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for sequence, is_commit in enumerate((True, False, True)):
        send(log, sequence)
        end(log, is_commit=is_commit)
        log.local.roll(now_ms=1000)
    assert index_files(log) == [f"{2:020d}.txnindex"]
    assert (Path(log.directory) / index_files(log)[0]).stat().st_size == 34
    commit_all(log)
    log.advance_log_start_offset(4)
    apply_retention(log, 1000)
    log.local.delete_old_files(10**9)
    assert index_files(log) == []


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_knows_all_of_it(tmp_path: Path, clean: bool) -> None:
    config = LogConfig(segment_bytes=200)
    log = open_log(tmp_path, config=config)
    for sequence in range(6):
        send(log, sequence)
        send(log, sequence, producer_id=9)
        if sequence % 2:
            end(log, is_commit=False, coordinator_epoch=sequence, timestamp=1000 + sequence)
    if not clean:
        log.flushing.flush()
        send(log, 6)
        end(log, is_commit=False, coordinator_epoch=8)
    log.close(clean=clean)
    again = open_log(
        tmp_path, config=config, clean=clean, recovery_point=log.flushing.recovery_point
    )
    assert transaction_state(again) == transaction_state(log)
    again.close(clean=True)
    once_more = open_log(tmp_path, config=config, clean=True)
    assert transaction_state(once_more) == transaction_state(log)
    commit_all(once_more)
    assert once_more.last_stable_offset == 1


@pytest.mark.parametrize("damage", ["cut", "version", "offset", "of others"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_index_is_made_again(tmp_path: Path, damage: str, clean: bool) -> None:
    log = open_log(tmp_path)
    for sequence in range(3):
        send(log, sequence)
        end(log, is_commit=False)
        log.local.roll(now_ms=1000)
    log.flushing.flush()
    before = transaction_state(log)
    log.close(clean=True)
    path = tmp_path / f"{2:020d}.txnindex"
    content = path.read_bytes()
    path.write_bytes(
        {
            "cut": content[:-1],
            "version": b"\x00\x01" + content[2:],
            "offset": content[:18] + bytes(8) + content[26:],
            "of others": content + b"x",
        }[damage]
    )
    again = open_log(tmp_path, clean=clean, recovery_point=6)
    assert transaction_state(again) == before
    assert any("txnindex" in reason for reason in again.recovery.reasons)
    again.close(clean=True)
    assert path.read_bytes() == content


def test_what_a_power_loss_leaves_of_an_index_is_made_again_with_its_segment(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path)
    send(log, 0)
    end(log, is_commit=False)
    log.local.roll(now_ms=1000)
    before = transaction_state(log)
    log.close(clean=False)
    path = tmp_path / f"{0:020d}.txnindex"
    path.write_bytes(path.read_bytes() * 2)
    assert transaction_state(open_log(tmp_path)) == before
    path.unlink()
    assert transaction_state(open_log(tmp_path)) == before


def test_a_repair_that_is_interrupted_is_made_again(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for sequence in range(2):
        send(log, sequence)
        end(log, is_commit=False)
        log.local.roll(now_ms=1000)
    before = transaction_state(log)
    log.close(clean=True)
    path = tmp_path / f"{0:020d}.txnindex"
    damaged = path.read_bytes()[:-1]
    path.write_bytes(damaged)

    class Interrupted(OsFileSystem):
        def rename(self, source: str, target: str) -> None:
            raise OSError(5, "the power is gone")

    with pytest.raises(KafkaStorageError):
        open_log(tmp_path, clean=True, file_system=Interrupted())
    assert path.read_bytes() == damaged
    again = open_log(tmp_path, clean=True)
    assert transaction_state(again) == before
    assert index_files(again) == [f"{0:020d}.txnindex", f"{2:020d}.txnindex"]


def test_more_aborts_than_a_block_of_the_index_holds(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number in range(1200):
        send(log, 0, epoch=number)
        end(log, is_commit=False, epoch=number)
    commit_all(log)
    found = find_aborted(log, 0, 2400)
    assert [each.first_offset for each in found] == list(range(0, 2400, 2))
    assert len(find_aborted(log, 1500, 1510)) == 5
    assert read_committed(log) == []
    log.close(clean=False)
    for clean in (False, True):
        log = open_log(tmp_path, clean=clean)
        assert find_aborted(log, 0, 2400) == found
        log.truncate_to(2000)
        assert find_aborted(log, 0, 2400) == found[:1000]
        for number in range(1000, 1200):
            send(log, 0, epoch=number)
            end(log, is_commit=False, epoch=number)
        assert find_aborted(log, 0, 2400) == found
        log.close(clean=True)


def test_truncation_takes_back_markers_and_what_follows_from_them(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_bytes=300))
    states = []
    for sequence in range(4):
        states.append((log.log_end_offset, transaction_state(log)))
        send(log, sequence)
        states.append((log.log_end_offset, transaction_state(log)))
        end(log, is_commit=bool(sequence % 2))
    for offset, state in reversed(states):
        log.truncate_to(offset)
        assert transaction_state(log) == state
        log.close(clean=False)
        log = open_log(tmp_path, config=log.config)
        assert transaction_state(log) == state
    log.truncate_fully_and_start_at(100)
    assert transaction_state(log) == ({}, [], [])


def test_a_follower_knows_what_its_leader_knows(tmp_path: Path) -> None:
    leader = open_log(str(tmp_path / "leader"), config=LogConfig(segment_bytes=300))
    follower = open_log(str(tmp_path / "follower"), config=LogConfig(segment_bytes=500))
    for sequence in range(6):
        send(leader, sequence)
        send(leader, sequence, producer_id=8)
        end(leader, is_commit=bool(sequence % 2), coordinator_epoch=sequence)
        if sequence % 3 == 2:
            follower.append_as_follower(read_all(leader, follower.log_end_offset), now_ms=1000)
    assert transaction_state(follower) == transaction_state(leader)
    for log in (leader, follower):
        log.high_watermark = 14
    assert follower.last_stable_offset == leader.last_stable_offset == 1
    end(leader, is_commit=True, producer_id=8)
    follower.append_as_follower(read_all(leader, 18), now_ms=1000)
    assert follower.last_stable_offset == 1
    for log in (leader, follower):
        commit_all(log)
    assert follower.last_stable_offset == 19
    assert read_committed(follower) == read_committed(leader)
