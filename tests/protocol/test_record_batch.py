"""Is a batch what its header says? The CRC is checked against crcmod, another implementation."""

import crcmod.predefined
import pytest
from hypothesis import given, strategies as st

from bradbury.protocol.errors import CorruptMessage, InvalidRecord
from bradbury.protocol.records.record_batch import (
    CRC_START,
    HEADER_SIZE,
    build_batch,
    check_batch,
    compute_crc,
    read_header,
    stamp,
    stamp_max_timestamp,
    walk_batches,
)

castagnoli = crcmod.predefined.mkCrcFun("crc-32c")


def batch(records: bytes = b"records", **options) -> bytearray:
    fields = {"record_count": 2, "base_timestamp": 10, "max_timestamp": 20}
    return build_batch(records, **(fields | options))


@given(records=st.binary(max_size=500))
def test_the_crc_is_castagnolis_over_everything_from_the_attributes_on(records: bytes) -> None:
    whole = batch(records)
    assert compute_crc(whole) == castagnoli(bytes(whole[CRC_START:]))
    assert check_batch(whole).crc == castagnoli(bytes(whole[CRC_START:]))


def test_offset_and_epoch_are_stamped_without_touching_the_crc() -> None:
    whole = batch()
    stamp(whole, base_offset=2**40, leader_epoch=7)
    header = check_batch(whole)
    assert (header.base_offset, header.leader_epoch) == (2**40, 7)
    assert (header.last_offset, header.next_offset) == (2**40 + 1, 2**40 + 2)


def test_a_log_append_time_is_under_a_new_crc() -> None:
    whole = batch()
    stamp_max_timestamp(whole, 99, log_append_time=True)
    header = check_batch(whole)
    assert (header.max_timestamp, header.base_timestamp) == (99, 10)
    assert header.is_log_append_time
    stamp_max_timestamp(whole, 98, log_append_time=False)
    assert not check_batch(whole).is_log_append_time


def test_sequences_wrap_at_two_to_the_thirty_first() -> None:
    header = read_header(batch(base_sequence=2**31 - 1, producer_id=5, producer_epoch=0))
    assert header.last_sequence == 0
    assert read_header(batch()).last_sequence == -1


@given(data=st.data())
def test_every_flipped_bit_under_the_crc_is_noticed(data: st.DataObject) -> None:
    whole = batch()
    position = data.draw(st.integers(8, len(whole) - 1))
    if 12 <= position < 16:
        return  # the leader epoch is the broker's to change
    whole[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises((CorruptMessage, InvalidRecord)):
        check_batch(whole)


def test_a_cut_batch_is_corrupt_at_every_length() -> None:
    whole = bytes(batch())
    for length in range(len(whole)):
        with pytest.raises(CorruptMessage):
            check_batch(whole[:length])
    assert len(whole) > HEADER_SIZE


def test_a_walk_gives_whole_batches_and_ends_at_what_is_none() -> None:
    one, two = bytes(batch()), bytes(batch(producer_id=5, producer_epoch=0, base_sequence=1))
    whole = one + two
    assert [position for position, _ in walk_batches(whole)] == [0, len(one)]
    assert [header for _, header in walk_batches(whole)] == [read_header(one), read_header(two)]
    assert [position for position, _ in walk_batches(whole, len(one))] == [len(one)]
    for cut in range(len(whole)):
        found = list(walk_batches(whole[:cut], strict=True))
        assert len(found) == (cut >= len(one)), "one that is cut off is not given, and no error"


@pytest.mark.parametrize("length", [-(2**31), -12, 0, 48])
def test_a_walk_ends_or_raises_at_a_length_that_cannot_be(length: int) -> None:
    one = bytes(batch())
    damaged = one + one[:8] + length.to_bytes(4, "big", signed=True) + one[12:]
    assert len(list(walk_batches(damaged))) == 1
    walk = walk_batches(damaged, strict=True)
    assert next(walk)[0] == 0
    with pytest.raises(CorruptMessage):
        next(walk)


def test_a_strict_walk_refuses_another_magic() -> None:
    one = bytearray(batch())
    one[16] = 1
    assert len(list(walk_batches(one))) == 1
    with pytest.raises(InvalidRecord):
        next(walk_batches(one, strict=True))
