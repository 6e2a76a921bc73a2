"""Files of one log in its directory: segments, leader epochs, producer snapshots.

Invariants:
    Nothing here moves the log start offset, the high watermark or the recovery point: partition_log
    and log_flush do that, after the changes of files here.
    A file that was made, renamed or replaced has its name on the disk only after an fsync of the
    directory, which the next flush makes (is_directory_dirty).

Not here: appending and reading (partition_log), fsync (log_flush), compaction (log_compaction),
loading (log_loader).
Source: apache/kafka storage/.../internals/log/LocalLog.java.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...protocol.errors import KafkaStorageError
from ...protocol.records.end_transaction_marker import EndTransactionMarker
from ...protocol.records.record_batch import RecordBatchHeader
from ..disk.file_system import FileSystem, sync_directory
from ..disk.storage_failure import NO_SPACE, REFUSALS, ClosedLog, DirectoryHealth, refused_or_failed
from ..log_config import LogConfig
from ..producers.healed_producers import HealedSegment
from ..producers.producer_recovery import (
    LoadedProducers,
    load_producer_state,
    snapshot_offsets,
    snapshot_path,
)
from ..producers.producer_snapshot import write_snapshot
from ..segments.closed_segments import CLOSED_SEGMENTS, ClosedSegments
from ..segments.log_segment import LogSegment
from ..segments.segment_list import SegmentList
from .batch_validation import BatchRules
from .leader_epoch_cache import LeaderEpochCache

PRODUCER_ID_EXPIRATION_MS: Final = 24 * 60 * 60 * 1000


class LocalLog:
    """Files of one log. Its other parts and its owner share this object; see PartitionLog."""

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        *,
        config: LogConfig,
        health: DirectoryHealth,
        segments: SegmentList,
        epochs: LeaderEpochCache,
        producers: LoadedProducers,
        closed: ClosedSegments,
        producer_id_expiration_ms: int,
    ) -> None:
        self.file_system = file_system
        self.directory = directory
        self.config = config
        self.batch_rules = BatchRules(config)
        self.health = health
        """Health of the data directory; for a closed log one that refuses everything."""
        self.segments = segments
        self.epochs = epochs
        self.closed = closed
        self.producers = producers.state
        """State of the idempotent producers."""
        self.producers_read = range(producers.since, segments.active.next_offset)
        """Offsets whose headers alone were read for that state; later batches were appended by this
        process.
        """
        self.lacks_producers = producers.lacks_some
        """Whether the producers of damaged records are unknown. Then no snapshot is written, so
        that a start reads the records again.
        """
        self.is_directory_dirty = True
        self.truncations = 0
        """Number of truncations of the end of this log since it was opened."""
        self.producer_id_expiration_ms = producer_id_expiration_ms

    # Leader epochs

    def assign_epoch(self, leader_epoch: int) -> None:
        """Begin `leader_epoch` at the log end offset, durably, before its first batch is appended.

        A new leader may call this (one fsync) before its first append; else that append does.
        Raises KafkaStorageError if the disk is full or the machine is out of descriptors, else
        StorageFailure.
        """
        self.assign_epochs([(leader_epoch, self.segments.active.next_offset)])

    def assign_epochs(self, entries: list[tuple[int, int]]) -> None:
        """Store the (epoch, first offset) of records that are about to be appended, durably.

        It waits for the disk, so it may run in a thread, while nothing is appended or truncated.
        Raises KafkaStorageError if the disk is full or the machine is out of descriptors, else
        StorageFailure.
        """
        try:
            self.epochs.assign_all(entries)
            self.is_directory_dirty = True
        except OSError as error:
            raise refused_or_failed(self.health, f"writing {self.epochs.path}", error) from error

    def drop_epochs_from(self, offset: int) -> None:
        """Forget the epochs that begin at `offset` or later. Raises what assign_epochs raises."""
        try:
            self.epochs.truncate_from_end(offset)
            self.is_directory_dirty = True
        except OSError as error:
            raise refused_or_failed(self.health, f"writing {self.epochs.path}", error) from error

    # Segments

    def roll(self, *, now_ms: int, at_offset: int = 0) -> None:
        """Close the active segment and begin one at max(log_end_offset, at_offset).

        Nothing waits for the disk: the old segment's files, the snapshot and the directory are
        fsynced by the next flush, and the recovery point moves past them only then.
        Raises KafkaStorageError if the disk is full or the machine is out of descriptors, else
        StorageFailure.
        """
        old = self.segments.active
        base_offset = max(old.next_offset, at_offset)
        if old.size == 0 and old.base_offset == base_offset:
            return
        segment = self._make_segment(base_offset, now_ms)
        try:
            old.close_indexes()
            segment.files.create()
            self._write_snapshot(base_offset)
        except OSError as error:
            raise self._undo_roll(segment, error) from error
        if old.size == 0:  # empty, and it will never get a record
            self.mark_deleted(self.segments.replace_last(segment), now_ms)
        else:
            self.segments.add(segment)
            self.closed.maybe_write(self.directory, self.segments.segments)
        self.is_directory_dirty = True

    def _undo_roll(self, segment: LogSegment, error: OSError) -> KafkaStorageError:
        """Remove the segment that was begun; returns the exception to raise.

        Smaller batches may still be appended to the old one, with offsets of the left-over file.
        """
        if error.errno not in REFUSALS:
            return self.health.fail(f"rolling {self.directory}", error)
        try:
            if self.file_system.exists(segment.files.path):
                self.file_system.unlink(segment.files.path)
        except OSError as second:
            return self.health.fail(f"removing {segment.files.path}", second)
        if error.errno in NO_SPACE:
            return KafkaStorageError(f"no space left to roll {self.directory}")
        return KafkaStorageError(f"rolling {self.directory}: {error.strerror or error}")

    def _make_segment(self, base_offset: int, now_ms: int) -> LogSegment:
        return LogSegment(
            self.file_system,
            self.directory,
            base_offset,
            config=self.config,
            now_ms=now_ms,
            size=0,
            next_offset=base_offset,
        )

    def undo_write(self, segment: LogSegment, error: OSError) -> KafkaStorageError:
        """Truncate what a failed write left behind; returns the exception to raise.

        A full disk is not a failed disk: reads and deletions continue, and later appends may
        succeed.
        """
        try:
            segment.file.truncate(segment.size)
        except OSError as second:
            return self.health.fail(f"cutting {segment.files.path} after a failed write", second)
        if error.errno in NO_SPACE:
            return KafkaStorageError(f"no space left for {segment.files.path}")
        return self.health.fail(f"writing {segment.files.path}", error)

    def replace_all(self, offset: int, due_ms: int) -> None:
        """Replace all segments by an empty one that begins at `offset`. Raises OSError."""
        # Renamed before the new segment is made, which may have the name of an old one.
        self.segments.mark_deleted(reversed(self.segments.segments), due_ms)
        segment = self._make_segment(offset, self.segments.active.created_ms)
        segment.files.create()
        self.segments.replace_all(segment)

    def mark_deleted(self, removed: Iterable[LogSegment], due_ms: int) -> None:
        """Schedule the deletion of the files of removed segments by delete_old_files.

        They are renamed at once. Raises StorageFailure.
        """
        try:
            self.segments.mark_deleted(removed, due_ms)
        except OSError as error:
            raise self.health.fail(f"renaming segments of {self.directory}", error) from error
        self.is_directory_dirty = True

    def delete_old_files(self, now_ms: int, *, keeps_marks: bool = False) -> int:
        """Unlink the deleted files that are due; returns their number. Waits for the disk, unless
        ClosedSegments.begin_deletion was called and its work is done. Raises StorageFailure.

        keeps_marks: the checkpoints do not reflect the deletion yet; see unlink_deleted.
        """
        try:
            listing = self.closed.begin_deletion(self.directory, self.segments, now_ms)
            if listing is not None:
                listing.sync(f"{self.directory}/{CLOSED_SEGMENTS}")
            return self.segments.unlink_deleted(now_ms, keeps_marks=keeps_marks)
        except OSError as error:
            raise self.health.fail(f"deleting files of {self.directory}", error) from error

    # Producers

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that were idle too long; returns their number."""
        return self.producers.expire(now_ms, self.producer_id_expiration_ms)

    def end_transaction(
        self,
        header: RecordBatchHeader,
        marker: EndTransactionMarker | None,
        offset: int,
        timestamp: int,
    ) -> None:
        """Apply a control batch that is in the active segment now, at `offset`.

        An abort is noted in the segment's transaction index. This cannot fail: the entry may stay
        in memory until the segment is closed, as a start rebuilds it for a segment still open.
        """
        aborted = self.producers.end_transaction(header, marker, offset, timestamp)
        if aborted is not None:
            self.segments.active.transaction_index.add(aborted)

    def reload_producers(self, healed: HealedSegment | None = None) -> None:
        """Rebuild the producer state from the remaining records. Raises OSError.

        With `healed`: the damaged records of that segment are restored, and files derived from the
        log without them are removed (forget_derived); all from the segment on is read again.
        """
        offsets = snapshot_offsets(self.file_system, self.directory)
        unindexed: tuple[LogSegment, ...] = ()
        if healed is not None and healed.producers.has_transactions:
            unindexed = self.segments.from_offset(healed.segment.next_offset)
            unindexed = tuple(each for each in unindexed if each is not healed.segment)
            for segment in unindexed:
                segment.transaction_index.forget()
        loaded = load_producer_state(
            self.file_system, self.directory, self.segments, offsets, without_index=unindexed
        )
        for segment in unindexed:
            segment.transaction_index.replace_file()
        if unindexed:
            sync_directory(self.file_system, self.directory)
        if healed is not None:
            loaded.state.take_questions(self.producers)
        self.producers = loaded.state
        self.producers_read = range(loaded.since, self.segments.active.next_offset)
        self.lacks_producers = loaded.lacks_some

    def _write_snapshot(self, offset: int) -> None:
        if not self.lacks_producers:
            write_snapshot(self.file_system, snapshot_path(self.directory, offset), self.producers)

    # The directory

    def reconfigure(self, config: LogConfig) -> None:
        """Use `config` from now on. Index settings take effect with the next segment."""
        self.config = config
        self.batch_rules = BatchRules(config)

    def relocate(self, directory: str) -> None:
        """Note that the directory was renamed to `directory`. Open files stay valid."""
        self.directory = directory
        self.epochs.directory = directory
        self.segments.relocate(directory)

    def write_closing_files(self) -> None:
        """Write the files that a scan would rebuild, as nothing is scanned after a clean stop.

        Raises KafkaStorageError: the disk is full; StorageFailure.
        """
        active = self.segments.active
        path = snapshot_path(self.directory, active.next_offset)
        try:
            active.close_indexes()
            self._write_snapshot(active.next_offset)
            if self.closed.is_listed or len(self.segments) > 1 or len(active.transaction_index):
                self.closed.write(self.directory, self.segments.segments, with_active=True)
            for name in (
                active.offset_index.path,
                active.time_index.path,
                active.transaction_index.path,
                f"{self.directory}/{CLOSED_SEGMENTS}",
                path,
            ):
                if self.file_system.exists(name):
                    self.file_system.open(name).sync()
            sync_directory(self.file_system, self.directory)
        except OSError as error:
            raise refused_or_failed(self.health, f"closing {self.directory}", error) from error

    def close(self) -> None:
        """Close all files. Slices that are being sent stay readable."""
        for segment in self.segments:
            segment.files.release()
        self.health = ClosedLog(self.directory)
