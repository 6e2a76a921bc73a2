"""What does a leader write when its topic keeps another codec, or its rules are about records?"""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from kafka.record import MemoryRecords

from bradbury.protocol.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
)
from bradbury.protocol.records.compression import CompressionType, compress
from bradbury.protocol.records.legacy_messages import encode_message
from bradbury.protocol.records.record_batch import build_batch, check_batch, read_header
from bradbury.protocol.records.records import encode_record, encode_records, iterate_records
from bradbury.storage.log.batch_conversion import (
    convert_batch,
    convert_message_set,
    target_codec,
)
from bradbury.storage.log.batch_validation import (
    MOST_RECORD_ERRORS,
    opens_records,
    validate_records,
)
from bradbury.storage.log_config import LogConfig
from bradbury.tests.support.storage.batches import make_batch
from bradbury.tests.support.storage.logs import open_log

NOW = 1_700_000_000_000
CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
COMPACT = LogConfig(cleanup_policy="compact")


def batch(*records, codec: int = 0, **options) -> bytearray:
    """A batch of (timestamp, key, value)."""
    return encode_records([(*record, ()) for record in records], codec=codec, **options)


def contents(data: bytes):
    return [(r.offset, r.timestamp, r.key, r.value) for r in iterate_records(data)]


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("codec", list(CompressionType))
def test_a_batch_comes_out_in_the_topics_codec_with_the_same_records(
    name: str, codec: CompressionType
) -> None:
    config = LogConfig(compression_type=name)
    sent = batch(
        (NOW, b"a", b"x" * 50),
        (NOW - 7, None, None),
        (NOW + 9, b"", b"y"),
        codec=codec,
        producer_id=7,
        producer_epoch=3,
        base_sequence=11,
    )
    expected = contents(sent)
    stored = convert_batch(bytearray(sent), config, NOW)
    header = check_batch(stored)
    assert header.codec == CODECS[name] == target_codec(codec, config)
    assert contents(stored) == expected
    assert header[7:] == read_header(sent)[7:]  # timestamps, producer, sequence, count
    if name not in ("lz4", "zstd"):  # kafka-python wants further packages for those
        assert len(list(MemoryRecords(bytes(stored)).next_batch())) == 3


def test_the_levels_of_the_topic_are_used() -> None:
    text = bytes(str([i * i % 997 for i in range(20_000)]), "ascii")
    for codec, low, high in (("gzip", 1, 9), ("lz4", 9, 17), ("zstd", 1, 19)):
        sizes = [
            len(
                convert_batch(
                    batch((NOW, None, text)),
                    LogConfig(compression_type=codec, **{f"compression_{codec}_level": level}),
                    NOW,
                )
            )
            for level in (low, high)
        ]
        assert sizes[1] < sizes[0]


def test_the_producers_own_codec_is_kept_byte_for_byte() -> None:
    sent = batch((NOW, b"k", b"v"), codec=CompressionType.ZSTD)
    assert convert_batch(bytearray(sent), LogConfig(), NOW) == sent
    config = LogConfig(compression_type="zstd")
    assert convert_batch(bytearray(sent), config, NOW) == sent


def test_a_newest_timestamp_that_is_not_true_is_put_right() -> None:
    records = encode_record(0, 0, b"k", b"v") + encode_record(5, 1, b"k", b"v")
    lying = build_batch(records, record_count=2, base_timestamp=NOW, max_timestamp=NOW - 99)
    assert check_batch(convert_batch(lying, COMPACT, NOW)).max_timestamp == NOW + 5


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_what_was_converted_can_be_appended(tmp_path: Path, timestamp_type: str) -> None:
    config = LogConfig(compression_type="gzip", message_timestamp_type=timestamp_type)
    log = open_log(tmp_path, config=config)
    stored = convert_batch(batch((NOW, b"a", b"b"), (NOW + 3, b"c", b"d")), config, NOW + 50)
    result = log.append_as_leader(stored, leader_epoch=0, now_ms=NOW + 60, opened=True)
    stamped = timestamp_type == "LogAppendTime"
    assert result.log_append_time_ms == (NOW + 60 if stamped else -1)
    piece = log.read(0, max_bytes=1 << 20, up_to=2, min_one_batch=True)
    times = [r.timestamp for r in iterate_records(piece.file.read_at(piece.size, piece.position))]
    assert times == ([NOW + 60, NOW + 60] if stamped else [NOW, NOW + 3])


def test_a_message_set_is_appended_as_a_batch_in_the_topics_codec(tmp_path: Path) -> None:
    inner = b"".join(encode_message(n, 1, NOW + n, b"k", b"v" * 99) for n in range(20))
    wrapper = encode_message(19, 1, NOW + 19, None, compress(1, inner), 1)
    for name, codec in (("producer", 1), ("uncompressed", 0), ("zstd", 4)):
        config = LogConfig(compression_type=name)
        stored = convert_message_set(wrapper, config, NOW)
        assert check_batch(stored).codec == codec
        assert [r.timestamp for r in iterate_records(stored)] == [NOW + n for n in range(20)]
        log = open_log(tmp_path / name, config=config)
        assert log.append_as_leader(stored, leader_epoch=0, now_ms=NOW).last_offset == 19


# --- rules about single records ------------------------------------------------------------------


def test_only_topics_with_such_rules_are_opened() -> None:
    assert not opens_records(LogConfig())
    assert opens_records(COMPACT)
    assert opens_records(LogConfig(cleanup_policy="compact,delete"))
    assert opens_records(LogConfig(message_timestamp_before_max_ms=10))


@pytest.mark.parametrize("codec", [0, 1])
def test_a_compacted_topic_names_the_records_without_a_key(tmp_path: Path, codec: int) -> None:
    sent = batch((NOW, b"a", b""), (NOW, None, b""), (NOW, b"", b""), (NOW, None, b""), codec=codec)
    log = open_log(tmp_path, config=COMPACT)
    with pytest.raises(InvalidRecord) as caught:
        log.append_as_leader(bytearray(sent), leader_epoch=0, now_ms=NOW)
    assert [index for index, _ in caught.value.record_errors] == [1, 3]
    assert "needs a key" in caught.value.record_errors[0][1]
    assert log.log_end_offset == 0


def test_records_that_are_too_old_or_too_new_are_named() -> None:
    config = LogConfig(message_timestamp_before_max_ms=100, message_timestamp_after_max_ms=50)
    sent = batch((NOW - 101, b"", b""), (NOW - 100, b"", b""), (NOW + 50, b"", b""), (-1, b"", b""))
    with pytest.raises(InvalidTimestamp) as caught:
        validate_records(sent, read_header(sent), config, NOW)
    assert [index for index, _ in caught.value.record_errors] == [0]
    late = batch((NOW, b"", b""), (NOW + 51, b"", b""))
    with pytest.raises(InvalidTimestamp) as caught:
        convert_batch(late, LogConfig(message_timestamp_after_max_ms=50), NOW)
    assert [index for index, _ in caught.value.record_errors] == [1]


def test_the_list_of_blamed_records_ends_somewhere() -> None:
    sent = batch(*[(NOW, None, b"")] * 5000)
    with pytest.raises(InvalidRecord) as caught:
        validate_records(sent, read_header(sent), COMPACT, NOW)
    assert len(caught.value.record_errors) == MOST_RECORD_ERRORS


def nonsense(records: bytes, count: int, codec: int = 0) -> bytearray:
    return build_batch(
        compress(codec, records),
        record_count=count,
        base_timestamp=NOW,
        max_timestamp=NOW,
        attributes=codec,
    )


@pytest.mark.parametrize(
    "sent",
    [
        nonsense(b"\xff" * 40, 2),
        nonsense(encode_record(0, 0, b"k", b"v"), 2),
        nonsense(encode_record(0, 0, b"k", b"v") * 2, 2),
        nonsense(encode_record(0, 1, b"k", b"v"), 1),
        nonsense(encode_record(0, 0, b"k", b"v") + b"\0", 1),
        nonsense(b"\x02\x00", 1),
        nonsense(b"\x0e\x00\x00\x00\x02k\x7f\x00", 1),
        nonsense(b"\x10\x00\x00\x00\x02k\x00\x02\x04", 1),
        nonsense(encode_record(0, 0, b"k", b"v", [("h", b"x")])[:-1] + b"", 1),
    ],
    ids=range(9),
)
def test_records_that_are_not_what_the_header_says_are_refused(sent: bytearray) -> None:
    with pytest.raises((InvalidRecord, CorruptMessage)):
        convert_batch(sent, COMPACT, NOW)


@given(records=st.binary(max_size=80), count=st.integers(1, 4), codec=st.sampled_from([0, 1, 3]))
def test_whatever_is_in_a_batch_only_kafkas_errors_come_out(records, count, codec) -> None:
    sent = nonsense(records, count, codec)
    try:
        stored = convert_batch(sent, COMPACT, NOW)
    except KafkaError:
        return
    assert len(contents(stored)) == count  # what passes is readable


@given(
    st.lists(
        st.tuples(
            st.integers(NOW - 1000, NOW + 1000),
            st.binary(max_size=9),
            st.none() | st.binary(max_size=200),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3),
        ),
        min_size=1,
        max_size=10,
    )
)
def test_every_sound_batch_passes(records) -> None:
    sent = encode_records(records)
    assert validate_records(sent, read_header(sent), COMPACT, NOW) == max(r[0] for r in records)


def test_a_bomb_is_refused_before_it_is_inflated() -> None:
    config = LogConfig(compression_type="zstd", max_message_bytes=100_000)
    bomb = nonsense(bytes(64 * 1024**2), 1, codec=4)
    assert len(bomb) < 10_000
    with pytest.raises(InvalidRecord, match="more than"):
        convert_batch(bomb, config, NOW)


def test_a_batch_that_is_too_large_only_when_it_is_opened_is_refused(tmp_path: Path) -> None:
    config = LogConfig(compression_type="uncompressed", max_message_bytes=5_000)
    stored = convert_batch(make_batch(100, value=b"x" * 100, codec=1), config, NOW)
    with pytest.raises(MessageTooLarge):
        open_log(tmp_path, config=config).append_as_leader(stored, leader_epoch=0, now_ms=NOW)


def test_a_message_set_may_hold_more_than_the_topics_largest_batch_when_it_is_opened() -> None:
    """What arrives is small enough; Kafka opens it as well, and keeps it compressed."""
    inner = b"".join(encode_message(n, 1, NOW, b"k", b"v" * 9_000) for n in range(10))
    wrapper = encode_message(9, 1, NOW, None, compress(1, inner), 1)
    config = LogConfig(max_message_bytes=10_000)
    stored = convert_message_set(wrapper, config, NOW)
    assert len(stored) <= 10_000
    assert sum(len(r.value or b"") for r in iterate_records(stored)) == 90_000
