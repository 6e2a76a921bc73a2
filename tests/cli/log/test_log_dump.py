"""bradbury log dump: files as brokers wrote them, as kafka-python's codec wrote them, and damaged."""

import json
import struct
from pathlib import Path

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

import bradbury
from bradbury.tests.support.command_line import Command
from bradbury.tests.support.storage.logs import open_log
from bradbury.tests.support.storage.transactions import end, send


def foreign_batch(base_offset: int, values: list[bytes | None], *, codec: int = 0) -> bytes:
    """A batch as kafka-python writes it, at an offset as a leader stamps it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=False,
        producer_id=7,
        producer_epoch=2,
        base_sequence=5,
        batch_size=1 << 20,
    )
    for number, value in enumerate(values):
        builder.append(number, 1_000 + number, b"key", value, [("h", b"\xff")])
    batch = bytearray(builder.build())
    struct.pack_into(">q", batch, 0, base_offset)
    return bytes(batch)


def dumped(command: Command, *arguments: str) -> list[dict]:
    outcome = command("log", "dump", *arguments, "--json")
    assert outcome.code == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "00000000000000000100.log"
    path.write_bytes(
        foreign_batch(100, [b"a", None]) + foreign_batch(102, [b"zipped" * 50] * 3, codec=1)
    )
    return path


def test_batches_of_another_writer_are_shown_with_their_fields(command: Command, log: Path) -> None:
    first, second = dumped(command, str(log))
    assert (first["base_offset"], first["last_offset"], first["record_count"]) == (100, 101, 2)
    assert (first["producer_id"], first["producer_epoch"], first["base_sequence"]) == (7, 2, 5)
    assert (first["base_timestamp"], first["max_timestamp"]) == (1000, 1001)
    assert (first["position"], second["position"]) == (0, first["size"])
    assert (first["codec"], second["codec"]) == ("none", "gzip")
    outcome = command("log", "dump", str(log))
    assert "offsets 102-104" in outcome.out
    assert "2 batches, 5 records" in outcome.err


def test_records_come_with_records(command: Command, log: Path) -> None:
    first, second = dumped(command, str(log), "--records")
    assert [record["value"] for record in first["records"]] == ["a", None]
    assert first["records"][1]["offset"] == 101
    assert first["records"][0]["headers"] == [{"key": "h", "value": "base64:/w=="}]
    assert {record["value"] for record in second["records"]} == {"zipped" * 50}
    shown = command("log", "dump", str(log), "-r").out
    assert "1970-01-01T00:00:01.001+00:00  key: (null)" in shown


def test_markers_and_aborted_transactions_are_named(command: Command, tmp_path: Path) -> None:
    written = open_log(tmp_path)
    for sequence, is_commit in enumerate((True, False)):
        send(written, sequence)
        end(written, is_commit=is_commit, coordinator_epoch=5)
    written.close(clean=True)
    path = tmp_path / "00000000000000000000.log"
    markers = [batch for batch in dumped(command, str(path)) if batch["control"]]
    assert [(each["marker"], each["coordinator_epoch"]) for each in markers] == [
        ("commit", 5),
        ("abort", 5),
    ]
    shown = command("log", "dump", str(path)).out
    assert "transactional  control abort, coordinator epoch 5" in shown
    index = path.with_suffix(".txnindex")
    assert dumped(command, str(index)) == [
        {"producer_id": 7, "first_offset": 2, "last_offset": 3, "last_stable_offset": 4}
    ]
    assert "producer 7  first offset 2  marker 3" in command("log", "dump", str(index)).out
    content = index.read_bytes()
    for damage in (content[:-1], content * 2, b"\x00\x01" + content[2:]):
        index.write_bytes(damage)
        outcome = command("log", "dump", str(index))
        assert outcome.code == 1
        assert "damage at byte" in outcome.err


def test_max_ends_the_dump(command: Command, log: Path) -> None:
    assert len(dumped(command, str(log), "--max", "1")) == 1


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[:-1], "last 1 bytes are missing"),
        (lambda data: data + b"\x00" * 20, "20 bytes are less than a header"),
        (lambda data: data + b"\x00" * 70, "a batch of 12 bytes"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "CRC"),
    ],
)
def test_damage_is_named_with_its_place_after_what_is_sound(
    command: Command, log: Path, damage, reason: str
) -> None:
    log.write_bytes(damage(log.read_bytes()))
    outcome = command("log", "dump", str(log))
    assert outcome.code == 1
    assert outcome.out.startswith("@0 ")
    assert "damage at byte" in outcome.err
    assert reason in outcome.err
    assert outcome.err.count("\n") == 1


def test_the_files_of_a_broker_show_what_was_produced(command: Command, tmp_path: Path) -> None:
    # Small index intervals, so that there is an index to speak of; stopped, so that it is written.
    with bradbury.local(data_dir=str(tmp_path / "data")) as cluster:
        with cluster.admin() as admin:
            admin.create_topic("t", configs={"index.interval.bytes": "100"})
        with bradbury.Producer(cluster.bootstrap_servers) as producer:
            for number in range(20):
                producer.send_batch("t", [f"value {number}" * 10]).result()
    (log,) = (tmp_path / "data").rglob("t-0/*.log")
    batches = dumped(command, str(log))
    positions = {batch["last_offset"]: batch["position"] for batch in batches}
    assert len(positions) == 20
    entries = dumped(command, str(log.with_suffix(".index")))
    assert len(entries) > 5
    assert all(positions[entry["offset"]] == entry["position"] for entry in entries)
    times = dumped(command, str(log.with_suffix(".timeindex")))
    assert times
    stamps = {batch["last_offset"]: batch["max_timestamp"] for batch in batches}
    assert all(stamps[entry["offset"]] == entry["timestamp"] for entry in times)
    assert "position" in command("log", "dump", str(log.with_suffix(".index"))).out


def test_an_index_is_read_by_its_name_and_its_entries_must_rise(
    command: Command, tmp_path: Path
) -> None:
    index = tmp_path / "00000000000000000100.index"
    index.write_bytes(struct.pack(">IIII", 5, 0, 9, 300) + bytes(16))
    assert dumped(command, str(index)) == [
        {"offset": 105, "position": 0},
        {"offset": 109, "position": 300},
    ]
    index.write_bytes(struct.pack(">IIII", 9, 300, 5, 0))
    assert "damage at byte 8" in command("log", "dump", str(index)).err
    index.write_bytes(b"\x00" * 7)
    assert "an incomplete entry" in command("log", "dump", str(index)).error
    nameless = tmp_path / "x.index"
    nameless.touch()
    assert "base offset" in command("log", "dump", str(nameless)).usage


def test_other_files_are_refused(command: Command, tmp_path: Path) -> None:
    other = tmp_path / "meta.properties"
    other.touch()
    assert ".timeindex" in command("log", "dump", str(other)).usage
    assert "no such file" in command("log", "dump", str(tmp_path / "absent.log")).usage
    assert "is a directory; name a .log" in command("log", "dump", str(tmp_path)).usage


def test_an_empty_segment_is_no_damage(command: Command, tmp_path: Path) -> None:
    empty = tmp_path / "0.log"
    empty.touch()
    assert "0 batches" in command("log", "dump", str(empty)).err
