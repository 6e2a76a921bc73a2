"""Log of one partition on one disk: append, read, truncation, and its start and end.

    <topic>-<partition>/
        00000000000000000000.log .index .timeindex .txnindex    a segment, see log_segment
        00000000000000368769.snapshot                 see producer_snapshot
        leader-epoch-checkpoint                       see leader_epoch_cache

Its parts, each with its own state:
    local       the files: segments, epochs, producer snapshots (local_log)
    flushing    the recovery point, and fsync (log_flush)
    compaction  how far it was compacted (log_compaction)
    damage      records that cannot be read (log_damage)

Invariants:
    log_start_offset <= high_watermark <= log_end_offset, recovery_point <= log_end_offset.
    An assigned offset is never assigned again, whatever fails, unless the log is truncated below.
    Batches are stored byte for byte as they came, but for offset, leader epoch, timestamp type.
Not thread-safe: one actor owns a log. Only FlushWork.run() and reading a slice's file may happen in
another thread. The time is passed as now_ms; nothing here waits, except for the disk.
Not here: which old segments are deleted (retention), look-ups by time (timestamp_search), which
replica leads and what is committed (cluster/partition/leader_state), the checkpoints
(log_directory).
"""

from __future__ import annotations

from dataclasses import replace
from os.path import dirname
from typing import Final, NamedTuple
from uuid import UUID

from ...protocol.buffer import Buffer
from ...protocol.errors import CorruptMessage, FencedLeaderEpoch, InvalidRecord, OffsetOutOfRange
from ...protocol.records.end_transaction_marker import EndTransactionMarker, read_marker
from ...protocol.records.record_batch import (
    CONTROL_MASK,
    NO_TIMESTAMP,
    RecordBatchHeader,
    stamp,
)
from ..disk.file_system import File, FileSystem, sync_directory
from ..disk.storage_failure import DirectoryHealth
from ..log_config import LogConfig
from ..producers.verification_guard import VerificationGuard
from ..segments.log_segment import LogSegment
from .batch_validation import validate_batch, validate_records
from .follower_batches import Markers, split_batches
from .local_log import PRODUCER_ID_EXPIRATION_MS, LocalLog
from .log_compaction import LogCompaction
from .log_damage import LogDamage, doubt
from .log_flush import LogFlushing
from .log_loader import LogLoader, RecoveryReport

DUE_AT_ONCE: Final = 0


class AppendResult(NamedTuple):
    """Position of a batch in the log; for a duplicate, that of the first copy."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """Time of the append; -1 unless the topic has message.timestamp.type=LogAppendTime."""
    log_start_offset: int
    duplicate: bool
    """Whether nothing was written. An acks=all answer still waits for last_offset to commit."""


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
    """Offset at which a reader of the whole slice continues; -1 when it is empty."""
    is_limited: bool
    """Whether more could be read now, beyond max_bytes."""


EMPTY: Final = LogSlice(None, 0, 0, -1, False)


class PartitionLog:
    """One partition's log. open() it, append to it, read from it, close() it."""

    def __init__(
        self,
        local: LocalLog,
        flushing: LogFlushing,
        compaction: LogCompaction,
        *,
        recovery: RecoveryReport,
        topic_id: UUID | None,
        log_start_offset: int,
        high_watermark: int,
    ) -> None:
        self.local = local
        self.flushing = flushing
        self.compaction = compaction
        self.damage = LogDamage(local, compaction)
        self.segments = local.segments
        """Current segments, oldest first; the last is the active one."""
        self.epochs = local.epochs
        self.topic_id = topic_id
        self.recovery = recovery
        """Report of opening the log, for the broker's log."""
        self.log_start_offset = log_start_offset
        self.damage.forget_below(log_start_offset)
        # A checkpoint may be older or newer than the log it is about.
        self._high_watermark = min(max(high_watermark, log_start_offset), self.log_end_offset)

    @classmethod
    def open(
        cls,
        file_system: FileSystem,
        directory: str,
        *,
        topic_id: UUID | None,
        config: LogConfig,
        recovery_point: int,
        clean: bool,
        now_ms: int,
        log_start_offset: int | None = None,
        high_watermark: int = 0,
        health: DirectoryHealth | None = None,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        cleaner_offset: int | None = None,
        keeps_places: bool = False,
    ) -> PartitionLog:
        """Open the log in `directory`, which is created if it is absent.

        Args:
            file_system: the disk.
            directory: <data dir>/<topic>-<partition>.
            topic_id: for callers of the log; log_directory reads it from the disk, or writes it.
            config: the topic's settings.
            recovery_point: offset below which all is known to be fsynced; 0 if unknown.
            clean: the directory was closed cleanly, so nothing needs to be scanned.
            now_ms: the time now.
            log_start_offset: from the checkpoint, or None; records below are not served.
            high_watermark, cleaner_offset: from the checkpoints, see there.
            health: shared by the logs of one data directory.
            producer_id_expiration_ms: how long an idle producer's sequences are remembered.
            keeps_places: see LogLoader; and loaded segments are unproven: see log_damage.

        Raises:
            StorageFailure: the disk failed.
        Cost: after a clean stop a few small reads; else a read of all that is not flushed.
        """
        health = health or DirectoryHealth()
        health.check()
        try:
            if not file_system.is_directory(directory):
                file_system.make_directory(directory)
                sync_directory(file_system, dirname(directory) or ".")
            loaded = LogLoader(
                file_system,
                directory,
                config=config,
                recovery_point=recovery_point,
                clean=clean,
                now_ms=now_ms,
                log_start_offset=log_start_offset,
                may_have_gaps=config.is_compacted or cleaner_offset is not None,
                keeps_places=keeps_places,
            ).load()
        except (CorruptMessage, InvalidRecord) as error:  # a control batch
            raise health.fail(f"opening {directory}", OSError(str(error))) from error
        except OSError as error:
            raise health.fail(f"opening {directory}", error) from error
        local = LocalLog(
            file_system,
            directory,
            config=config,
            health=health,
            segments=loaded.segments,
            epochs=loaded.epochs,
            producers=loaded.producers,
            closed=loaded.closed,
            producer_id_expiration_ms=producer_id_expiration_ms,
        )
        local.expire_producers(now_ms)
        report, end = loaded.report, loaded.segments.active.next_offset
        if keeps_places:
            if high_watermark > end:
                reason = f"{directory} ends at {end}, records up to {high_watermark} were committed"
                report = replace(report, is_damaged=True, reasons=(*report.reasons, reason))
            for segment in loaded.segments:
                doubt(segment)
        return cls(
            local,
            LogFlushing(local, recovery_point=loaded.recovery_point, is_dirty=not clean),
            LogCompaction(local, cleaner_offset),
            recovery=report,
            topic_id=topic_id,
            log_start_offset=loaded.log_start_offset,
            high_watermark=high_watermark,
        )

    @property
    def directory(self) -> str:
        return self.local.directory

    @property
    def config(self) -> LogConfig:
        return self.local.config

    @property
    def health(self) -> DirectoryHealth:
        """Health of the data directory; for a closed log one that refuses everything."""
        return self.local.health

    @property
    def log_end_offset(self) -> int:
        """Log end offset: offset of the next record, one past the last."""
        return self.segments.active.next_offset

    @property
    def high_watermark(self) -> int:
        """High watermark: records below are committed. Setting a lower one has no effect."""
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        if offset > self._high_watermark:
            self._high_watermark = min(offset, self.segments.active.next_offset)

    @property
    def last_stable_offset(self) -> int:
        """Last stable offset: records below are committed, and belong to no transaction that is
        undecided, or whose marker is not committed. It moves with the high watermark.
        """
        producers, end = self.local.producers, self._high_watermark
        if producers.open_transactions or producers.unstable:
            return max(producers.stable_end(end), self.log_start_offset)
        return end

    # Appending

    def append_as_leader(
        self,
        batch: bytearray | memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        opened: bool = False,
        is_own: bool = False,
        guard: VerificationGuard | None = None,
    ) -> AppendResult:
        """Append one record batch of a producer, stamping its offset and epoch in place.

        Args:
            batch: exactly one batch of magic 2, writable. It must not change until the call
                returns; then it may be reused.
            leader_epoch: the epoch in which this replica leads.
            opened: the records are known to be valid for the topic (validate_records, or they are
                the broker's own).
            is_own: written by a coordinator; it may be a marker, or have a producer and no
                sequence. A marker was checked by ProducerState.check_marker.
            guard: of a verified transaction that may begin here; see ProducerState.check.

        Raises:
            MessageTooLarge, RecordListTooLarge, CorruptMessage, InvalidRecord, InvalidTimestamp:
                the batch; see batch_validation.
            OutOfOrderSequenceNumber, InvalidProducerEpoch, InvalidTxnState: see producer_state.
            FencedLeaderEpoch: the log has records of a later epoch. Epochs never go down in a
                log: recovery would take this batch for a stale one.
            KafkaStorageError: the disk is full; nothing was appended.
            StorageFailure: the disk failed; the directory is offline.
        Cost: about 6 us, the CRC, and one write to the page cache; a roll or a new epoch adds a few
        file operations. O(1) in records, unless they have to be opened: see validate_records.
        """
        local = self.local
        if local.health.failure is not None:
            local.health.check()
        config, epochs, producers = local.config, self.epochs, local.producers
        rules = local.batch_rules
        looks = not opened and rules.opens_records
        header, max_timestamp = validate_batch(
            batch, config, now_ms, is_own, opened or is_own or looks
        )
        if looks:
            validate_records(batch, header, config, now_ms)
        # Before anything is changed, so that a retry has no side effects.
        marker: EndTransactionMarker | None = None
        if header.producer_id >= 0:
            written = None
            if not is_own:
                written = producers.check(header, guard)
            elif header.attributes & CONTROL_MASK:
                marker = read_marker(batch)
            else:
                producers.check_own(header, guard)
            if written is not None:
                return AppendResult(
                    written.base_offset,
                    written.last_offset,
                    written.timestamp if config.is_log_append_time else NO_TIMESTAMP,
                    self.log_start_offset,
                    True,
                )
        if leader_epoch < epochs.latest_epoch:
            raise FencedLeaderEpoch(
                f"{local.directory} has records of leader epoch {epochs.latest_epoch}, "
                f"so epoch {leader_epoch} may not append"
            )
        segment = self.segments.active
        base_offset = segment.next_offset
        last_offset = base_offset + header.last_offset_delta
        stamp(batch, base_offset=base_offset, leader_epoch=leader_epoch)
        if leader_epoch != epochs.latest_epoch:
            local.assign_epoch(leader_epoch)
        if segment.must_roll(len(batch), last_offset, max_timestamp, config=config, now_ms=now_ms):
            local.roll(now_ms=now_ms)
            segment = self.segments.active
        try:
            segment.append(batch, last_offset, max_timestamp)
        except OSError as error:
            raise local.undo_write(segment, error) from error
        if marker is None:
            producers.update(header, last_offset, max_timestamp)
        else:
            local.end_transaction(header, marker, last_offset, max_timestamp)
        if self.flushing.unflushed_since_ms is None:
            self.flushing.on_append(now_ms)
        time_ms = max_timestamp if rules.is_log_append_time else NO_TIMESTAMP
        # Faster than the named tuple's own constructor, which is a Python function.
        return tuple.__new__(
            AppendResult, (base_offset, last_offset, time_ms, self.log_start_offset, False)
        )

    def append_as_follower(self, batches: Buffer, *, now_ms: int) -> None:
        """Append the leader's batches from our log end offset on, byte for byte.

        A partial batch at the end is omitted: a fetch may end anywhere. An empty log whose start
        lies inside the first batch begins at that batch. Raises:
            CorruptMessage, InvalidRecord: a batch is not sound, or of an earlier epoch than the
                log. Nothing was appended.
            OffsetOutOfRange: a batch begins below the end of the log. Nothing was appended.
            UnnotedGap: one begins above it, and gaps must be noted first. Nothing was appended.
            KafkaStorageError, StorageFailure: as append_as_leader; earlier batches may be appended.
        """
        self.health.check()
        headers, markers = split_batches(view := memoryview(batches))
        if not headers:
            return
        first = headers[0]
        is_empty = self.log_start_offset == self.log_end_offset
        if is_empty and first.base_offset < self.log_end_offset <= first.last_offset:
            self.truncate_fully_and_start_at(first.base_offset)
        # The last record's epoch, not the latest: epochs of these batches may be assigned already.
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
                self.compaction.check_gap()
            # Only where an epoch begins: if one that continues were assigned again, it would begin
            # at this later offset, and the epoch before it would seem to end there.
            if header.leader_epoch != epoch:
                begun.append((header.leader_epoch, header.base_offset))
            expected, epoch = header.next_offset, header.leader_epoch
        self.local.assign_epochs(begun)
        start = 0
        while headers:
            count, size = self._run_that_fits(headers, now_ms)
            self._append_run(view[start : start + size], headers[:count], markers, now_ms)
            start += size
            headers = headers[count:]

    def _run_that_fits(self, headers: list[RecordBatchHeader], now_ms: int) -> tuple[int, int]:
        """(number, bytes) of the leading batches for the active segment; it may be a new one."""
        first, config = headers[0], self.local.config
        if self._must_roll(first, first.size, config, now_ms):
            self.local.roll(now_ms=now_ms, at_offset=first.base_offset)
        size, active = first.size, self.segments.active
        for number, header in enumerate(headers[1:], 1):
            if active.size + size + header.size > config.segment_bytes or (
                self._must_roll(header, size + header.size, config, now_ms)
            ):
                return number, size
            size += header.size
        return len(headers), size

    def _must_roll(
        self, header: RecordBatchHeader, size: int, config: LogConfig, now_ms: int
    ) -> bool:
        return self.segments.active.must_roll(
            size, header.last_offset, header.max_timestamp, config=config, now_ms=now_ms
        )

    def _append_run(
        self, run: Buffer, headers: list[RecordBatchHeader], markers: Markers, now_ms: int
    ) -> None:
        segment, producers = self.segments.active, self.local.producers
        try:
            segment.append_run(run, headers)
        except OSError as error:
            raise self.local.undo_write(segment, error) from error
        for header in headers:
            if header.attributes & CONTROL_MASK:
                marker = markers[header.base_offset]
                self.local.end_transaction(header, marker, header.last_offset, header.max_timestamp)
            else:
                producers.update(header, header.last_offset, header.max_timestamp)
        self.flushing.on_append(now_ms)

    # Reading

    def read(
        self, fetch_offset: int, *, max_bytes: int, up_to: int, min_one_batch: bool
    ) -> LogSlice:
        """Locate the record batches from `fetch_offset` on, without reading them.

        Args:
            fetch_offset: log_start_offset <= fetch_offset <= log_end_offset.
            max_bytes: size limit of the slice.
            up_to: offset, exclusive, up to which the reader may read.
            min_one_batch: the first batch is returned whole even if it alone is larger than
                max_bytes (KIP-74); otherwise the slice is empty then.

        Returns a slice of whole batches of one segment file; empty if fetch_offset >= up_to. Its
        first batch may begin below fetch_offset (consumers skip those records).

        Raises:
            OffsetOutOfRange: fetch_offset is outside the log.
            KafkaStorageError, DamagedSegment: see log_damage.
        Cost: about 2 us if it continues where a slice ended; else an index lookup and a short walk.
        """
        active, health = self.segments.active, self.local.health
        if not self.log_start_offset <= fetch_offset <= active.next_offset:
            raise OffsetOutOfRange(
                f"offset {fetch_offset} is outside [{self.log_start_offset}, {active.next_offset}]"
            )
        if health.failure is not None:
            health.check()
        if fetch_offset >= up_to:
            return EMPTY
        if fetch_offset >= active.base_offset:
            segments: tuple[LogSegment, ...] = (active,)
        else:
            segments = self.segments.from_offset(fetch_offset)
        try:
            found = self._find(segments, fetch_offset, max_bytes, up_to, min_one_batch)
        except OSError as error:
            raise self.damage.on_read_error(segments, fetch_offset, error) from error
        if isinstance(found, LogSlice):
            return found
        return self.read(found, max_bytes=max_bytes, up_to=up_to, min_one_batch=min_one_batch)

    def _find(
        self,
        segments: tuple[LogSegment, ...],
        offset: int,
        max_bytes: int,
        up_to: int,
        min_one_batch: bool,
    ) -> LogSlice | int:
        """Position for a read; or the offset behind damage, at which to continue."""
        if self.damage.runs:
            known = self.damage.read_damaged(offset, max_bytes, up_to, min_one_batch)
            if known is not None:
                goes_on = not known[1].size and known[1].next_offset >= 0
                return known[1].next_offset if goes_on else LogSlice(known[0], *known[1])
        for number, segment in enumerate(segments, 1):
            found = segment.read(
                offset, max_bytes=max_bytes, up_to=up_to, min_one_batch=min_one_batch
            )
            if found.size:
                behind = None
                if found.position < segment.unproven or number > 1:
                    behind = self.damage.look(segments[:number], found.position, offset)
                return LogSlice(segment.file, *found) if behind is None else behind
            if found.is_limited:
                return EMPTY._replace(is_limited=True)
            # else compaction removed the batches here: look in the next segment
        behind = self.damage.look_at_end(segments, offset)
        return EMPTY if behind is None else behind

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """See LeaderEpochCache.end_offset_for."""
        return self.epochs.end_offset_for(leader_epoch, self.log_end_offset)

    # Truncating, closing

    def advance_log_start_offset(self, offset: int) -> None:
        """Delete the records below `offset` logically; retention removes whole segments of them.

        Raises:
            OffsetOutOfRange: above the high watermark.
        """
        if offset > self._high_watermark:
            raise OffsetOutOfRange(
                f"offset {offset} is above the high watermark {self._high_watermark}"
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)
            self.damage.forget_below(offset)

    def truncate_to(self, offset: int) -> int:
        """Truncate to `offset`, as a follower whose leader never had the records behind it.

        A batch that contains `offset` is dropped as a whole. The caller lowers the recovery point
        in the checkpoint: see LogDirectory.truncate_log. Returns the bytes dropped. Raises
        StorageFailure.
        """
        local, segments = self.local, self.segments
        local.health.check()
        if offset >= self.log_end_offset:
            # An epoch that began here, but of which no record was appended, is not the leader's.
            local.drop_epochs_from(self.log_end_offset)
            return 0
        if offset <= segments[0].base_offset:
            dropped = segments.size_in_bytes
            self.truncate_fully_and_start_at(offset)
            return dropped
        local.truncations += 1
        removed = segments.remove_after(offset)
        dropped = sum(segment.size for segment in removed)
        # Before a file is truncated: in the other order a crash may leave a gap, which no start
        # detects in a compacted log.
        local.mark_deleted(reversed(removed), DUE_AT_ONCE)
        try:
            dropped += segments.active.truncate_to(offset)
            if self.log_end_offset < self.log_start_offset <= offset:  # what is left is damaged
                self.truncate_fully_and_start_at(self.log_start_offset)
                return dropped
            self._forget_from(self.log_end_offset)
        except OSError as error:
            raise local.health.fail(f"truncating {local.directory}", error) from error
        self._sync_truncation()
        return dropped

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop all records; the next record gets `offset`. Raises StorageFailure."""
        local = self.local
        local.health.check()
        local.truncations += 1
        try:
            local.replace_all(offset, DUE_AT_ONCE)
            self.log_start_offset = offset
            self._forget_from(offset)
            self.epochs.clear()  # those that began earlier, too: nothing of them is left
        except OSError as error:
            raise local.health.fail(f"truncating {local.directory}", error) from error
        self._sync_truncation()

    def _sync_truncation(self) -> None:
        """Make a truncation durable: a power loss must not restore the dropped records, as others
        may then be committed in their place, and the high watermark's checkpoint would count the
        old ones as committed.

        Unlike Kafka: it does not wait for the disk here. Raises StorageFailure.
        """
        local = self.local
        try:
            sync_directory(local.file_system, local.directory)  # in the order of truncate_to
            self.segments.active.file.sync()
        except OSError as error:
            raise local.health.fail(f"truncating {local.directory}", error) from error

    def _forget_from(self, offset: int) -> None:
        """Forget everything derived from records at `offset` and above. Raises OSError."""
        self.flushing.on_truncation(offset)
        self.compaction.on_truncation(offset)
        self.damage.on_truncation(offset)
        self._high_watermark = min(self._high_watermark, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.epochs.truncate_from_end(offset)
        self.local.reload_producers()
        self.local.is_directory_dirty = True

    def close(self, *, clean: bool) -> None:
        """Close all files. Slices that are being sent stay readable.

        With `clean`, make everything durable first, so that the next open needs no scan. Raises
        KafkaStorageError: the disk is full; StorageFailure.
        """
        if clean:
            self.health.check()
            self.flushing.flush()
            if self.flushing.is_dirty:
                self.local.write_closing_files()
                self.flushing.is_dirty = False
        self.local.close()
