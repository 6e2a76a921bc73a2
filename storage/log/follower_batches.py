"""Batches that a leader sent to a follower, checked before any of them is written."""

from __future__ import annotations

from ...protocol.errors import CorruptMessage
from ...protocol.records.end_transaction_marker import EndTransactionMarker, read_marker
from ...protocol.records.record_batch import (
    CONTROL_MASK,
    RecordBatchHeader,
    compute_crc,
    walk_batches,
)

Markers = dict[int, EndTransactionMarker | None]
"""End of transaction markers in control batches, by base offset."""


def split_batches(view: memoryview) -> tuple[list[RecordBatchHeader], Markers]:
    """The checked headers of the whole batches in `view`, and the markers in its control batches.

    Raises:
        CorruptMessage, InvalidRecord: a batch is not valid.
    """
    headers: list[RecordBatchHeader] = []
    markers: Markers = {}
    for position, header in walk_batches(view, strict=True):
        batch = view[position : position + header.size]
        if header.crc != compute_crc(batch):
            raise CorruptMessage(f"the CRC of the batch at offset {header.base_offset} is wrong")
        if header.attributes & CONTROL_MASK:
            markers[header.base_offset] = read_marker(batch)
        headers.append(header)
    return headers, markers
