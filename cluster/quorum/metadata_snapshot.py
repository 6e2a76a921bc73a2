"""Snapshots of the metadata, which replace the beginning of the metadata log, and when to take one.

    00000000000000368769-0000000007.checkpoint     <end offset>-<epoch of the last entry>

The file is a series of record batches like the log's. The first holds one record, the header:
{"type":"SnapshotHeader","offset":...,"epoch":...,"records":...}; the others, RECORDS_PER_BATCH of
them each, the records that build the image from nothing. An incomplete file is not a snapshot: each
batch has its CRC, and the header has the number of records.

Invariants: a snapshot is taken of a committed image only, so all snapshots that end at one
offset have the same image.
Name and place as in Apache Kafka (raft/.../snapshot/Snapshots.java); the records are our own.
Not here: files (controller/voter_files/replicated_log), when one is taken
(controller/metadata_snapshots), who sends it to whom (controller/metadata_leader).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from ...protocol.errors import CorruptMessage, InvalidRecord
from ...protocol.records.record_batch import check_batch, stamp, walk_batches
from ...protocol.records.records import encode_records, iterate_records
from ..metadata.metadata_image import MetadataImage
from ..metadata.metadata_records import decode_metadata_record, encode_metadata_record
from .voter import LogEnd

SUFFIX = ".checkpoint"
HEADER_TYPE = "SnapshotHeader"
RECORDS_PER_BATCH = 1_000


def snapshot_name(end: LogEnd) -> str:
    return f"{end.offset:020d}-{end.epoch:010d}{SUFFIX}"


def parse_snapshot_name(name: str) -> LogEnd | None:
    """Log end that a file of this name covers; None if it is not a snapshot."""
    offset, dash, epoch = name.removesuffix(SUFFIX).partition("-")
    if not name.endswith(SUFFIX) or not dash or not (offset.isdigit() and epoch.isdigit()):
        return None
    return LogEnd(int(epoch), int(offset))


def end_of(image: MetadataImage) -> LogEnd:
    """Log end that a snapshot of the image covers: every epoch begins with its own record."""
    return LogEnd(image.epoch, image.offset)


def encode_snapshot(image: MetadataImage, *, now_ms: int) -> bytes:
    """Content of a snapshot file. Takes 10 us per partition: use a thread for large clusters."""
    values = [encode_metadata_record(record) for record in image.to_records()]
    end = end_of(image)
    header = {
        "type": HEADER_TYPE,
        "offset": end.offset,
        "epoch": end.epoch,
        "records": len(values),
    }
    pieces = [bytes(_batch([json.dumps(header).encode()], -1, end.epoch, now_ms))]
    for first in range(0, len(values), RECORDS_PER_BATCH):
        some = values[first : first + RECORDS_PER_BATCH]
        pieces.append(bytes(_batch(some, first, end.epoch, now_ms)))
    return b"".join(pieces)


def _batch(values: list[bytes], position: int, epoch: int, now_ms: int) -> bytearray:
    batch = encode_records([(now_ms, None, value, ()) for value in values])
    stamp(batch, base_offset=position + 1, leader_epoch=epoch)
    return batch


def check_snapshot(data: bytes) -> LogEnd:
    """Log end that a snapshot covers. Raises CorruptMessage: it is incomplete or damaged."""
    expected, found = None, 0
    end = LogEnd(-1, 0)
    for batch in _batches(data):
        try:
            header = check_batch(batch)
        except InvalidRecord as error:
            raise CorruptMessage(str(error)) from None
        if expected is None:
            expected, end = _read_header(batch)
        else:
            found += header.next_offset - header.base_offset
    if expected is None or found != expected:
        raise CorruptMessage(f"a snapshot with {found} of {expected} records")
    return end


def decode_snapshot(data: bytes) -> MetadataImage:
    """Image in a snapshot. Raises CorruptMessage: it is incomplete or damaged."""
    end = check_snapshot(data)
    records = [
        decode_metadata_record(record.value or b"")
        for number, batch in enumerate(_batches(data))
        if number
        for record in iterate_records(batch)
    ]
    return MetadataImage().apply(records, offset=end.offset)


def _batches(data: bytes) -> Iterator[memoryview]:
    view, end = memoryview(data), 0
    for position, header in walk_batches(view):
        end = position + header.size
        yield view[position:end]
    if end != len(view):
        raise CorruptMessage("a snapshot that ends amid a batch")


def _read_header(batch: memoryview) -> tuple[int, LogEnd]:
    try:
        (record,) = iterate_records(batch)
        header = json.loads(record.value or b"")
        if header["type"] != HEADER_TYPE:
            raise CorruptMessage("a snapshot without its header")
        return int(header["records"]), LogEnd(int(header["epoch"]), int(header["offset"]))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptMessage(f"a snapshot without its header: {error!r}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPolicy:
    """Rule for taking a snapshot: when the log behind the last one is long or old enough.

    max_bytes: metadata.log.max.record.bytes.between.snapshots.
    max_interval_ms: metadata.log.max.snapshot.interval.ms; 0: only by bytes.
    """

    max_bytes: int
    max_interval_ms: int

    def is_due(self, *, log_bytes: int, age_ms: int) -> bool:
        """Whether a snapshot is due, given the bytes of the log behind the last one and its age."""
        if log_bytes <= 0:
            return False
        return log_bytes >= self.max_bytes or 0 < self.max_interval_ms <= age_ms
