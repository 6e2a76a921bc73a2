"""One pass over a piece of a log: its batches, and what a cleaning keeps of each of them.

    untouched  all records are kept: copied byte for byte
    rewritten  some are kept, or a tombstone gets its delete horizon
    emptied    none is kept, but its offset or its producer's sequence is still needed: 61 bytes
    dropped    nothing is left

Invariants: a rewritten batch has the same base and last offset, leader epoch, producer fields and
codec; an emptied one all but the codec. Of a record only the timestamp delta changes, with the
batch's base timestamp.

The delete horizon: the first cleaning that finds a tombstone that is the last record of its key (or
a marker whose transaction has no data left) writes into the batch the time from which it may be
removed, now + delete.retention.ms: attribute bit 6 is set and base_timestamp holds the time. Until
then consumers that have read an older value still get the tombstone.
Source: apache/kafka MemoryRecords.filterTo, LogCleaner.scala (cleanInto).

Not here: files and segments (cleaner), the loops over records (cleaner_plain, cleaner_compiled).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ...protocol.buffer import Buffer
from ...protocol.errors import CorruptMessage
from ...protocol.records.compression import compress, decompress
from ...protocol.records.record_batch import (
    CODEC_MASK,
    DELETE_HORIZON_MASK,
    HEADER_SIZE,
    NO_TIMESTAMP,
    RecordBatchHeader,
    build_batch,
    compute_crc,
    read_header,
    walk_batches,
)
from ..disk.file_system import File
from .cleaner_plain import keep_all
from .cleaner_rows import GROWTH, FilteredRecords, KeptRecords, OffsetMap, RecordRows, Rewrite
from .cleaner_transactions import CleanedTransactions

DECOMPRESSED_LIMIT = 256 * 1024**2
"""Most bytes of one decompressed batch, above any current topic limit: the limit may have been
higher before.
"""


class StoredBatch(NamedTuple):
    header: RecordBatchHeader
    content: memoryview


class LastRecord(NamedTuple):
    """Last record of a producer: in its last batch, or a marker, if it has written no batch.

    offset: last offset of that batch; -1: the producer has no batch.
    """

    offset: int
    epoch: int

    def is_in(self, header: RecordBatchHeader) -> bool:
        if self.offset >= 0:
            return header.last_offset == self.offset
        return header.is_control and header.producer_epoch == self.epoch


class CleanedBatches(NamedTuple):
    """Batches to write in place of some source batches."""

    content: bytes
    headers: list[RecordBatchHeader]
    record_count: int
    is_changed: bool
    """Whether any byte differs from the source."""


def read_batches(
    file: File, size: int, chunk_bytes: int
) -> Iterator[tuple[int, list[StoredBatch]]]:
    """Read a segment file in pieces: (bytes read, whole batches), each batch with its CRC checked.

    Raises:
        CorruptMessage, InvalidRecord: the file contains something other than valid batches.
    """
    position = 0
    wanted = chunk_bytes
    while position < size:
        chunk = memoryview(file.read_at(min(wanted, size - position), position))
        batches, end = _whole_batches(chunk)
        if not batches:
            needed = _size_at(chunk)
            if needed > size - position or needed <= len(chunk):
                raise CorruptMessage(f"the batch at byte {position} is cut off")
            wanted = needed
            continue
        yield end, batches
        position += end
        wanted = chunk_bytes


def _size_at(chunk: memoryview) -> int:
    if len(chunk) < HEADER_SIZE:
        return HEADER_SIZE
    return read_header(chunk).size


def _whole_batches(chunk: memoryview) -> tuple[list[StoredBatch], int]:
    batches: list[StoredBatch] = []
    end = 0
    for position, header in walk_batches(chunk, strict=True):
        end = position + header.size
        content = chunk[position:end]
        if header.crc != compute_crc(content):
            raise CorruptMessage(f"the batch at offset {header.base_offset} has a wrong CRC")
        if not 0 <= header.record_count <= DECOMPRESSED_LIMIT or header.last_offset_delta < 0:
            raise CorruptMessage(
                f"the batch at offset {header.base_offset} has a wrong record count"
            )
        batches.append(StoredBatch(header, content))
    return batches, end


def delete_horizon_ms(header: RecordBatchHeader) -> int | None:
    """Time in ms when the tombstones of this batch may be removed; None if no cleaning has set it
    yet.
    """
    return header.base_timestamp if header.attributes & DELETE_HORIZON_MASK else None


class RecordBytes:
    """Decompressed records of some batches, one after the other, with their positions."""

    def __init__(self) -> None:
        self._parts: list[Buffer] = []
        self._size = 0
        self.rows: list[RecordRows] = []

    def add(self, batch: StoredBatch, *, drops_tombstones: bool) -> None:
        """Add a batch. Raises CorruptMessage, InvalidRecord."""
        header = batch.header
        records: Buffer = batch.content[HEADER_SIZE:]
        if header.codec and header.record_count:
            records = decompress(header.codec, records, limit=DECOMPRESSED_LIMIT)
        if header.record_count > len(records):
            raise CorruptMessage(
                f"the batch at offset {header.base_offset} has a wrong record count"
            )
        start = self._size
        self._parts.append(records)
        self._size += len(records)
        self.rows.append(
            RecordRows(
                start,
                self._size,
                header.record_count,
                header.base_offset,
                header.last_offset_delta,
                header.base_timestamp,
                int(drops_tombstones),
            )
        )

    @property
    def content(self) -> bytes:
        return b"".join(self._parts)


def index_batches(
    batches: list[StoredBatch],
    offsets: OffsetMap,
    transactions: CleanedTransactions,
    start_offset: int,
) -> bool:
    """Note the keys of `batches` in `offsets`. Returns False if it became full.

    Raises CorruptMessage, InvalidRecord.
    """
    for run in _runs(batches):
        records = RecordBytes()
        for batch in run:
            header = batch.header
            if header.is_control:
                transactions.on_control_batch(header, batch.content)
            elif header.last_offset >= start_offset and not transactions.on_batch(header):
                records.add(batch, drops_tombstones=False)
        if records.rows and not offsets.index(records.content, records.rows, start_offset):
            return False
        last = run[-1].header.last_offset
        if last >= start_offset:
            offsets.latest_offset = last
    return True


def _runs(batches: list[StoredBatch]) -> Iterator[list[StoredBatch]]:
    """Runs of batches to process together: a compressed batch, which may be large, is alone."""
    run: list[StoredBatch] = []
    for batch in batches:
        if batch.header.codec:
            if run:
                yield run
            yield [batch]
            run = []
        else:
            run.append(batch)
    if run:
        yield run


class BatchFilter:
    """Filter of one cleaning of one log. It is given every batch in order."""

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        *,
        now_ms: int,
        delete_retention_ms: int,
        last_records: Mapping[int, LastRecord],
        end_offset: int,
    ) -> None:
        """Begin at the start of a log.

        Args:
            offsets: the last offset of each key of the dirty part.
            transactions: the state before the first batch of the log.
            now_ms: the time of the cleaning.
            delete_retention_ms: of the topic.
            last_records: of every active producer id; the batch of such a record is emptied, but
                not dropped.
            end_offset: the batch that ends there is not dropped either, so that no offsets are
                missing at the end of the cleaned part.
        """
        self._offsets = offsets
        self._transactions = transactions
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self._last_records = last_records
        self._end_offset = end_offset
        self.keyless = 0
        """Number of records dropped because they have no key."""

    def filter(self, batches: list[StoredBatch]) -> Iterator[CleanedBatches]:
        """Filter batches: yields what is kept. Raises CorruptMessage, InvalidRecord."""
        for run in _runs(batches):
            yield self._filter_run(run)

    def _filter_run(self, batches: list[StoredBatch]) -> CleanedBatches:
        output = _Output()
        records = RecordBytes()
        chosen: list[StoredBatch | None] = []
        # Markers and aborted data are decided without reading keys; in `chosen` None keeps their
        # place, so that the output is in the order of offsets.
        decided: list[tuple[StoredBatch, bool, bool]] = []
        for batch in batches:
            header = batch.header
            horizon_ms = delete_horizon_ms(header)
            has_passed = horizon_ms is not None and horizon_ms <= self._now_ms
            if header.is_control:
                is_free = self._transactions.on_control_batch(header, batch.content)
                decided.append((batch, is_free and has_passed, is_free))
                chosen.append(None)
            elif self._transactions.on_batch(header):
                decided.append((batch, True, False))
                chosen.append(None)
            else:
                records.add(batch, drops_tombstones=has_passed)
                chosen.append(batch)
        found = self._offsets.filter(records.content, records.rows) if records.rows else None
        rewritten = {} if found is None else self._rewrite(chosen, found)
        number = 0
        others = iter(decided)
        for each in chosen:
            if each is None:
                self._finish_decided(output, *next(others))
                continue
            assert found is not None
            kept = found.kept[number]
            self.keyless += kept.keyless
            if kept.record_count == 0:
                self._finish_without_records(output, each)
            elif number in rewritten:
                output.add_changed(rewritten[number], kept.record_count)
            else:
                output.add_untouched(each)
            number += 1
        return output.finish()

    def _rewrite(
        self, chosen: list[StoredBatch | None], found: FilteredRecords
    ) -> dict[int, bytearray]:
        """New content of the batches that change, by number among those that are not None."""
        batches = [batch for batch in chosen if batch is not None]
        plans: list[Rewrite] = []
        position = 0
        for number, (batch, kept) in enumerate(zip(batches, found.kept, strict=True)):
            horizon = self._new_horizon(batch.header, needs_one=kept.tombstones > 0)
            if kept.record_count == 0 or (
                kept.record_count == batch.header.record_count and horizon is None
            ):
                continue
            shift = 0 if horizon is None else batch.header.base_timestamp - horizon
            plans.append(Rewrite(number, position + HEADER_SIZE, shift))
            position += HEADER_SIZE + kept.size + (GROWTH * kept.record_count if shift else 0)
        if not plans:
            return {}
        target = bytearray(position)
        ends = found.rewrite(plans, target)
        view = memoryview(target)
        return {
            plan.batch: self._rebuild(
                batches[plan.batch], view[plan.position : end], found.kept[plan.batch]
            )
            for plan, end in zip(plans, ends, strict=True)
        }

    def _new_horizon(self, header: RecordBatchHeader, *, needs_one: bool) -> int | None:
        if needs_one and not header.attributes & DELETE_HORIZON_MASK:
            return self._horizon_ms
        return None

    def _rebuild(self, batch: StoredBatch, records: Buffer, kept: KeptRecords) -> bytearray:
        header = batch.header
        horizon = self._new_horizon(header, needs_one=kept.tombstones > 0 or header.is_control)
        has_own_timestamps = not header.is_log_append_time
        return build_batch(
            compress(header.codec, records) if header.codec else records,
            record_count=kept.record_count,
            base_timestamp=header.base_timestamp if horizon is None else horizon,
            max_timestamp=kept.max_timestamp if has_own_timestamps else header.max_timestamp,
            attributes=header.attributes | (0 if horizon is None else DELETE_HORIZON_MASK),
            last_offset_delta=header.last_offset_delta,
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
        )

    def _finish_decided(
        self, output: _Output, batch: StoredBatch, drops_records: bool, is_free_marker: bool
    ) -> None:
        header = batch.header
        if drops_records or header.record_count == 0:
            self._finish_without_records(output, batch)
        elif self._new_horizon(header, needs_one=is_free_marker) is not None:
            found = keep_all(batch.content, header)
            shift = header.base_timestamp - self._horizon_ms
            target = bytearray(found.kept[0].size + GROWTH * header.record_count)
            (end,) = found.rewrite([Rewrite(0, 0, shift)], target)
            rebuilt = self._rebuild(batch, memoryview(target)[:end], found.kept[0])
            output.add_changed(rebuilt, header.record_count)
        else:
            output.add_untouched(batch)

    def _finish_without_records(self, output: _Output, batch: StoredBatch) -> None:
        header = batch.header
        last = self._last_records.get(header.producer_id)
        if not (last is not None and last.is_in(header)) and header.next_offset != self._end_offset:
            output.drop()
        elif header.record_count == 0:
            output.add_untouched(batch)
        else:
            output.add_changed(_emptied(header), 0)


def _emptied(header: RecordBatchHeader) -> bytearray:
    """The batch without its records; offsets, producer and sequence stay."""
    return build_batch(
        b"",
        record_count=0,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=header.max_timestamp,
        attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_MASK),
        last_offset_delta=header.last_offset_delta,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


class _Output:
    """Batches to write, in order."""

    def __init__(self) -> None:
        self._parts: list[Buffer] = []
        self._headers: list[RecordBatchHeader] = []
        self._record_count = 0
        self._is_changed = False

    def add_untouched(self, batch: StoredBatch) -> None:
        self._parts.append(batch.content)
        self._headers.append(batch.header)
        self._record_count += batch.header.record_count

    def add_changed(self, batch: bytearray, record_count: int) -> None:
        self._parts.append(batch)
        self._headers.append(read_header(batch))
        self._record_count += record_count
        self._is_changed = True

    def drop(self) -> None:
        self._is_changed = True

    def finish(self) -> CleanedBatches:
        return CleanedBatches(
            b"".join(self._parts), self._headers, self._record_count, self._is_changed
        )
