"""Flushing of a log: its recovery point, and the work that advances it.

Invariants: recovery_point <= log_end_offset. It advances only after an fsync has returned, and
never on loading.

Flush order, by which a crash at any moment loses at most what was not flushed: the files that hold
records in [recovery point, end), with the indexes and the snapshot of segments that were closed;
then the directory, if a segment was made; then the recovery point moves; then (log_directory) its
checkpoint is written.

Not here: when to flush besides flush.messages and flush.ms (replication/logs/log_flusher).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..disk.file_system import File
from ..disk.storage_failure import DirectoryHealth, refused_or_failed
from ..producers.producer_recovery import snapshot_path
from ..segments.closed_segments import CLOSED_SEGMENTS
from ..segments.log_segment import LogSegment
from .local_log import LocalLog


class FlushWork:
    """Open files to fsync in this order: those with records, then the directory that names them.

    The part of a flush that waits for the disk: it can run in a thread while the log is used. It
    holds the files itself, so rolls, deletions and truncations in the meantime do not matter.
    """

    __slots__ = ("_files", "_health", "truncations", "up_to")

    def __init__(
        self,
        files: Sequence[File],
        health: DirectoryHealth,
        *,
        up_to: int,
        truncations: int,
    ) -> None:
        self._files = files
        self._health = health
        self.up_to = up_to
        """Offset below which records are durable after run()."""
        self.truncations = truncations
        """Number of the log's truncations when this was begun."""

    def run(self) -> None:
        """Return when everything is on the disk. Safe in any thread; touches only its own files.

        Raises:
            StorageFailure: an fsync failed now or before. The directory is offline: another fsync
                could succeed although the pages are gone.
        """
        self._health.check()
        try:
            for file in self._files:
                file.sync()
        except OSError as error:
            raise self._health.fail("fsync", error) from error


class LogFlushing:
    """A log's recovery point, and its flushes."""

    __slots__ = ("_local", "is_dirty", "recovery_point", "unflushed_since_ms")

    def __init__(self, local: LocalLog, *, recovery_point: int, is_dirty: bool) -> None:
        self._local = local
        self.recovery_point = recovery_point
        """Recovery point: records below it are durable."""
        self.is_dirty = is_dirty
        """Whether the files of a clean stop have to be written."""
        self.unflushed_since_ms: int | None = None

    def on_append(self, now_ms: int) -> None:
        """Note an append. Only the first one after the begin of a flush changes anything."""
        self.is_dirty = True
        if self.unflushed_since_ms is None:
            self.unflushed_since_ms = now_ms

    def on_truncation(self, offset: int) -> None:
        """Note that the log was truncated to `offset`."""
        self.recovery_point = min(self.recovery_point, offset)
        self.is_dirty = True

    @property
    def unflushed_records(self) -> int:
        return self._local.segments.active.next_offset - self.recovery_point

    def needs_flush(self, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms asks for a flush now."""
        since, config = self.unflushed_since_ms, self._local.config
        return self.unflushed_records >= config.flush_messages or (
            since is not None and now_ms - since >= config.flush_ms
        )

    def begin_flush(self) -> FlushWork | None:
        """Work that makes all current records durable; None if they are.

        Call run() on it, in any thread, then complete_flush() here.

        Raises:
            KafkaStorageError: the disk is full; nothing was changed.
            StorageFailure: the disk failed.
        """
        local = self._local
        segments, health = local.segments, local.health
        health.check()
        log_end_offset = segments.active.next_offset
        if self.recovery_point == log_end_offset and not local.is_directory_dirty:
            return None
        unflushed = segments.from_offset(self.recovery_point)
        try:
            for segment in unflushed:
                segment.transaction_index.write_out()
        except OSError as error:
            raise refused_or_failed(health, f"flushing {local.directory}", error) from error
        files: list[File] = []
        try:
            for segment in unflushed:
                files.append(segment.file)
                files += self._unsynced_transactions(segment)
                if segment is not segments.active:
                    files += self._closing_files(segment)
            files += self._unsynced_list()
            if local.is_directory_dirty:
                files.append(local.file_system.open_directory(local.directory))
        except OSError as error:
            raise health.fail(f"opening files of {local.directory}", error) from error
        work = FlushWork(files, health, up_to=log_end_offset, truncations=local.truncations)
        # If the work fails the directory is offline for good, so this need not be taken back.
        local.is_directory_dirty = False
        self.unflushed_since_ms = None
        return work

    def _closing_files(self, segment: LogSegment) -> list[File]:
        """Files that are written once when a segment is closed. After a crash nothing below the
        recovery point is scanned, so its indexes must be as durable as its records. The active
        segment's need not: it is always scanned.
        """
        file_system = self._local.file_system
        snapshot = snapshot_path(self._local.directory, segment.next_offset)
        paths = (segment.offset_index.path, segment.time_index.path, snapshot)
        return [file_system.open(path) for path in paths if file_system.exists(path)]

    def _unsynced_transactions(self, segment: LogSegment) -> list[File]:
        """The transaction index if it is not synced, even of the active segment: when that is
        closed and ends at the recovery point, neither a later flush nor a start reads it again.
        """
        index = segment.transaction_index
        if not index.is_unsynced:
            return []
        index.is_unsynced = False
        if not self._local.file_system.exists(index.path):
            return []
        self._local.is_directory_dirty = True
        return [self._local.file_system.open(index.path)]

    def _unsynced_list(self) -> list[File]:
        """The list of segments if it is not synced: before the recovery point passes a segment, its
        line must be as durable as its records.
        """
        local = self._local
        path = f"{local.directory}/{CLOSED_SEGMENTS}"
        if not local.closed.is_unsynced or not local.file_system.exists(path):
            return []
        local.closed.is_unsynced = False  # for its name, the writer marks the directory dirty
        return [local.file_system.open(path)]

    def complete_flush(self, work: FlushWork) -> None:
        """Advance the recovery point, after work.run() has returned without an error."""
        # Records that were truncated meanwhile may have been replaced by others, not synced.
        if work.truncations == self._local.truncations:
            self.recovery_point = max(self.recovery_point, work.up_to)

    def flush(self) -> None:
        """Do all three steps of a flush, waiting for the disk. Raises StorageFailure."""
        work = self.begin_flush()
        if work is not None:
            work.run()
            self.complete_flush(work)
