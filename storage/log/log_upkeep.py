"""The state of one partition's log, and everything that happens to it but appending and reading.

What always holds:
    log_start_offset <= high_watermark <= log_end_offset, recovery_point <= log_end_offset.
    The recovery point moves only behind an fsync that has returned, and never on loading.

Flush order, by which a crash at any moment loses at most what was not flushed: the files that hold
records in [recovery point, end), with the indexes and the snapshot of segments that were closed;
then the directory, if a segment was made; then the recovery point moves; then (log_directory) its
checkpoint is written.

Not here: appending and reading (partition_log), compaction (log_compaction), loading (log_loader).
"""

from __future__ import annotations

from os.path import dirname
from typing import Self
from uuid import UUID

from ...protocol.errors import KafkaStorageError, OffsetOutOfRange
from ..disk.file_system import File, FileSystem, sync_directory
from ..disk.storage_failure import NO_SPACE, ClosedLog, DirectoryHealth, refused_or_failed
from ..log_config import LogConfig
from ..producers.producer_recovery import load_producer_state, snapshot_offsets, snapshot_path
from ..producers.producer_snapshot import write_snapshot
from ..segments.log_segment import LogSegment
from .leader_epoch_cache import LeaderEpochCache
from .log_flush import FlushWork
from .log_loader import LogLoader, RecoveryReport
from .retention import RETENTION_POLICY, DeletionPolicy, SegmentDeletion, choose_deletions

PRODUCER_ID_EXPIRATION_MS = 24 * 60 * 60 * 1000
DUE_AT_ONCE = 0


class LogUpkeep:
    """The state of a log. See open(). `recovery` says what opening took; the actor logs it."""

    def __init__(
        self,
        loader: LogLoader,
        file_system: FileSystem,
        directory: str,
        *,
        topic_id: UUID | None,
        config: LogConfig,
        health: DirectoryHealth,
        high_watermark: int,
        producer_id_expiration_ms: int,
        cleaner_offset: int | None,
    ) -> None:
        loaded = loader.load()
        self._file_system = file_system
        self._health = health
        self._segments = loaded.segments
        self._active = loaded.segments.active
        self._producers = loaded.producers
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._truncations = 0
        self._is_directory_dirty = True
        self._is_dirty = True
        self._unflushed_since_ms: int | None = None
        self.epochs = loaded.epochs
        self.directory = directory
        self.topic_id = topic_id
        self.config = config
        self.recovery: RecoveryReport = loaded.report
        self.cleaner_offset = cleaner_offset
        """Below it the log was compacted; None if it never was. May be outside the log."""
        self.log_start_offset = loaded.log_start_offset
        self.recovery_point = loaded.recovery_point
        # A checkpoint may be older or newer than the log it is about.
        self._high_watermark = min(max(high_watermark, self.log_start_offset), self.log_end_offset)

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
        log_start_offset: int = 0,
        high_watermark: int = 0,
        health: DirectoryHealth | None = None,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        cleaner_offset: int | None = None,
    ) -> Self:
        """Open the log in `directory`, which is made if it is absent.

        Args:
            file_system: the disk.
            directory: <data dir>/<topic>-<partition>.
            topic_id: for whoever asks the log; checked against the disk by log_directory.
            config: the topic's settings.
            recovery_point: offset below which all is known to be fsynced; 0 if unknown.
            clean: the directory was closed cleanly, so nothing needs to be scanned.
            now_ms: the time now.
            log_start_offset: from the checkpoint; records below are not served.
            high_watermark: from the checkpoint; clamped to the log.
            health: shared by the logs of one data directory.
            producer_id_expiration_ms: how long an idle producer's sequences are remembered.
            cleaner_offset: from the checkpoint; None if the log never was compacted.

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
            loader = LogLoader(
                file_system,
                directory,
                config=config,
                recovery_point=recovery_point,
                clean=clean,
                now_ms=now_ms,
                log_start_offset=log_start_offset,
                may_have_gaps=config.is_compacted or cleaner_offset is not None,
            )
            log = cls(
                loader,
                file_system,
                directory,
                topic_id=topic_id,
                config=config,
                health=health,
                high_watermark=high_watermark,
                producer_id_expiration_ms=producer_id_expiration_ms,
                cleaner_offset=cleaner_offset,
            )
        except OSError as error:
            raise health.fail(f"opening {directory}", error) from error
        log._is_dirty = not clean
        log.expire_producers(now_ms)
        return log

    @property
    def health(self) -> DirectoryHealth:
        """That of the data directory; a closed log has one that refuses everything."""
        return self._health

    @property
    def is_online(self) -> bool:
        """Whether the log is open and its disk has not failed."""
        return self._health.failure is None

    def fail(self, doing: str, error: OSError) -> KafkaStorageError:
        """Take the directory of this log offline; returns what to raise."""
        return self._health.fail(f"{doing} {self.directory}", error)

    @property
    def log_end_offset(self) -> int:
        """Where the next record goes: one past the last."""
        return self._active.next_offset

    @property
    def size_in_bytes(self) -> int:
        return self._segments.size_in_bytes

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """The segments of this moment, oldest first."""
        return self._segments.segments

    @property
    def high_watermark(self) -> int:
        """Records below are committed. Setting a lower one has no effect: it never goes back."""
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        if offset > self._high_watermark:
            self._high_watermark = min(offset, self._active.next_offset)

    @property
    def last_stable_offset(self) -> int:
        """Records below belong to no undecided transaction. Only a log of Kafka's has any yet."""
        first_offsets = self._producers.open_transactions.values()
        return min(self._high_watermark, *first_offsets) if first_offsets else self._high_watermark

    def assign_epoch(self, leader_epoch: int) -> None:
        """Begin `leader_epoch` at the log end offset, durably, before a batch carries it.

        A new leader may call this (one fsync) in good time; else its first append does.
        Raises KafkaStorageError if the disk is full, else StorageFailure.
        """
        self._assign_epochs([(leader_epoch, self.log_end_offset)])

    def assign_epochs(self, entries: list[tuple[int, int]]) -> None:
        """(epoch, first offset) of records that a follower is about to append, durably.

        It waits for the disk, so it may run in a thread, while nothing is appended or truncated.
        Raises KafkaStorageError if the disk is full, else StorageFailure.
        """
        self._assign_epochs(entries)

    def copy_epochs(self, epochs: LeaderEpochCache) -> None:
        """Take over what the log that this one is a copy of knows. Raises as assign_epoch."""
        self._assign_epochs(epochs.entries)

    @property
    def truncations(self) -> int:
        """How often records were dropped from the end of this log since it was opened."""
        return self._truncations

    def _assign_epochs(self, entries: list[tuple[int, int]]) -> None:
        try:
            self.epochs.assign_all(entries)
            self._is_directory_dirty = True
        except OSError as error:
            raise refused_or_failed(self._health, f"writing {self.epochs.path}", error) from error

    def _drop_epochs_from(self, offset: int) -> None:
        try:
            self.epochs.truncate_from_end(offset)
            self._is_directory_dirty = True
        except OSError as error:
            raise refused_or_failed(self._health, f"writing {self.epochs.path}", error) from error

    def roll(self, *, now_ms: int, at_offset: int = 0) -> None:
        """Close the active segment and begin one at max(log_end_offset, at_offset).

        Nothing waits for the disk: the old segment's files, the snapshot and the directory are
        fsynced by the next flush, and the recovery point moves past them only then.
        Raises KafkaStorageError if the disk is full, else StorageFailure.
        """
        old = self._active
        base_offset = max(old.next_offset, at_offset)
        if old.size == 0 and old.base_offset == base_offset:
            return
        segment = self._make_segment(base_offset, now_ms)
        try:
            old.close_indexes()
            segment.create()
            write_snapshot(
                self._file_system, snapshot_path(self.directory, base_offset), self._producers
            )
        except OSError as error:
            raise self._undo_roll(segment, error) from error
        if old.size == 0:  # its name promises offsets that it will never hold
            self._mark_deleted(self._segments.replace_last(segment), now_ms)
        else:
            self._segments.add(segment)
        self._active = segment
        self._is_directory_dirty = True

    def _undo_roll(self, segment: LogSegment, error: OSError) -> KafkaStorageError:
        """Remove the segment that was begun; returns what to raise.

        The old one may take smaller batches, whose offsets a left-over file would claim.
        """
        if error.errno not in NO_SPACE:
            return self._health.fail(f"rolling {self.directory}", error)
        try:
            if self._file_system.exists(segment.path):
                self._file_system.unlink(segment.path)
        except OSError as second:
            return self._health.fail(f"removing {segment.path}", second)
        return KafkaStorageError(f"no space left to roll {self.directory}")

    def _make_segment(self, base_offset: int, now_ms: int) -> LogSegment:
        return LogSegment(
            self._file_system,
            self.directory,
            base_offset,
            config=self.config,
            now_ms=now_ms,
            size=0,
            next_offset=base_offset,
        )

    # Flushing

    @property
    def unflushed_records(self) -> int:
        return self.log_end_offset - self.recovery_point

    def needs_flush(self, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms asks for a flush now."""
        since = self._unflushed_since_ms
        return self.unflushed_records >= self.config.flush_messages or (
            since is not None and now_ms - since >= self.config.flush_ms
        )

    def begin_flush(self) -> FlushWork | None:
        """What must be fsynced so that all records of this moment are safe; None if all are.

        Call run() on it, in any thread, then complete_flush() here. Raises StorageFailure.
        """
        self._health.check()
        if self.recovery_point == self.log_end_offset and not self._is_directory_dirty:
            return None
        files: list[File] = []
        try:
            for segment in self._segments.from_offset(self.recovery_point):
                files.append(segment.file)
                if segment is not self._active:
                    files += self._closing_files(segment)
            if self._is_directory_dirty:
                files.append(self._file_system.open_directory(self.directory))
        except OSError as error:
            raise self._health.fail(f"opening files of {self.directory}", error) from error
        work = FlushWork(
            files,
            self._health,
            up_to=self.log_end_offset,
            truncations=self._truncations,
        )
        # If the work fails the directory is offline for good, so this need not be taken back.
        self._is_directory_dirty = False
        self._unflushed_since_ms = None
        return work

    def _closing_files(self, segment: LogSegment) -> list[File]:
        """What is written once when a segment is closed. After a crash nothing below the recovery
        point is scanned, so its indexes must be as safe as its records. The active segment's need
        not: it is always scanned.
        """
        snapshot = snapshot_path(self.directory, segment.next_offset)
        paths = (segment.offset_index.path, segment.time_index.path, snapshot)
        return [self._file_system.open(path) for path in paths if self._file_system.exists(path)]

    def complete_flush(self, work: FlushWork) -> None:
        """Move the recovery point, after work.run() has returned without an error."""
        # Records that were truncated meanwhile may have been replaced by others, not synced.
        if work.truncations == self._truncations:
            self.recovery_point = max(self.recovery_point, work.up_to)

    def flush(self) -> None:
        """All three steps, waiting for the disk. Raises StorageFailure."""
        work = self.begin_flush()
        if work is not None:
            work.run()
            self.complete_flush(work)

    # Deleting

    def apply_retention(
        self, now_ms: int, policy: DeletionPolicy = RETENTION_POLICY
    ) -> list[SegmentDeletion]:
        """Delete the old segments that `policy` and log_start_offset let go.

        Call it every few minutes. Their files are renamed at once, and unlinked by
        delete_old_files. Raises KafkaStorageError if a roll finds the disk full, StorageFailure.
        """
        self._health.check()
        deletions = choose_deletions(
            self.segments,
            self.config,
            log_start_offset=self.log_start_offset,
            high_watermark=self._high_watermark,
            now_ms=now_ms,
            policy=policy,
        )
        if not deletions:
            return []
        if len(deletions) == len(self._segments):
            self.roll(now_ms=now_ms)
        # The start moves first: from here on nobody is sent to a segment that is about to go.
        self._raise_log_start(deletions[-1].next_offset)
        removed = self._segments.remove_first(len(deletions))
        self._mark_deleted(removed, now_ms + self.config.file_delete_delay_ms)
        return deletions

    def advance_log_start_offset(self, offset: int) -> None:
        """No longer serve the records below `offset`; whole segments of them go with retention.

        Raises:
            OffsetOutOfRange: above the high watermark.
        """
        if offset > self._high_watermark:
            raise OffsetOutOfRange(
                f"offset {offset} is above the high watermark {self._high_watermark}"
            )
        self._raise_log_start(offset)

    def _raise_log_start(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)

    def _mark_deleted(self, removed: tuple[LogSegment, ...], due_ms: int) -> None:
        try:
            self._segments.mark_deleted(removed, due_ms)
        except OSError as error:
            raise self._health.fail(f"renaming segments of {self.directory}", error) from error
        self._is_directory_dirty = True

    def delete_old_files(self, now_ms: int) -> int:
        """Unlink the deleted files that are due; returns how many. Raises StorageFailure."""
        try:
            return self._segments.unlink_deleted(now_ms)
        except OSError as error:
            raise self._health.fail(f"deleting files of {self.directory}", error) from error

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that have been idle too long; returns how many."""
        return self._producers.expire(now_ms, self._producer_id_expiration_ms)

    # Truncating, closing

    def truncate_to(self, offset: int) -> int:
        """Drop all records from `offset` on, as a follower whose leader never had them.

        A batch that holds `offset` goes as a whole. The caller then writes the recovery point
        checkpoint, before anything is appended: see LogDirectory.truncate_log.

        Returns the bytes dropped. Raises StorageFailure.
        """
        self._health.check()
        if offset >= self.log_end_offset:
            # An epoch that began here, but of which no record was appended, is not the leader's.
            self._drop_epochs_from(self.log_end_offset)
            return 0
        if offset <= self._segments.segments[0].base_offset:
            dropped = self.size_in_bytes
            self.truncate_fully_and_start_at(offset)
            return dropped
        self._truncations += 1
        removed = self._segments.remove_after(offset)
        self._active = self._segments.active
        dropped = sum(segment.size for segment in removed)
        try:
            dropped += self._active.truncate_to(offset)
            self._forget_from(self.log_end_offset)
        except OSError as error:
            raise self._health.fail(f"truncating {self.directory}", error) from error
        self._mark_deleted(removed, DUE_AT_ONCE)
        self._sync_truncation()
        return dropped

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the next record gets `offset`. Raises StorageFailure."""
        self._health.check()
        self._truncations += 1
        try:
            # Renamed before the new segment is made, which may have the name of an old one.
            self._segments.mark_deleted(self.segments, DUE_AT_ONCE)
            self._active = self._make_segment(offset, self._active.created_ms)
            self._active.create()
            self._segments.replace_all(self._active)
            self.log_start_offset = offset
            self._forget_from(offset)
        except OSError as error:
            raise self._health.fail(f"truncating {self.directory}", error) from error
        self._sync_truncation()

    def _sync_truncation(self) -> None:
        """A power loss must not bring back what was dropped: by then other records may be committed
        in its place, and the high watermark's checkpoint would call the old ones committed.

        Unlike Kafka: it does not wait for the disk here. Raises StorageFailure.
        """
        try:
            self._active.file.sync()
            sync_directory(self._file_system, self.directory)
        except OSError as error:
            raise self._health.fail(f"truncating {self.directory}", error) from error

    def _forget_from(self, offset: int) -> None:
        """Everything derived from records at `offset` and above. Raises OSError."""
        self.recovery_point = min(self.recovery_point, offset)
        if self.cleaner_offset is not None:
            self.cleaner_offset = min(self.cleaner_offset, offset)
        self._high_watermark = min(self._high_watermark, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.epochs.truncate_from_end(offset)
        offsets = snapshot_offsets(self._file_system, self.directory)
        self._producers, _ = load_producer_state(
            self._file_system, self.directory, self._segments, offsets
        )
        self._is_directory_dirty = True
        self._is_dirty = True

    def reconfigure(self, config: LogConfig) -> None:
        """Act on `config` from now on. Index settings take effect with the next segment."""
        self.config = config

    def relocate(self, directory: str) -> None:
        """The directory has been renamed to `directory`. Open files stay what they are."""
        self.directory = directory
        self.epochs.directory = directory
        self._segments.relocate(directory)

    def close(self, *, clean: bool) -> None:
        """Let go of all files. Slices that are being sent stay readable.

        With `clean`, make everything safe first, so that the next open needs no scan. Raises
        StorageFailure.
        """
        if clean:
            self._health.check()
            self.flush()
            if self._is_dirty:
                self._write_closing_files()
        for segment in self.segments:
            segment.release_file()
        self._health = ClosedLog(self.directory)

    def _write_closing_files(self) -> None:
        """After a clean stop nothing is scanned, so what a scan would rebuild must be safe too."""
        path = snapshot_path(self.directory, self.log_end_offset)
        try:
            self._active.close_indexes()
            write_snapshot(self._file_system, path, self._producers)
            indexes = (self._active.offset_index.path, self._active.time_index.path)
            for name in (*indexes, path):
                self._file_system.open(name).sync()
            sync_directory(self._file_system, self.directory)
        except OSError as error:
            raise self._health.fail(f"closing {self.directory}", error) from error
        self._is_dirty = False
