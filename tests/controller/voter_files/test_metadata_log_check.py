"""Which bytes of a metadata log are an undamaged batch, and which segments follow each other?"""

import struct
from pathlib import Path

import pytest
from crc32c import crc32c

from bradbury.controller.voter_files.metadata_log_check import check_metadata_log, sound_batch
from bradbury.protocol.records.record_batch import CRC_START, HEADER_SIZE
from bradbury.protocol.records.records import encode_records
from bradbury.storage.disk.file_system import OsFileSystem

LENGTH_AT = 8
CRC_AT = 17


def batch() -> bytearray:
    return bytearray(encode_records([(0, None, b"value", ())]))


def with_crc_up_to(data: bytearray, end: int) -> bytes:
    """Its CRC is right, if it ends there."""
    struct.pack_into(">I", data, CRC_AT, crc32c(bytes(data[CRC_START:end])))
    return bytes(data)


def test_a_whole_batch_is_one() -> None:
    data = with_crc_up_to(batch(), len(batch()))
    header, reason = sound_batch(b"before" + data, len(b"before"))
    assert header is not None
    assert header.size == len(data)
    assert not reason


@pytest.mark.parametrize("size", [-3, 0, 12, CRC_START, HEADER_SIZE - 1])
def test_a_batch_that_ends_in_its_header_is_none_though_its_crc_is_right(size: int) -> None:
    """Of zero bytes the CRC is 0: a region of zeros behind magic 2 would be batches of no size."""
    data = batch()
    struct.pack_into(">i", data, LENGTH_AT, size - 12)
    header, reason = sound_batch(with_crc_up_to(data, max(size, 0)), 0)
    assert header is None
    assert reason == f"batch length {size - 12}"


@pytest.mark.parametrize(("second", "is_out_of_order"), [(1, False), (5, True)])
def test_a_segment_that_begins_where_another_was_expected_is_out_of_order(
    tmp_path: Path, second: int, *, is_out_of_order: bool
) -> None:
    """Opening the log would take it for the end of an unclean stop, and go on at offset 6."""
    for offset in (0, second):
        data = encode_records([(0, None, b"value", ())], base_offset=offset, leader_epoch=1)
        (tmp_path / f"{offset:020d}.log").write_bytes(data)
    check = check_metadata_log(OsFileSystem(), str(tmp_path))
    assert check.is_out_of_order is is_out_of_order
    assert [flaw.reason for flaw in check.flaws] == (
        [f"the segment begins at offset {second}"] if is_out_of_order else []
    )
    runs = [(run.base_offset, run.next_offset) for run in check.runs]
    assert runs == [(0, 1), (second, second + 1)]
