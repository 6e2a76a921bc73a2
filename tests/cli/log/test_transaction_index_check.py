"""bradbury log verify and index-check on .txnindex: what is aborted in a log, and what they say."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from bradbury.cli.log.log_files import Problem, logs_of
from bradbury.cli.log.log_verify import check_log
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.log.retention import apply_retention
from bradbury.storage.log_config import LogConfig
from bradbury.storage.segments.transaction_index import ENTRY
from bradbury.tests.support.command_line import Command
from bradbury.tests.support.storage.keyed_logs import clean
from bradbury.tests.support.storage.logs import open_log
from bradbury.tests.support.storage.transactions import commit_all, end, send, transactional_batch

CONFIG = LogConfig(segment_bytes=400)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Offsets 0 to 17 in segments of six: two producers, whose transactions overlap.

    Producer 7 aborts at 2, 8 and 14, producer 9 at 5 and 17, and commits at 11.
    """
    folder = tmp_path / "t-0"
    folder.mkdir()
    log = open_log(folder)
    for number in range(3):
        send(log, 2 * number, producer_id=9)
        send(log, number)
        end(log, is_commit=False)
        send(log, 2 * number + 1, producer_id=9)
        send(log, 0, producer_id=11 + number)
        end(log, is_commit=number == 1, producer_id=9)
        log.local.roll(now_ms=1000)
    log.close(clean=True)
    return folder


def index_of(partition: Path, base_offset: int) -> Path:
    return partition / f"{base_offset:020d}.txnindex"


def problems(command: Command, path: Path) -> list[tuple[str, int, int | None, str]]:
    """Of both commands, which must agree."""
    found = []
    for name, parts in (("verify", "segments"), ("index-check", "indexes")):
        outcome = command("log", name, str(path), "--json")
        result = json.loads(outcome.out)
        found.append(
            [
                (Path(one["file"]).name, one["position"], one["offset"], one["reason"])
                for part in result[parts]
                for one in part["problems"]
            ]
        )
        assert (outcome.code, result["sound"]) == (bool(found[-1]), not found[-1])
    assert found[0] == found[1]
    return found[0]


def test_what_a_log_has_written_is_sound(command: Command, partition: Path) -> None:
    assert problems(command, partition) == []
    listed = json.loads(command("log", "index-check", str(partition), "--json").out)["indexes"]
    entries = {Path(one["file"]).name: one["entries"] for one in listed if "txn" in one["file"]}
    assert entries == {index_of(partition, base).name: n for base, n in ((0, 2), (6, 1), (12, 2))}


def changed(entry: int, column: int, value: int) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        entries = [list(each) for each in ENTRY.iter_unpack(content)]
        entries[entry][column] = value
        return b"".join(ENTRY.pack(*each) for each in entries)

    return change


@pytest.mark.parametrize(
    ("change", "place", "offset", "reason"),
    [
        (lambda old: old[:34], 34, 5, "no entry for the abort of producer 9's transaction"),
        (lambda old: old[34:], 34, 2, "no entry for the abort of producer 7's transaction"),
        (changed(1, 1, 7), 34, 5, "producer 7, but the marker is of 9"),
        (changed(1, 2, 3), 34, 5, "first offset 3, but the transaction begins at 0"),
        (changed(1, 2, 5), 34, 5, "first offset 5, but the producer's transaction lies between"),
        (changed(0, 4, 3), 0, 2, "last stable offset 3, but by the log it was 0"),
        (changed(1, 4, 3), 34, 5, "last stable offset 3, but by the log it was 4"),
        (changed(0, 3, 1), 0, 1, "no marker of a transaction is at offset 1 of the segment"),
        (changed(1, 0, 1), 34, None, "version 1"),
        (changed(1, 3, 2), 34, None, "a marker at offset 2 after 2"),
        (lambda old: old + b"\0", 68, None, "an incomplete entry"),
    ],
)
def test_an_index_that_differs_is_named_with_its_place(
    command: Command,
    partition: Path,
    change: Callable[[bytes], bytes],
    place: int,
    offset: int | None,
    reason: str,
) -> None:
    index = index_of(partition, 0)
    index.write_bytes(change(index.read_bytes()))
    found = problems(command, partition)
    assert (index.name, place, offset) in [one[:3] for one in found]
    assert any(reason in one[3] for one in found), found
    for name in ("verify", "index-check"):
        shown = command("log", name, str(partition)).err
        assert f"delete {index} and the .index next to it" in shown


def test_a_committed_transaction_in_the_index_hides_records(
    command: Command, partition: Path
) -> None:
    index = index_of(partition, 6)
    index.write_bytes(index.read_bytes() + ENTRY.pack(0, 9, 6, 11, 12))
    assert problems(command, partition) == [
        (index.name, 34, 11, "an aborted transaction, but the marker says that it was committed")
    ]


@pytest.mark.parametrize("is_clean", [True, False])
def test_what_was_said_to_be_deleted_is_made_again(
    command: Command, partition: Path, is_clean: bool
) -> None:
    before = {base: index_of(partition, base).read_bytes() for base in (0, 6, 12)}
    index_of(partition, 6).write_bytes(b"")
    index_of(partition, 12).unlink()
    assert [one[2] for one in problems(command, partition)] == [8, 14, 17]
    for base in (6, 12):
        index_of(partition, base).unlink(missing_ok=True)
        index_of(partition, base).with_suffix(".index").unlink()
    log = open_log(partition, clean=is_clean, recovery_point=18)
    log.close(clean=True)
    assert {base: index_of(partition, base).read_bytes() for base in before} == before
    assert problems(command, partition) == []


def test_an_entry_that_was_not_flushed_yet_is_not_missed(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    log = open_log(folder)
    send(log, 0)
    end(log, is_commit=False)
    log.flushing.flush()
    send(log, 1)
    end(log, is_commit=False)
    assert index_of(folder, 0).read_bytes() == ENTRY.pack(0, 7, 0, 1, 2)
    assert problems(command, folder) == []
    checkpoint = tmp_path / "recovery-point-offset-checkpoint"
    checkpoint.write_text("0\n1\nt 0 2\n")
    assert problems(command, folder) == []
    checkpoint.write_text("0\n1\nt 0 4\n")
    (found,) = problems(command, folder)
    assert found[1:3] == (34, 3)
    log.close(clean=True)
    assert problems(command, folder) == []


def test_the_beginning_of_a_transaction_may_have_been_deleted(
    command: Command, partition: Path
) -> None:
    log = open_log(partition, clean=True, recovery_point=18)
    send(log, 6, producer_id=9)
    log.local.roll(now_ms=1000)
    first_offset = log.log_end_offset - 1
    end(log, is_commit=False, producer_id=9)
    send(log, 7, producer_id=9)
    commit_all(log)
    log.local.roll(now_ms=1000)
    log.advance_log_start_offset(first_offset + 1)
    apply_retention(log, 1000)
    log.local.delete_old_files(10**9)
    log.close(clean=True)
    assert index_of(partition, first_offset + 1).exists()
    assert problems(command, partition) == []


def test_behind_damage_nothing_is_said_of_transactions(command: Command, partition: Path) -> None:
    log = partition / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    content[70] ^= 1
    log.write_bytes(content)
    outcome = command("log", "verify", str(partition), "--json")
    (found,) = [one for s in json.loads(outcome.out)["segments"] for one in s["problems"]]
    assert (Path(found["file"]).suffix, "CRC" in found["reason"]) == (".log", True)


EVENTS = st.lists(
    st.tuples(st.sampled_from(["send", "abort", "commit", "roll", "plain"]), st.integers(1, 3)),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(events=EVENTS, cleanings=st.lists(st.integers(0, 59), max_size=3))
def test_whatever_was_written_and_compacted_is_sound(
    tmp_path_factory: pytest.TempPathFactory,
    events: list[tuple[str, int]],
    cleanings: list[int],
) -> None:
    folder = tmp_path_factory.mktemp("logs") / "t-0"
    folder.mkdir()
    config = LogConfig(cleanup_policy="compact", delete_retention_ms=100)
    log = open_log(folder, config=config)
    sequences = dict.fromkeys(range(1, 4), 0)
    for number, (event, producer_id) in enumerate(events):
        _happen(log, event, producer_id, sequences)
        if number in cleanings:
            commit_all(log)
            log.local.roll(now_ms=1000)
            clean(log, now_ms=2000 + 150 * number)
    log.flushing.flush()
    log.close(clean=True)
    (folder.parent / "recovery-point-offset-checkpoint").write_text(
        f"0\n1\nt 0 {log.log_end_offset}\n"
    )
    assert found_in(folder) == []
    if cleanings:
        return  # what is gone contradicts nothing
    for index in folder.glob("*.txnindex"):
        content = index.read_bytes()
        for place in range(0, len(content), ENTRY.size):
            first_offset = struct.unpack_from(">q", content, place + 10)[0]
            wrong = bytearray(content)
            struct.pack_into(">q", wrong, place + 10, first_offset + 1)
            index.write_bytes(wrong)
            assert found_in(folder), "a later beginning shows an aborted record"
        index.write_bytes(content)


def found_in(folder: Path) -> list[Problem]:
    (segments,) = logs_of([folder])
    return [one for found in check_log(segments, lambda size: None) for one in found.problems]


def _happen(log: PartitionLog, event: str, producer_id: int, sequences: dict[int, int]) -> None:
    if event in ("send", "plain"):
        if event == "plain" and producer_id in log.local.producers.open_transactions:
            return
        sequence = sequences[producer_id]
        batch = transactional_batch(
            sequence=sequence,
            producer_id=producer_id,
            transactional=event == "send",
            key=b"%d" % (sequence % 2),
        )
        sequences[producer_id] += 1
        guard = None
        if event == "send":
            guard = log.local.producers.begin_verification(
                producer_id, 0, sequence, supports_epoch_bump=False, now_ms=1000
            )
        log.append_as_leader(batch, leader_epoch=0, now_ms=1000, guard=guard)
    elif event == "roll":
        log.local.roll(now_ms=1000)
    else:
        end(log, is_commit=event == "commit", producer_id=producer_id)
