"""Are the records of __consumer_offsets Kafka's? Bytes written out by hand from Kafka's schemas."""

import struct

import pytest
from hypothesis import given, strategies as st

from bradbury.groups.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    OffsetRecord,
    decode_group_record,
    encode_group_record,
)
from bradbury.protocol.errors import CorruptMessage

KEY = OffsetCommitKey("g", "flights", 3)
KEY_BYTES = bytes.fromhex("00010001670007666c696768747300000003")
GROUP_KEY = GroupMetadataKey("group-1")
GROUP_KEY_BYTES = bytes.fromhex("0002000767726f75702d31")


def test_an_offset_as_kafka_4_writes_it() -> None:
    value = OffsetCommitValue(258, 5, "m", 1_700_000_000_000)
    assert encode_group_record(OffsetRecord(KEY, value)) == (
        KEY_BYTES,
        bytes.fromhex("000300000000000001020000000500016d0000018bcfe56800"),
    )


def test_an_offset_with_an_expiry_of_its_own_is_version_1() -> None:
    value = OffsetCommitValue(258, -1, "", 1_700_000_000_000, 1_700_000_000_001)
    assert encode_group_record(OffsetRecord(KEY, value))[1] == bytes.fromhex(
        "0001000000000000010200000000018bcfe568000000018bcfe56801"
    )


def test_a_tombstone_has_the_key_and_no_value() -> None:
    assert encode_group_record(OffsetRecord(KEY, None)) == (KEY_BYTES, None)
    assert encode_group_record(GroupRecord(GROUP_KEY, None)) == (GROUP_KEY_BYTES, None)
    assert decode_group_record(KEY_BYTES, None) == OffsetRecord(KEY, None)
    assert decode_group_record(GROUP_KEY_BYTES, None) == GroupRecord(GROUP_KEY, None)


MEMBER = MemberMetadata("m-1", None, "c", "/127.0.0.1", 60_000, 10_000, b"\x00\x01", b"\x02")
GROUP = GroupMetadataValue("consumer", 7, "range", "m-1", 1_700_000_000_000, [MEMBER])
GROUP_BYTES = b"".join(
    (
        b"\x00\x03",
        b"\x00\x08consumer",
        b"\x00\x00\x00\x07",
        b"\x00\x05range",
        b"\x00\x03m-1",
        b"\x00\x00\x01\x8b\xcf\xe5\x68\x00",
        b"\x00\x00\x00\x01",
        b"\x00\x03m-1",
        b"\xff\xff",
        b"\x00\x01c",
        b"\x00\x0a/127.0.0.1",
        b"\x00\x00\xea\x60",
        b"\x00\x00\x27\x10",
        b"\x00\x00\x00\x02\x00\x01",
        b"\x00\x00\x00\x01\x02",
    )
)


def test_a_group_as_kafka_4_writes_it() -> None:
    assert encode_group_record(GroupRecord(GROUP_KEY, GROUP)) == (GROUP_KEY_BYTES, GROUP_BYTES)
    assert decode_group_record(GROUP_KEY_BYTES, GROUP_BYTES) == GroupRecord(GROUP_KEY, GROUP)


def test_an_empty_group_has_no_protocol_and_no_leader() -> None:
    value = GroupMetadataValue("consumer", 8, None, None, -1, [])
    assert encode_group_record(GroupRecord(GROUP_KEY, value))[1] == (
        b"\x00\x03\x00\x08consumer\x00\x00\x00\x08\xff\xff\xff\xff" + b"\xff" * 8 + b"\x00" * 4
    )


OLD_OFFSETS = {
    0: struct.pack(">hqh1sq", 0, 9, 1, b"m", 55),
    1: struct.pack(">hqh1sqq", 1, 9, 1, b"m", 55, 66),
    2: struct.pack(">hqh1sq", 2, 9, 1, b"m", 55),
    3: struct.pack(">hqih1sq", 3, 9, 4, 1, b"m", 55),
    4: struct.pack(">hqiB1sqB", 4, 9, 4, 2, b"m", 55, 0),
}


@pytest.mark.parametrize("version", OLD_OFFSETS)
def test_offsets_of_every_version_are_read(version: int) -> None:
    expected = OffsetCommitValue(9, 4 if version >= 3 else -1, "m", 55, 66 if version == 1 else -1)
    assert decode_group_record(KEY_BYTES, OLD_OFFSETS[version]) == OffsetRecord(KEY, expected)


def test_offset_keys_of_type_0_are_read() -> None:
    found = decode_group_record(b"\x00\x00" + KEY_BYTES[2:], OLD_OFFSETS[0])
    assert found is not None
    assert found.key == KEY


def test_groups_of_version_0_lack_what_came_later() -> None:
    old = (
        b"\x00\x00\x00\x08consumer\x00\x00\x00\x07\x00\x05range\x00\x03m-1\x00\x00\x00\x01"
        b"\x00\x03m-1\x00\x01c\x00\x0a/127.0.0.1\x00\x00\x27\x10"
        b"\x00\x00\x00\x02\x00\x01\x00\x00\x00\x01\x02"
    )
    found = decode_group_record(GROUP_KEY_BYTES, old)
    assert isinstance(found, GroupRecord)
    assert found.value is not None
    assert found.value.current_state_timestamp == -1
    assert found.value.members[0].rebalance_timeout == -1
    assert found.value.members[0].session_timeout == 10_000


def test_newer_kinds_of_records_are_skipped() -> None:
    for key_type in (3, 8, 15):
        assert decode_group_record(struct.pack(">h", key_type) + b"whatever", b"") is None


@pytest.mark.parametrize("key", [None, b"", b"\x00", KEY_BYTES[:-1], GROUP_KEY_BYTES[:5]])
def test_a_key_that_is_none_is_corrupt(key: bytes | None) -> None:
    with pytest.raises(CorruptMessage):
        decode_group_record(key, None)


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x05", b"\xff\xff", GROUP_BYTES[:-1]])
def test_a_value_that_is_none_is_corrupt(value: bytes) -> None:
    with pytest.raises(CorruptMessage):
        decode_group_record(GROUP_KEY_BYTES, value)


text = st.text(max_size=20)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)


@given(
    key=st.builds(OffsetCommitKey, text, text, int32),
    value=st.none() | st.builds(OffsetCommitValue, int64, int32, text, int64),
)
def test_offsets_round_trip(key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
    record = OffsetRecord(key, value)
    assert decode_group_record(*encode_group_record(record)) == record


members = st.builds(
    MemberMetadata,
    text,
    st.none() | text,
    text,
    text,
    int32,
    int32,
    st.binary(max_size=50),
    st.binary(max_size=50),
)


@given(
    key=st.builds(GroupMetadataKey, text),
    value=st.builds(
        GroupMetadataValue,
        text,
        int32,
        st.none() | text,
        st.none() | text,
        int64,
        st.lists(members, max_size=3),
    ),
)
def test_groups_round_trip(key: GroupMetadataKey, value: GroupMetadataValue) -> None:
    record = GroupRecord(key, value)
    assert decode_group_record(*encode_group_record(record)) == record


@given(key=st.binary(max_size=40), value=st.none() | st.binary(max_size=40))
def test_garbage_is_read_or_corrupt_and_nothing_else(key: bytes, value: bytes | None) -> None:
    try:
        decode_group_record(key, value)
    except CorruptMessage:
        pass
