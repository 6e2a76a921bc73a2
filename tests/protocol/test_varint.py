"""What is a number of variable length, and what is not?"""

import io

import pytest
from hypothesis import example, given, strategies as st
from kafka.record.util import (
    decode_varint as kafka_python_decode,
    encode_varint as kafka_python_encode,
)
from kio.serial.writers import write_unsigned_varint

from bradbury.protocol.errors import CorruptMessage
from bradbury.protocol.varint import (
    decode_uvarint,
    decode_varint,
    decode_varlong,
    encode_uvarint,
    encode_varint,
)

uint32 = st.integers(0, 2**32 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)


@given(uint32, st.binary(max_size=4), st.binary(max_size=4))
@example(0, b"", b"")
@example(127, b"", b"")
@example(128, b"", b"")
def test_an_unsigned_number_is_kio_s_bytes_and_comes_back(
    value: int, before: bytes, after: bytes
) -> None:
    expected = io.BytesIO()
    write_unsigned_varint(expected, value)
    encoded = encode_uvarint(value)
    assert encoded == expected.getvalue()
    assert len(encoded) == ((value.bit_length() + 6) // 7 or 1)
    assert decode_uvarint(before + encoded + after, len(before)) == (
        value,
        len(before) + len(encoded),
    )


@given(int64)
@example(-(2**63))
@example(2**63 - 1)
def test_a_signed_number_is_kafka_python_s_bytes_and_comes_back(value: int) -> None:
    expected = bytearray()
    kafka_python_encode(value, expected.append)
    encoded = encode_varint(value)
    assert encoded == bytes(expected)
    assert decode_varlong(encoded, 0) == (value, len(encoded))
    assert kafka_python_decode(bytearray(encoded), 0) == (value, len(encoded))


@given(int32)
def test_a_short_number_is_read_as_a_short_one(value: int) -> None:
    encoded = encode_varint(value)
    assert decode_varint(encoded, 0) == (value, len(encoded))


@given(int64)
def test_every_strict_prefix_is_corrupt_not_a_smaller_number(value: int) -> None:
    encoded = encode_varint(value)
    for length in range(len(encoded)):
        with pytest.raises(CorruptMessage):
            decode_varlong(encoded[:length], 0)


@pytest.mark.parametrize(
    "encoded", [b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x00", b"\x80" * 20]
)
def test_more_than_32_bits_are_no_short_number(encoded: bytes) -> None:
    with pytest.raises(CorruptMessage):
        decode_uvarint(encoded, 0)


@pytest.mark.parametrize("encoded", [b"\xff" * 9 + b"\x02", b"\x80" * 10 + b"\x00"])
def test_more_than_64_bits_are_no_long_number(encoded: bytes) -> None:
    with pytest.raises(CorruptMessage):
        decode_varlong(encoded, 0)


def test_a_negative_number_has_no_unsigned_form() -> None:
    with pytest.raises(ValueError, match="-1"):
        encode_uvarint(-1)
