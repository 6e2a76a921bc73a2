"""Cleaner loops in plain Python: for small logs, and the oracle of cleaner_compiled.

About 5 us a record: cheaper than loading the compiled twin until some 200,000 records were cleaned
(cleaner_loops decides).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

from ...protocol.buffer import Buffer
from ...protocol.errors import CorruptMessage
from ...protocol.records.record_batch import HEADER_SIZE, NO_TIMESTAMP, RecordBatchHeader
from ...protocol.varint import decode_varint, decode_varlong, encode_varint
from .cleaner_rows import KeptRecords, RecordRows, Rewrite


class _Record(NamedTuple):
    start: int
    timestamp_position: int
    after_timestamp: int
    end: int
    timestamp_delta: int
    offset: int
    key: bytes | None
    has_value: bool


class PlainOffsetMap:
    """Plain cleaner_rows.OffsetMap."""

    def __init__(self, limit: int, seed: bytes) -> None:
        self._limit = limit
        self.latest_offset = -1
        self._seed = seed
        self._offsets: dict[bytes, int] = {}

    @property
    def entries(self) -> int:
        return len(self._offsets)

    def _hash(self, key: bytes) -> bytes:
        return blake2b(key, digest_size=16, key=self._seed).digest()

    def index(self, source: Buffer, batches: Sequence[RecordRows], start_offset: int) -> bool:
        for batch in batches:
            for record in _records(source, batch):
                if record.key is not None and record.offset >= start_offset:
                    hashed = self._hash(record.key)
                    if hashed not in self._offsets and len(self._offsets) >= self._limit:
                        return False
                    self._offsets[hashed] = record.offset
                    self.latest_offset = record.offset
            last_offset = batch.base_offset + batch.last_offset_delta
            if last_offset >= start_offset:
                self.latest_offset = last_offset
        return True

    def filter(self, source: Buffer, batches: Sequence[RecordRows]) -> PlainFilteredRecords:
        kept: list[KeptRecords] = []
        records: list[list[_Record]] = []
        for batch in batches:
            chosen: list[_Record] = []
            keyless = 0
            for record in _records(source, batch):
                if record.offset > self.latest_offset or self._is_last(record, batch):
                    chosen.append(record)
                elif record.key is None:
                    keyless += 1
            records.append(chosen)
            kept.append(
                KeptRecords(
                    len(chosen),
                    sum(record.end - record.start for record in chosen),
                    sum(not record.has_value for record in chosen),
                    max(
                        (batch.base_timestamp + record.timestamp_delta for record in chosen),
                        default=NO_TIMESTAMP,
                    ),
                    keyless,
                )
            )
        return PlainFilteredRecords(source, records, kept)

    def _is_last(self, record: _Record, batch: RecordRows) -> bool:
        if record.key is None or (batch.drops_tombstones and not record.has_value):
            return False
        return record.offset >= self._offsets.get(self._hash(record.key), -1)


class PlainFilteredRecords:
    """Plain cleaner_rows.FilteredRecords."""

    def __init__(
        self, source: Buffer, records: list[list[_Record]], kept: list[KeptRecords]
    ) -> None:
        self._source = source
        self._records = records
        self.kept = kept

    def rewrite(self, rewrites: Sequence[Rewrite], target: bytearray) -> list[int]:
        ends: list[int] = []
        source = memoryview(self._source)
        for batch, position, shift in rewrites:
            for record in self._records[batch]:
                if shift:
                    body = b"".join(
                        (
                            source[record.timestamp_position - 1 : record.timestamp_position],
                            encode_varint(record.timestamp_delta + shift),
                            source[record.after_timestamp : record.end],
                        )
                    )
                    written: Buffer = encode_varint(len(body)) + body
                else:
                    written = source[record.start : record.end]
                target[position : position + len(written)] = written
                position += len(written)
            ends.append(position)
        return ends


def keep_all(batch: Buffer, header: RecordBatchHeader) -> PlainFilteredRecords:
    """All records of one uncompressed batch, kept. Raises CorruptMessage."""
    rows = RecordRows(
        HEADER_SIZE,
        header.size,
        header.record_count,
        header.base_offset,
        header.last_offset_delta,
        header.base_timestamp,
        0,
    )
    records = list(_records(batch, rows))
    newest = max((rows.base_timestamp + record.timestamp_delta for record in records), default=-1)
    size = sum(record.end - record.start for record in records)
    tombstones = sum(not record.has_value for record in records)
    return PlainFilteredRecords(
        batch, [records], [KeptRecords(len(records), size, tombstones, newest, 0)]
    )


def _records(source: Buffer, batch: RecordRows) -> Iterator[_Record]:
    """Records of `batch`, checked as far as they are read. Raises CorruptMessage."""
    position = batch.start
    previous_delta = -1
    for _ in range(batch.record_count):
        start = position
        length, position = decode_varint(source, position)
        end = position + length
        if length < 1 or end > batch.end:
            raise CorruptMessage("a length passes the end of its batch")
        timestamp_position = position + 1
        timestamp_delta, after_timestamp = decode_varlong(source, timestamp_position)
        offset_delta, position = decode_varint(source, after_timestamp)
        if not previous_delta < offset_delta <= batch.last_offset_delta:
            raise CorruptMessage("an offset delta does not increase or passes the batch's last")
        previous_delta = offset_delta
        key_length, position = decode_varint(source, position)
        key = None if key_length < 0 else bytes(source[position : position + key_length])
        value_length, position = decode_varint(source, position + max(key_length, 0))
        if position + max(value_length, 0) >= end:  # the number of headers comes after them
            raise CorruptMessage("a length passes the end of its record")
        yield _Record(
            start,
            timestamp_position,
            after_timestamp,
            end,
            timestamp_delta,
            batch.base_offset + offset_delta,
            key,
            value_length >= 0,
        )
        position = end
    if position != batch.end:
        raise CorruptMessage("bytes are left over after a batch")
