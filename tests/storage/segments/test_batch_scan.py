"""Which batches does a scan of a file after a crash take for whole?"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from bradbury.storage.disk.file_system import OsFileSystem
from bradbury.storage.segments.batch_scan import MAX_RELATIVE_OFFSET, BatchScan
from bradbury.tests.support.storage.batches import make_batch

BASE = 100


def at(offset: int) -> bytes:
    """A batch of one record with this base offset, which its CRC does not cover."""
    return struct.pack(">q", offset) + bytes(make_batch())[8:]


@pytest.mark.parametrize("beyond", [0, 1])
def test_the_last_offset_is_one_that_an_index_of_the_segment_can_hold(
    tmp_path: Path, beyond: int
) -> None:
    last = BASE + MAX_RELATIVE_OFFSET + beyond
    (tmp_path / "log").write_bytes(at(BASE) + at(last))
    file = OsFileSystem().open(str(tmp_path / "log"))
    scan = BatchScan(file, base_offset=BASE, leader_epoch=-1, allow_gaps=True)
    found = [header.base_offset for _, header in scan]
    file.close()
    if beyond:
        assert (found, scan.reason) == ([BASE], f"last offset {last} after {last}")
    else:
        assert (found, scan.reason) == ([BASE, last], None)
