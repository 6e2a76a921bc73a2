"""bradbury log verify and index-check: sound logs of several writers, and every kind of damage."""

import json
import struct
from pathlib import Path

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

import bradbury
from bradbury.protocol.records.record_batch import compute_crc
from bradbury.protocol.records.records import ControlType, encode_control_batch, encode_records
from bradbury.tests.support.command_line import Command


def foreign_batch(
    base_offset: int, count: int, *, codec: int = 0, epoch: int = 3, first_timestamp: int = 1_000
) -> bytearray:
    """A batch as kafka-python writes it, at an offset as a leader stamps it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for number in range(count):
        builder.append(number, first_timestamp + number, b"k", b"value" * 10, [("h", b"x")])
    batch = bytearray(builder.build())
    struct.pack_into(">q", batch, 0, base_offset)
    struct.pack_into(">i", batch, 12, epoch)
    return batch


def rewritten(batch: bytearray, layout: str, position: int, value: int) -> bytearray:
    """The batch with one field changed and a CRC that is right nevertheless."""
    changed = bytearray(batch)
    struct.pack_into(layout, changed, position, value)
    struct.pack_into(">I", changed, 17, compute_crc(changed))
    return changed


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Two segments: offsets 100-109 in three batches, and 110-114 in one."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    (folder / "00000000000000000100.log").write_bytes(
        foreign_batch(100, 2) + foreign_batch(102, 5, codec=1) + foreign_batch(107, 3)
    )
    (folder / "00000000000000000110.log").write_bytes(foreign_batch(110, 5, codec=2))
    return folder


def first(partition: Path) -> Path:
    return partition / "00000000000000000100.log"


def verified(command: Command, *paths: Path) -> tuple[int, dict]:
    outcome = command("log", "verify", *map(str, paths), "--json")
    return outcome.code, json.loads(outcome.out)


def reasons(result: dict) -> list[tuple[int, str]]:
    return [(one["position"], one["reason"]) for s in result["segments"] for one in s["problems"]]


def test_a_sound_log_of_another_writer_is_sound(command: Command, partition: Path) -> None:
    code, result = verified(command, partition)
    assert (code, result["sound"]) == (0, True)
    one, two = result["segments"]
    assert (one["first_offset"], one["end_offset"], one["batches"], one["records"]) == (
        100,
        110,
        3,
        10,
    )
    assert (two["first_offset"], two["end_offset"], two["records"]) == (110, 115, 5)
    shown = command("log", "verify", str(partition))
    assert shown.code == 0
    assert "15 records" in shown.err


def test_gaps_that_compaction_leaves_and_control_batches_are_sound(
    command: Command, partition: Path
) -> None:
    marker = bytearray(
        encode_control_batch(
            ControlType.COMMIT,
            producer_id=7,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=5,
            base_offset=130,
            leader_epoch=3,
        )
    )
    sparse = foreign_batch(120, 3)
    wide = rewritten(sparse, ">i", 23, 9)  # last offset 129: the last records are compacted away
    empty = rewritten(wide, ">i", 57, 0)[:61]
    struct.pack_into(">i", empty, 8, 61 - 12)
    struct.pack_into(">q", empty, 0, 140)
    struct.pack_into(">I", empty, 17, compute_crc(empty))
    (partition / "00000000000000000120.log").write_bytes(wide + marker + empty)
    code, result = verified(command, partition)
    assert reasons(result) == []
    assert code == 0
    assert result["segments"][2]["end_offset"] == 150


DAMAGE = [
    pytest.param(lambda b: b[:-1] + bytes([b[-1] ^ 1]), "CRC", id="crc"),
    pytest.param(lambda b: b[:-1], "last 1 bytes are missing", id="torn"),
    pytest.param(lambda b: b + bytes(20), "20 bytes are less than a header", id="short-tail"),
    pytest.param(lambda b: b + bytes(100), "a batch of 12 bytes", id="zeros"),
    pytest.param(lambda b: rewritten(b, ">i", 57, 2), "last record of a batch", id="count"),
    pytest.param(lambda b: rewritten(b, ">q", 35, 5_000), "latest timestamp", id="max-timestamp"),
    pytest.param(lambda b: rewritten(b, ">i", 23, 1), "offset delta 2", id="last-offset"),
    pytest.param(lambda b: rewritten(b, ">b", 16, 3), "magic 3", id="magic"),
    pytest.param(lambda b: rewritten(b, ">b", 16, 1), "CRC of a message", id="an-old-magic"),
    pytest.param(lambda b: rewritten(b, ">h", 21, 7), "codec", id="codec"),
]


@pytest.mark.parametrize(("damage", "reason"), DAMAGE)
def test_damage_is_named_with_its_file_and_place(
    command: Command, partition: Path, damage, reason: str
) -> None:
    path = partition / "00000000000000000115.log"
    sound = foreign_batch(115, 3)
    path.write_bytes(sound + damage(foreign_batch(118, 3)))
    code, result = verified(command, partition)
    assert code == 1
    (found,) = [one for s in result["segments"] for one in s["problems"]]
    assert found["file"] == str(path)
    assert found["position"] >= len(sound)
    assert reason in found["reason"]
    shown = command("log", "verify", str(partition))
    assert shown.code == 1
    assert str(path) in shown.err


def test_what_comes_after_a_damaged_batch_is_checked_too(command: Command, partition: Path) -> None:
    content = bytearray(first(partition).read_bytes())
    content[70] ^= 1
    content[-1] ^= 1
    first(partition).write_bytes(content)
    _, result = verified(command, partition)
    assert [reason for _, reason in reasons(result)] == [
        "the CRC of the record batch is wrong",
        "the CRC of the record batch is wrong",
    ]
    assert result["segments"][0]["batches"] == 3


def test_offsets_and_epochs_rise_from_batch_to_batch(command: Command, partition: Path) -> None:
    first(partition).write_bytes(
        foreign_batch(100, 5) + foreign_batch(103, 5) + foreign_batch(108, 1, epoch=2)
    )
    _, result = verified(command, partition)
    assert [reason for _, reason in reasons(result)] == [
        "base offset 103 where 105 or more was expected",
        "leader epoch 2 after 3",
    ]


def test_segments_do_not_overlap(command: Command, partition: Path) -> None:
    (partition / "00000000000000000112.log").write_bytes(foreign_batch(112, 1))
    _, result = verified(command, partition)
    assert "begins below 115" in str(reasons(result))


def test_paths_that_hold_no_log_are_refused(command: Command, tmp_path: Path) -> None:
    (tmp_path / "x.txt").touch()
    assert "no log in it" in command("log", "verify", str(tmp_path)).usage
    assert "no such file" in command("log", "verify", str(tmp_path / "absent")).usage
    assert ".log" in command("log", "verify", str(tmp_path / "x.txt")).usage


def test_what_was_set_aside_as_damaged_is_not_checked_again(
    command: Command, partition: Path
) -> None:
    data_dir = partition.parent
    for name in ("metadata.damaged-1700000000000/__cluster_metadata-0", "__x-0.8f-damaged"):
        aside = data_dir / name
        aside.mkdir(parents=True)
        (aside / "00000000000000000000.log").write_bytes(b"damaged")
    topic = data_dir / "metadata.damaged-0"  # partition 0 of a topic with such a name
    topic.mkdir()
    (topic / "00000000000000000000.log").write_bytes(foreign_batch(0, 1))
    code, result = verified(command, data_dir)
    assert code == 0
    assert [Path(one["file"]).parent.name for one in result["segments"]] == [
        "metadata.damaged-0",
        "t-0",
        "t-0",
    ]
    assert command("log", "verify", str(data_dir / "metadata.damaged-1700000000000")).code == 1


# --- indexes -------------------------------------------------------------------------------------


def checked(command: Command, path: Path) -> tuple[int, list[str]]:
    outcome = command("log", "index-check", str(path), "--json")
    found = json.loads(outcome.out)
    assert found["sound"] == (outcome.code == 0)
    return outcome.code, [one["reason"] for index in found["indexes"] for one in index["problems"]]


@pytest.fixture
def positions(partition: Path) -> list[int]:
    """Where the three batches of the first segment begin."""
    one = len(foreign_batch(100, 2))
    return [0, one, one + len(foreign_batch(102, 5, codec=1))]


def test_entries_that_agree_are_sound_and_zeros_ahead_of_use_are_none(
    command: Command, partition: Path, positions: list[int]
) -> None:
    index = first(partition).with_suffix(".index")
    index.write_bytes(struct.pack(">IIII", 6, positions[1], 9, positions[2]) + bytes(80))
    first(partition).with_suffix(".timeindex").write_bytes(
        struct.pack(">qIqI", 1_001, 1, 1_004, 6) + bytes(120)
    )
    assert checked(command, partition) == (0, [])
    listed = json.loads(command("log", "index-check", str(partition), "--json").out)["indexes"]
    assert [one["entries"] for one in listed] == [2, 2, None, None]
    assert "4 entries" in command("log", "index-check", str(partition)).err


@pytest.mark.parametrize(
    ("offset", "batch", "reason"),
    [(6, 2, "ends with 109"), (8, 1, "ends with 106"), (5, 1, "ends with 106")],
)
def test_an_offset_entry_names_the_last_offset_of_the_batch_at_its_position(
    command: Command, partition: Path, positions: list[int], offset: int, batch: int, reason: str
) -> None:
    index = first(partition).with_suffix(".index")
    index.write_bytes(struct.pack(">II", offset, positions[batch]))
    code, (found,) = checked(command, partition)
    assert code == 1
    assert reason in found


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ((1_004, 1), "but the batch with offset 101 has 1001"),
        ((1_000, 1), "there is 1001"),
        ((1_004, 50), "no batch of the log has offset 150"),
    ],
)
def test_a_time_entry_names_the_latest_timestamp_up_to_its_batch(
    command: Command, partition: Path, entry: tuple[int, int], reason: str
) -> None:
    first(partition).with_suffix(".timeindex").write_bytes(struct.pack(">qI", *entry))
    code, (found,) = checked(command, partition)
    assert code == 1
    assert reason in found


def test_an_index_cannot_point_between_batches_or_behind_the_log_and_its_entries_rise(
    command: Command, partition: Path, positions: list[int]
) -> None:
    index = first(partition).with_suffix(".index")
    index.write_bytes(struct.pack(">IIII", 6, positions[1] + 1, 9, 99_999))
    assert ["no batch begins" in reason for reason in checked(command, partition)[1]] == [True] * 2
    index.write_bytes(struct.pack(">IIII", 9, positions[2], 6, positions[1]))
    assert "after" in checked(command, partition)[1][0]
    index.write_bytes(struct.pack(">II", 6, positions[1]) + b"\x00")
    assert checked(command, partition)[1] == ["an incomplete entry"]
    assert "rebuilds it" in command("log", "index-check", str(partition)).err


def test_the_directory_of_a_broker_is_sound_with_every_codec(
    command: Command, tmp_path: Path
) -> None:
    with bradbury.local(data_dir=str(tmp_path / "data")) as cluster:
        with cluster.admin() as admin:
            admin.create_topic(
                "t", configs={"index.interval.bytes": "100", "segment.bytes": "9000"}
            )
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            with bradbury.Producer(cluster.bootstrap_servers, compression_type=codec) as producer:
                for number in range(20):
                    producer.send_batch("t", [f"value {number}" * 10] * 5).result()
    code, result = verified(command, tmp_path / "data")
    assert (code, reasons(result)) == (0, [])
    records = {Path(one["file"]).parent.name: 0 for one in result["segments"]}
    for one in result["segments"]:
        records[Path(one["file"]).parent.name] += one["records"]
    assert records["t-0"] == 500
    outcome = command("log", "index-check", str(tmp_path / "data"), "--json")
    entries = [one["entries"] for one in json.loads(outcome.out)["indexes"]]
    assert outcome.code == 0, outcome.out
    assert sum(count or 0 for count in entries) > 50


def test_one_record_too_many_behind_a_sound_chunk_is_found(
    command: Command, partition: Path
) -> None:
    # The fast way checks thousands of batches at once; the doubt must still name the one.
    batches = [foreign_batch(115 + number, 1) for number in range(200)]
    batches[137] = rewritten(batches[137], ">q", 35, 9_999)
    (partition / "00000000000000000115.log").write_bytes(b"".join(batches))
    _, result = verified(command, partition)
    assert reasons(result) == [
        (137 * len(batches[0]), "latest timestamp 1000, but the header says 9999")
    ]


def test_records_written_by_our_own_encoder_are_sound(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(encode_records([(-1, None, None, ()), (5, b"", b"", [("", None)])]))
    code, result = verified(command, path)
    assert (code, reasons(result)) == (0, [])
