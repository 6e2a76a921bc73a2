"""How are retries of idempotent producers recognised?"""

from pathlib import Path

import pytest
from crc32c import crc32c

from bradbury.protocol.errors import InvalidProducerEpoch, OutOfOrderSequenceNumber
from bradbury.storage.log.partition_log import AppendResult, PartitionLog
from bradbury.storage.log_config import LogConfig
from bradbury.storage.producers.producer_snapshot import decode_snapshot, encode_snapshot
from bradbury.storage.producers.producer_state import ProducerState
from bradbury.tests.support.storage.batches import make_batch
from bradbury.tests.support.storage.logs import open_log

LAST_SEQUENCE = 2**31 - 1
DAY_MS = 24 * 3_600_000


def send(
    log: PartitionLog, sequence: int, count: int = 2, *, epoch: int = 0, producer_id: int = 7
) -> AppendResult:
    batch = make_batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return log.append_as_leader(batch, leader_epoch=0, now_ms=1000)


def memory(log: PartitionLog) -> dict[int, tuple[int, list[tuple[int, ...]]]]:
    entries = log.local.producers.entries
    return {key: (entry.epoch, list(entry.batches)) for key, entry in entries.items()}


def test_a_retry_of_one_of_the_last_five_batches_gets_its_first_answer(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    first = [send(log, 2 * number) for number in range(6)]
    for number in range(1, 6):
        again = send(log, 2 * number)
        assert again.duplicate
        assert again[:2] == first[number][:2]
    assert log.log_end_offset == 12


def test_a_retry_of_an_older_batch_is_out_of_order(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number in range(6):
        send(log, 2 * number)
    with pytest.raises(OutOfOrderSequenceNumber):
        send(log, 0)


def test_a_retry_must_be_the_same_batch_exactly(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0, 4)
    for sequence, count in ((0, 2), (2, 2), (0, 5), (1, 3)):
        with pytest.raises(OutOfOrderSequenceNumber):
            send(log, sequence, count)


def test_a_gap_is_out_of_order(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0)
    with pytest.raises(OutOfOrderSequenceNumber):
        send(log, 3)
    assert not send(log, 2).duplicate


def test_a_new_epoch_begins_at_sequence_zero(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0)
    with pytest.raises(OutOfOrderSequenceNumber):
        send(log, 2, epoch=1)
    assert not send(log, 0, epoch=1).duplicate
    assert send(log, 0, epoch=1).duplicate


def test_an_old_epoch_is_fenced_even_for_a_retry(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0)
    send(log, 0, epoch=1)
    for sequence in (0, 2):
        with pytest.raises(InvalidProducerEpoch):
            send(log, sequence, epoch=0)


def test_an_unknown_producer_may_begin_anywhere(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert send(log, 1234, epoch=9).base_offset == 0


def test_sequences_wrap_to_zero(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, LAST_SEQUENCE - 1)  # ..., 2**31 - 2, 2**31 - 1
    assert not send(log, 0).duplicate
    assert send(log, LAST_SEQUENCE - 1).duplicate
    across = open_log(tmp_path / "across")
    send(across, LAST_SEQUENCE, 3)  # 2**31 - 1, 0, 1
    assert send(across, LAST_SEQUENCE, 3).duplicate
    assert not send(across, 2).duplicate
    with pytest.raises(OutOfOrderSequenceNumber):
        send(across, 2, 3)


def test_producers_do_not_disturb_each_other(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0, producer_id=1)
    send(log, 0, producer_id=2)
    assert send(log, 0, producer_id=1).base_offset == 0
    assert send(log, 0, producer_id=2).base_offset == 2


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("segment_bytes", [256, 100_000])
def test_all_five_batches_are_remembered_over_a_restart(
    tmp_path: Path, clean: bool, segment_bytes: int
) -> None:
    config = LogConfig(segment_bytes=segment_bytes)
    log = open_log(tmp_path, config=config)
    for number in range(8):
        send(log, 2 * number)
        send(log, 2 * number, producer_id=8)
    log.close(clean=clean)
    again = open_log(
        tmp_path, config=config, clean=clean, recovery_point=log.flushing.recovery_point
    )
    assert again.recovery.batches_replayed <= (0 if clean else 16)
    assert memory(again) == memory(log)
    for number in range(3, 8):
        assert send(again, 2 * number).base_offset == 4 * number


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "missing"])
def test_a_damaged_snapshot_costs_a_replay_and_nothing_else(tmp_path: Path, damage: str) -> None:
    config = LogConfig(segment_bytes=256)
    log = open_log(tmp_path, config=config)
    for number in range(8):
        send(log, 2 * number)
    log.close(clean=True)
    for path in tmp_path.glob("*.snapshot"):
        content = path.read_bytes()
        if damage == "missing":
            path.unlink()
        else:
            flipped = bytes([content[0], content[1] ^ 0, *content[2:-1], content[-1] ^ 1])
            path.write_bytes({"cut": content[:-3], "flipped": flipped, "empty": b""}[damage])
    again = open_log(tmp_path, config=config, clean=True)
    assert again.recovery.batches_replayed == 8
    assert memory(again) == memory(log)


def test_a_snapshot_begins_with_kafkas_own(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0, 3)
    send(log, 3, 2)
    log.close(clean=True)
    content = (tmp_path / f"{5:020d}.snapshot").read_bytes()
    assert content[:2] == b"\x00\x01"
    assert int.from_bytes(content[2:6], "big") == crc32c(content[6:])
    fields = [
        (1, 4),  # producers
        (7, 8), (0, 2), (4, 4), (4, 8), (1, 4), (1000, 8), (-1, 4), (-1, 8),
    ]  # fmt: skip
    kafkas = b"".join(value.to_bytes(size, "big", signed=True) for value, size in fields)
    assert content[6 : 6 + len(kafkas)] == kafkas
    # As Kafka writes it: no second part.
    plain = b"\x00\x01" + crc32c(kafkas).to_bytes(4, "big") + kafkas
    state = decode_snapshot(plain, 5)
    assert state is not None
    assert [tuple(batch) for batch in state.entries[7].batches] == [(4, 4, 1, 1000)]


def test_an_empty_state_has_a_snapshot_too() -> None:
    state = decode_snapshot(encode_snapshot(ProducerState(9)), 9)
    assert state is not None
    assert (state.entries, state.end_offset) == ({}, 9)


def test_truncation_restores_the_producers(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_bytes=256))
    for number in range(3):
        send(log, 2 * number)
    before = memory(log)
    for number in range(3, 9):
        send(log, 2 * number)
    log.truncate_to(6)
    assert memory(log) == before
    assert not send(log, 6).duplicate
    assert memory(open_log(tmp_path)) == memory(log)


def test_an_idle_producer_is_forgotten_after_a_day(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, 0)
    assert log.local.expire_producers(999 + DAY_MS) == 0
    assert log.local.expire_producers(1000 + DAY_MS) == 1
    assert send(log, 40).base_offset == 2
    log.close(clean=True)
    late = open_log(tmp_path, clean=True, now_ms=1000 + 2 * DAY_MS)
    assert memory(late) == {}
    soon = open_log(tmp_path, clean=True, producer_id_expiration_ms=10, now_ms=1010)
    assert memory(soon) == {}
