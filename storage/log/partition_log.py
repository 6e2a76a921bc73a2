"""One partition's log on one disk: append, read, flush, retention, truncation.

    <topic>-<partition>/
        00000000000000000000.log .index .timeindex    a segment, see log_segment
        00000000000000368769.snapshot                 see producer_snapshot
        leader-epoch-checkpoint                       see leader_epoch_cache

What always holds:
    An offset that was given is never given again, whatever fails afterwards, unless truncate_to
    says so.
    Batches are stored byte for byte as they came, but for offset, leader epoch and timestamp type.

Not thread-safe: one actor owns a log. Only FlushWork.run() and reading a slice's file may happen in
another thread. Time comes in as now_ms; nothing here waits, except for the disk.

Not here: flushing, retention, truncation, closing (log_upkeep), compaction (log_compaction), which
replica leads and what is committed (cluster/partition/leader_state), the checkpoints of the
directory (log_directory).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...protocol.buffer import Buffer
from ...protocol.errors import (
    FencedLeaderEpoch,
    InvalidRecord,
    KafkaStorageError,
    OffsetOutOfRange,
)
from ...protocol.records.record_batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    RecordBatchHeader,
    check_batch,
    read_header,
    read_size,
    stamp,
)
from ..disk.file_system import File
from ..disk.storage_failure import NO_SPACE
from ..producers.producer_state import ProducerEntry
from ..segments.log_segment import LogSegment
from .batch_validation import opens_records, validate_batch, validate_records
from .log_compaction import LogCompaction
from .timestamp_search import TimestampOffset, TimestampSearch


class AppendResult(NamedTuple):
    """Where a batch is in the log; for a duplicate, where it has been all along."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 unless the topic has message.timestamp.type=LogAppendTime."""
    log_start_offset: int
    duplicate: bool
    """Nothing was written. An acks=all answer still waits for last_offset to be committed."""


class LogSlice(NamedTuple):
    """Whole batches in [position, position + size) of `file`, which must not be closed.

    It stays readable after its segment was rolled, renamed or unlinked. After a truncation the file
    may end earlier: a sendfile that returns 0 means that.
    """

    file: File | None
    """None only when size is 0."""
    position: int
    size: int
    next_offset: int
    """Where a reader of the whole slice goes on; -1 when it is empty."""
    is_limited: bool
    """More could be read now; only max_bytes kept it out."""


EMPTY = LogSlice(None, 0, 0, -1, False)


class PartitionLog(LogCompaction):
    """One partition's log. open() it, append to it, read from it, close() it."""

    @property
    def producers(self) -> Mapping[int, ProducerEntry]:
        """The idempotent producers that are remembered, by id."""
        return self._producers.entries

    # Appending

    def append_as_leader(
        self,
        batch: bytearray | memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        opened: bool = False,
    ) -> AppendResult:
        """Append one record batch of a producer, stamping its offset and epoch in place.

        Args:
            batch: exactly one batch of magic 2, writable. It must not change until the call
                returns; then it may be reused.
            leader_epoch: the epoch in which this replica leads.
            now_ms: the time now.
            opened: the records are known to be what the topic wants (validate_records, or they are
                the broker's own).

        Raises:
            MessageTooLarge, RecordListTooLarge, CorruptMessage, InvalidRecord, InvalidTimestamp,
            InvalidTxnState: the batch; see batch_validation.
            OutOfOrderSequenceNumber, InvalidProducerEpoch: see producer_state.
            FencedLeaderEpoch: the log has records of a later epoch. Epochs never go down in a
                log: recovery would take this batch for a stale one.
            KafkaStorageError: the disk is full; nothing was appended.
            StorageFailure: the disk failed; the directory is offline.
        Cost: about 6 us, the CRC, and one write to the page cache; a roll or a new epoch adds a few
        file operations. O(1) in records, unless they have to be opened: see validate_records.
        """
        if self._health.failure is not None:
            self._health.check()
        config = self.config
        header, max_timestamp = validate_batch(batch, config, now_ms)
        if not opened and opens_records(config):
            validate_records(batch, header, config, now_ms)
        # Before anything is changed, so that a retry has no side effects.
        if header.producer_id >= 0:
            written = self._producers.check(header)
            if written is not None:
                return AppendResult(
                    written.base_offset,
                    written.last_offset,
                    written.timestamp if config.is_log_append_time else NO_TIMESTAMP,
                    self.log_start_offset,
                    True,
                )
        if leader_epoch < self.epochs.latest_epoch:
            raise FencedLeaderEpoch(
                f"{self.directory} has records of leader epoch {self.epochs.latest_epoch}, "
                f"so epoch {leader_epoch} may not append"
            )
        segment = self._active
        base_offset = segment.next_offset
        last_offset = base_offset + header.last_offset_delta
        stamp(batch, base_offset=base_offset, leader_epoch=leader_epoch)
        if leader_epoch != self.epochs.latest_epoch:
            self.assign_epoch(leader_epoch)
        if segment.must_roll(len(batch), last_offset, max_timestamp, config=config, now_ms=now_ms):
            self.roll(now_ms=now_ms)
            segment = self._active
        try:
            segment.append(batch, last_offset, max_timestamp)
        except OSError as error:
            raise self._undo_write(segment, error) from error
        self._producers.update(header, last_offset, max_timestamp)
        if self._unflushed_since_ms is None:
            self._unflushed_since_ms = now_ms
            self._is_dirty = True
        return AppendResult(
            base_offset,
            last_offset,
            max_timestamp if config.is_log_append_time else NO_TIMESTAMP,
            self.log_start_offset,
            False,
        )

    def append_as_follower(self, batches: Buffer, *, now_ms: int) -> None:
        """Append what the leader's log holds from our end on, byte for byte.

        A cut batch at the end is omitted: a fetch may end anywhere. An empty log whose start lies
        inside the first batch begins at that batch.

        Raises:
            CorruptMessage, InvalidRecord: a batch is not sound, or of an earlier epoch than the
                log. Nothing was appended.
            OffsetOutOfRange: a batch begins below the end of the log. Nothing was appended.
            KafkaStorageError, StorageFailure: as append_as_leader; batches before it may be in.
        """
        self._health.check()
        view = memoryview(batches)
        headers = _split(view)
        if not headers:
            return
        first = headers[0]
        is_empty = self.log_start_offset == self.log_end_offset
        if is_empty and first.base_offset < self.log_end_offset <= first.last_offset:
            self.truncate_fully_and_start_at(first.base_offset)
        # Of the last record: epochs of these batches may be assigned already.
        expected = self.log_end_offset
        epoch = self.epochs.epoch_at(expected - 1)
        begun: list[tuple[int, int]] = []
        for header in headers:
            if header.base_offset < expected:
                raise OffsetOutOfRange(
                    f"the leader sent offset {header.base_offset}, our log ends at {expected}"
                )
            if header.leader_epoch < epoch:
                raise InvalidRecord(
                    f"the leader sent epoch {header.leader_epoch}, our log has epoch {epoch}"
                )
            if header.base_offset > expected:
                self.note_gap()
            # Only where one begins: assigned again at a later offset, the epoch that goes on would
            # begin there, and the one before it seem to end there.
            if header.leader_epoch != epoch:
                begun.append((header.leader_epoch, header.base_offset))
            expected, epoch = header.next_offset, header.leader_epoch
        self._assign_epochs(begun)
        start = 0
        while headers:
            count, size = self._run_that_fits(headers, now_ms)
            self._append_run(view[start : start + size], headers[:count], now_ms)
            start += size
            headers = headers[count:]

    def new_epochs(self, batches: Buffer, *, up_to: int) -> list[tuple[int, int]]:
        """(epoch, first offset) of the leader epochs that these batches bring; see assign_epochs.

        Raises InvalidRecord if one is greater than `up_to`, in which the leader leads.
        """
        view = memoryview(batches)
        found: list[tuple[int, int]] = []
        latest = self.epochs.latest_epoch
        position = 0
        while position + HEADER_SIZE <= len(view):
            header = read_header(view, position)
            if header.size <= 0:
                break  # append_as_follower says what is wrong with it
            if header.leader_epoch > up_to:
                raise InvalidRecord(
                    f"the leader of epoch {up_to} sent a batch of epoch {header.leader_epoch}"
                )
            if header.leader_epoch > latest:
                latest = header.leader_epoch
                found.append((latest, header.base_offset))
            position += header.size
        return found

    def _run_that_fits(self, headers: list[RecordBatchHeader], now_ms: int) -> tuple[int, int]:
        """(number, bytes) of the leading batches for the active segment; it may be a new one."""
        first = headers[0]
        if self._must_roll(first, first.size, now_ms):
            self.roll(now_ms=now_ms, at_offset=first.base_offset)
        size = first.size
        for number, header in enumerate(headers[1:], 1):
            if self._active.size + size + header.size > self.config.segment_bytes or (
                self._must_roll(header, size + header.size, now_ms)
            ):
                return number, size
            size += header.size
        return len(headers), size

    def _must_roll(self, header: RecordBatchHeader, size: int, now_ms: int) -> bool:
        return self._active.must_roll(
            size, header.last_offset, header.max_timestamp, config=self.config, now_ms=now_ms
        )

    def _append_run(self, run: Buffer, headers: list[RecordBatchHeader], now_ms: int) -> None:
        segment = self._active
        try:
            segment.append_run(run, headers)
        except OSError as error:
            raise self._undo_write(segment, error) from error
        for header in headers:
            self._producers.update(header, header.last_offset, header.max_timestamp)
        self._is_dirty = True
        if self._unflushed_since_ms is None:
            self._unflushed_since_ms = now_ms

    def _undo_write(self, segment: LogSegment, error: OSError) -> KafkaStorageError:
        """Cut off what a failed write left behind; returns what to raise.

        A full disk is no broken disk: reads and deletions go on, and so may writing.
        """
        try:
            segment.file.truncate(segment.size)
        except OSError as second:
            return self._health.fail(f"cutting {segment.path} after a failed write", second)
        if error.errno in NO_SPACE:
            return KafkaStorageError(f"no space left for {segment.path}")
        return self._health.fail(f"writing {segment.path}", error)

    # Reading

    def read(
        self, fetch_offset: int, *, max_bytes: int, up_to: int, min_one_batch: bool
    ) -> LogSlice:
        """Locate the record batches from `fetch_offset` on, without reading them.

        Args:
            fetch_offset: log_start_offset <= fetch_offset <= log_end_offset.
            max_bytes: size limit of the slice.
            up_to: offset, exclusive: high_watermark for a consumer, last_stable_offset for
                read_committed, log_end_offset for a follower.
            min_one_batch: the first batch comes whole even when it alone is larger than
                max_bytes, or a consumer with a small buffer would never get past it (KIP-74).
                Otherwise the slice is empty then.

        Returns:
            A slice of whole batches of one segment file; empty if fetch_offset >= up_to. Its first
            batch may begin below fetch_offset (consumers skip those records). It never crosses
            into the next segment, so it can be smaller than max_bytes while more is available.

        Raises:
            OffsetOutOfRange: fetch_offset is outside the log.
            StorageFailure: the disk failed.

        Cost: about 2 us for a reader that goes on where its last slice ended and takes all there
        is; else an index lookup and a walk over at most index.interval.bytes of headers.
        """
        active = self._active
        if not self.log_start_offset <= fetch_offset <= active.next_offset:
            raise OffsetOutOfRange(
                f"offset {fetch_offset} is outside [{self.log_start_offset}, {active.next_offset}]"
            )
        if self._health.failure is not None:
            self._health.check()
        if fetch_offset >= up_to:
            return EMPTY
        if fetch_offset >= active.base_offset:
            segments: tuple[LogSegment, ...] = (active,)
        else:
            segments = self._segments.from_offset(fetch_offset)
        try:
            for segment in segments:
                found = segment.read(
                    fetch_offset, max_bytes=max_bytes, up_to=up_to, min_one_batch=min_one_batch
                )
                if found.size:
                    return LogSlice(segment.file, *found)
                if found.is_limited:
                    return EMPTY._replace(is_limited=True)
                # else compaction removed the batches here: look in the next segment
        except OSError as error:
            raise self._health.fail(f"reading {self.directory}", error) from error
        return EMPTY

    def begin_search(self, *, up_to: int) -> TimestampSearch:
        """The records of now below `up_to`, for look-ups by time: in a thread, if need be.

        Cost: about 3 us a segment. Raises StorageFailure.
        """
        self._health.check()
        start = self.log_start_offset
        return TimestampSearch(
            [segment.frozen() for segment in self._segments.from_offset(start)],
            start=start,
            up_to=up_to,
            limit=self.config.decompressed_limit,
        )

    def search_failed(self, error: OSError) -> KafkaStorageError:
        """What a search met on the disk, as the error to raise: the directory is offline."""
        return self._health.fail(f"reading {self.directory}", error)

    def offset_for_timestamp(self, timestamp_ms: int, *, up_to: int) -> TimestampOffset | None:
        """The first record with a timestamp >= `timestamp_ms` (and offset < up_to), if any.

        Opens one batch: up to a few ms for a large compressed one. Raises StorageFailure, and
        CorruptMessage or InvalidRecord if that batch's records are damaged.
        """
        try:
            return self.begin_search(up_to=up_to).first_at_or_after(timestamp_ms)
        except OSError as error:
            raise self.search_failed(error) from error

    def offset_of_max_timestamp(self, *, up_to: int) -> TimestampOffset | None:
        """The first record with the largest timestamp of the log (KIP-734), if it is < up_to.

        Cost and errors as offset_for_timestamp.
        """
        try:
            return self.begin_search(up_to=up_to).first_with_max_timestamp()
        except OSError as error:
            raise self.search_failed(error) from error

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) for OffsetForLeaderEpoch; see LeaderEpochCache.end_offset_for."""
        return self.epochs.end_offset_for(leader_epoch, self.log_end_offset)


def _split(view: memoryview) -> list[RecordBatchHeader]:
    """The checked headers of the whole batches in `view`."""
    headers: list[RecordBatchHeader] = []
    position = 0
    while position + LOG_OVERHEAD <= len(view):
        _, size = read_size(view, position)
        if size > len(view) - position:
            break
        headers.append(check_batch(view[position : position + max(size, 0)]))
        position += size
    return headers
