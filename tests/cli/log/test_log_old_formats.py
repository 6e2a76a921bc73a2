"""bradbury log on segments from before Kafka 0.11: messages of magic 0 and 1, plain and compressed.

Written by kafka-python's and aiokafka's builders and stamped as a broker of then did, or by hand
from the description of the format; read a second time by kafka-python or aiokafka.
"""

import gzip
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import cramjam
import pytest
from aiokafka.record.legacy_records import _LegacyRecordBatchBuilderPy as AiokafkaBuilder
from aiokafka.record.memory_records import _MemoryRecordsPy
from hypothesis import given, strategies as st
from kafka.errors import UnsupportedCodecError
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from bradbury.cli.log.log_verify import check_log
from bradbury.protocol.records.compression import CompressionType
from bradbury.protocol.records.lz4_header import with_old_checksum
from bradbury.tests.support.command_line import Command

NOW = 1_420_000_000_000
GZIP, SNAPPY, LZ4 = CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4
LOG_APPEND_TIME = 8


def by_hand(
    offset: int,
    magic: int,
    value: bytes | None,
    *,
    key: bytes | None = None,
    timestamp: int = NOW,
    attributes: int = 0,
) -> bytes:
    """offset i64, size i32, crc u32, magic i8, attributes i8, (timestamp i64), key, value."""
    body = struct.pack(">bb", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp)
    for field in (key, value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    crc = zlib.crc32(body) & 0xFFFFFFFF
    return struct.pack(">qiI", offset, 4 + len(body), crc) + body


def stamped(message: bytes, offset: int, timestamp: int) -> bytes:
    """What a broker writes into a producer's message: the offset, and the latest timestamp."""
    body = bytearray(message[16:])
    if body[0] == 1:
        struct.pack_into(">q", body, 2, timestamp)
    return struct.pack(">q", offset) + message[8:12] + struct.pack(">I", zlib.crc32(body)) + body


def wrapper(magic: int, codec: int, base_offset: int, count: int) -> bytes:
    """A compressed set of `count` messages from `base_offset` on, as it lies in a log."""
    builder = AiokafkaBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for number in range(count):
        # Magic 1: relative offsets; magic 0: the broker has written the absolute ones.
        offset = number if magic else base_offset + number
        timestamp = NOW + base_offset + number if magic else None
        builder.append(offset, timestamp=timestamp, key=b"k%d" % number, value=b"value " * 20)
    return stamped(bytes(builder.build()), base_offset + count - 1, NOW + base_offset + count - 1)


def old_lz4_wrapper(base_offset: int, count: int) -> bytes:
    """Magic 0 has lz4 frames with a checksum that was computed over too much."""
    inner = b"".join(by_hand(base_offset + n, 0, b"v%d" % n) for n in range(count))
    compressor = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
    compressor.compress(inner)
    frame = bytes(with_old_checksum(bytes(compressor.finish())))
    return by_hand(base_offset + count - 1, 0, frame, attributes=LZ4)


def young_batch(base_offset: int, count: int) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for number in range(count):
        builder.append(number, NOW + number, b"k", b"young", [])
    batch = bytearray(builder.build())
    struct.pack_into(">q", batch, 0, base_offset)
    struct.pack_into(">i", batch, 12, 0)
    return bytes(batch)


def segment(folder: Path, content: bytes, base_offset: int = 100) -> Path:
    path = folder / f"{base_offset:020}.log"
    path.write_bytes(content)
    return path


def dumped(command: Command, path: Path) -> list[dict]:
    outcome = command("log", "dump", str(path), "--records", "--json")
    assert outcome.code == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()]


def verified(command: Command, path: Path) -> tuple[int, dict]:
    outcome = command("log", "verify", str(path), "--json")
    return outcome.code, json.loads(outcome.out)


def read_by_others(content: bytes) -> list[tuple[int, int | None, bytes | None]]:
    """As kafka-python reads it, or, since that has no lz4 here, aiokafka."""
    try:
        return _all_of(MemoryRecords(content))
    except UnsupportedCodecError:
        return _all_of(_MemoryRecordsPy(content))


def _all_of(reader: Any) -> list[tuple[int, int | None, bytes | None]]:
    found = []
    while reader.has_next():
        found += [(one.offset, one.timestamp, one.value) for one in reader.next_batch()]
    return found


PLAIN = {
    "magic 0": b"".join(by_hand(100 + n, 0, b"v%d" % n, key=b"k") for n in range(3)),
    "magic 1": b"".join(by_hand(100 + n, 1, b"v%d" % n, timestamp=NOW + n) for n in range(3)),
    "a null and an empty value": by_hand(100, 1, None, key=b"k") + by_hand(101, 1, b""),
    "gaps after compaction": by_hand(103, 1, b"a") + by_hand(117, 1, b"b"),
}
COMPRESSED = {
    f"magic {magic}, {codec.name.lower()}": wrapper(magic, codec, 100, 3)
    + wrapper(magic, codec, 103, 5)
    for magic in (0, 1)
    for codec in (GZIP, SNAPPY, LZ4)
    if (magic, codec) != (0, LZ4)
}


@pytest.mark.parametrize(
    "content", [*PLAIN.values(), *COMPRESSED.values()], ids=[*PLAIN, *COMPRESSED]
)
def test_they_are_sound_and_dumped_as_others_read_them(
    command: Command, tmp_path: Path, content: bytes
) -> None:
    path = segment(tmp_path, content)
    code, found = verified(command, path)
    assert (code, [one["problems"] for one in found["segments"]]) == (0, [[]])
    expected = read_by_others(content)
    records = [record for batch in dumped(command, path) for record in batch["records"]]
    assert [
        (
            one["offset"],
            one["timestamp"],
            None if one["value"] is None else one["value"].encode(),
        )
        for one in records
    ] == [(offset, -1 if time is None else time, value) for offset, time, value in expected]
    summary = found["segments"][0]
    assert (summary["first_offset"], summary["end_offset"], summary["records"]) == (
        expected[0][0],
        expected[-1][0] + 1,
        len(expected),
    )


@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY])
@pytest.mark.parametrize("magic", [0, 1])
def test_what_kafka_pythons_producer_of_then_sends_is_read(
    command: Command, tmp_path: Path, magic: int, codec: int
) -> None:
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for number in range(50):
        builder.append(number, NOW + number, b"k%d" % number, b"value " * 10)
    path = segment(tmp_path, bytes(builder.build()), 0)
    assert verified(command, path)[0] == 0
    records = [record for batch in dumped(command, path) for record in batch["records"]]
    assert [(one["offset"], one["key"]) for one in records] == [(n, f"k{n}") for n in range(50)]


def test_lz4_of_magic_0_has_the_checksum_of_then(command: Command, tmp_path: Path) -> None:
    path = segment(tmp_path, old_lz4_wrapper(100, 4))
    assert verified(command, path)[0] == 0
    (batch,) = dumped(command, path)
    assert [(one["offset"], one["value"]) for one in batch["records"]] == [
        (100 + n, f"v{n}") for n in range(4)
    ]


def test_a_batch_of_them_is_shown_with_the_fields_that_it_has(
    command: Command, tmp_path: Path
) -> None:
    path = segment(tmp_path, by_hand(100, 0, b"a") + wrapper(1, GZIP, 101, 4) + young_batch(105, 2))
    first, second, third = dumped(command, path)
    assert [one["magic"] for one in (first, second, third)] == [0, 1, 2]
    assert (first["timestamp_type"], second["timestamp_type"]) == ("NoTimestampType", "CreateTime")
    assert (first["base_offset"], first["last_offset"], first["record_count"]) == (100, 100, 1)
    assert (second["base_offset"], second["last_offset"], second["record_count"]) == (101, 104, 4)
    assert (second["codec"], second["base_timestamp"]) == ("gzip", NOW + 101)
    assert second["max_timestamp"] == NOW + 104
    assert (first["leader_epoch"], first["producer_id"], first["base_sequence"]) == (-1, -1, -1)
    assert second["position"] == first["size"] == 12 + 4 + 1 + 1 + 4 + 4 + 1
    shown = command("log", "dump", str(path))
    assert "offsets 101-104  records 4" in shown.out
    assert "magic 1  codec gzip" in shown.out
    assert "3 batches, 7 records" in shown.err
    assert "epoch 0  codec none" in shown.out.splitlines()[-1]


def test_compaction_leaves_gaps_inside_of_a_wrapper(command: Command, tmp_path: Path) -> None:
    """Relative offsets 0, 3 and 7 of a wrapper at 127: the last one is the wrapper's."""
    inner = b"".join(by_hand(n, 1, b"v%d" % n, timestamp=NOW + n) for n in (0, 3, 7))
    packed = by_hand(127, 1, gzip.compress(inner), timestamp=NOW + 7, attributes=GZIP)
    path = segment(tmp_path, packed)
    assert verified(command, path)[0] == 0
    (batch,) = dumped(command, path)
    assert [one["offset"] for one in batch["records"]] == [120, 123, 127]
    assert [row[0] for row in read_by_others(packed)] == [120, 123, 127]


def test_with_log_append_time_the_wrappers_timestamp_is_that_of_all(
    command: Command, tmp_path: Path
) -> None:
    inner = b"".join(by_hand(n, 1, b"v", timestamp=5 + n) for n in range(3))
    attributes = GZIP | LOG_APPEND_TIME
    packed = by_hand(102, 1, gzip.compress(inner), timestamp=NOW, attributes=attributes)
    path = segment(tmp_path, packed)
    assert verified(command, path)[0] == 0
    (batch,) = dumped(command, path)
    assert batch["timestamp_type"] == "LogAppendTime"
    assert [one["timestamp"] for one in batch["records"]] == [NOW] * 3


def test_a_log_may_have_all_formats_one_after_the_other(command: Command, tmp_path: Path) -> None:
    """As brokers were upgraded, and once a topic went back to an older format."""
    segment(tmp_path, by_hand(100, 0, b"a") + wrapper(0, GZIP, 101, 9))
    segment(tmp_path, wrapper(1, SNAPPY, 110, 5) + young_batch(115, 5) + by_hand(120, 1, b"x"), 110)
    segment(tmp_path, young_batch(121, 3), 121)
    code, found = verified(command, tmp_path)
    assert (code, [one["problems"] for one in found["segments"]]) == (0, [[], [], []])
    assert [one["records"] for one in found["segments"]] == [10, 11, 3]


def changed(content: bytes, position: int) -> bytes:
    copy = bytearray(content)
    copy[position] ^= 1
    return bytes(copy)


INNER_BACK = gzip.compress(by_hand(5, 1, b"a") + by_hand(3, 1, b"b") + by_hand(7, 1, b"c"))
DAMAGE = {
    "a bit of a plain one": (changed(by_hand(100, 1, b"v"), -1), "CRC of a message is wrong"),
    "a bit of a wrapper": (changed(wrapper(1, GZIP, 100, 3), -3), "CRC of a message is wrong"),
    "torn": (by_hand(100, 0, b"value")[:-2], "last 2 bytes are missing"),
    "a short tail": (by_hand(100, 1, b"v") + bytes(20), "20 bytes are less than a header"),
    "zeros": (by_hand(100, 1, b"v") + bytes(100), "a batch of 12 bytes"),
    "offsets that fall": (by_hand(101, 1, b"v") + by_hand(100, 1, b"v"), "where 102 or more"),
    "inner offsets that fall": (by_hand(107, 1, INNER_BACK, attributes=GZIP), "record 103 after"),
    "no such codec": (by_hand(100, 1, b"v", attributes=4), "cannot have codec 4"),
    "no gzip": (by_hand(100, 1, b"v", attributes=GZIP), "gzip"),
    "an empty wrapper": (by_hand(100, 1, gzip.compress(b""), attributes=GZIP), "without messages"),
    "a wrapper below its messages": (
        by_hand(100, 0, gzip.compress(by_hand(101, 0, b"v")), attributes=GZIP),
        "ends with a message of offset 101",
    ),
    "two formats in one wrapper": (
        by_hand(100, 1, gzip.compress(by_hand(0, 0, b"v")), attributes=GZIP),
        "a message of magic 0 within one of magic 1",
    ),
}


@pytest.mark.parametrize(("content", "reason"), DAMAGE.values(), ids=DAMAGE)
def test_damage_to_them_is_named_with_its_place(
    command: Command, tmp_path: Path, content: bytes, reason: str
) -> None:
    sound = by_hand(99, 1, b"sound")
    path = segment(tmp_path, sound + content, 99)
    code, found = verified(command, path)
    (problem,) = found["segments"][0]["problems"]
    assert code == 1
    assert problem["position"] >= len(sound)
    assert reason in problem["reason"]


def test_the_dump_ends_where_the_damage_is(command: Command, tmp_path: Path) -> None:
    sound = wrapper(1, GZIP, 100, 3)
    path = segment(tmp_path, sound + changed(by_hand(103, 1, b"v"), -1))
    outcome = command("log", "dump", str(path))
    assert outcome.code == 1
    assert f"damage at byte {len(sound)}: the CRC of a message is wrong" in outcome.err
    assert "offsets 100-102" in outcome.out


# --- indexes -------------------------------------------------------------------------------------


def checked(command: Command, path: Path) -> tuple[int, list[str]]:
    outcome = command("log", "index-check", str(path), "--json")
    found = json.loads(outcome.out)["indexes"]
    return outcome.code, [one["reason"] for index in found for one in index["problems"]]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Offsets 100-102 in a wrapper, 103, 104 and 105 alone, 106-110 in a wrapper."""
    alone = b"".join(by_hand(103 + n, 1, b"v", timestamp=NOW + 103 + n) for n in range(3))
    return segment(tmp_path, wrapper(1, GZIP, 100, 3) + alone + wrapper(1, GZIP, 106, 5))


@pytest.fixture
def places(log: Path) -> list[int]:
    """Where each entry of the log begins."""
    found, position, content = [], 0, log.read_bytes()
    while position < len(content):
        found.append(position)
        position += 12 + struct.unpack_from(">i", content, position + 8)[0]
    return found


@pytest.mark.parametrize(
    "offsets",
    [(100, 103, 106), (102, 105, 110)],
    ids=["the first of what was appended", "the last of it"],
)
def test_an_index_names_the_first_or_the_last_of_what_was_appended_at_once(
    command: Command, log: Path, places: list[int], offsets: tuple[int, ...]
) -> None:
    pairs = zip(offsets, (places[0], places[1], places[4]), strict=True)
    entries = b"".join(struct.pack(">II", offset - 100, place) for offset, place in pairs)
    log.with_suffix(".index").write_bytes(entries)
    times = struct.pack(">qIqI", NOW + 102, 2, NOW + 105, 5)
    log.with_suffix(".timeindex").write_bytes(times)
    assert checked(command, log) == (0, [])


@pytest.mark.parametrize(
    ("offset", "entry", "reason"),
    [(2, 1, "reaches further"), (11, 4, "the log ends with 110")],
)
def test_an_index_that_leads_past_messages_or_behind_the_log_is_wrong(
    command: Command, log: Path, places: list[int], offset: int, entry: int, reason: str
) -> None:
    log.with_suffix(".index").write_bytes(struct.pack(">II", offset, places[entry]))
    code, (found,) = checked(command, log)
    assert code == 1
    assert reason in found


@given(place=st.integers(0, 10**6), value=st.integers(0, 255), cut=st.integers(0, 40))
def test_whatever_is_changed_the_check_ends_with_a_verdict(
    tmp_path_factory: pytest.TempPathFactory, place: int, value: int, cut: int
) -> None:
    content = bytearray(
        by_hand(100, 0, b"a") + wrapper(1, GZIP, 101, 3) + wrapper(0, SNAPPY, 104, 2)
    )
    content[place % len(content)] = value
    path = segment(tmp_path_factory.mktemp("t-0"), bytes(content[: len(content) - cut]))
    (summary,) = check_log([path], lambda _: None)
    assert all(0 <= one.position <= len(content) for one in summary.problems)
