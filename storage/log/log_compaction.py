"""Compaction as seen by a log: the input of a cleaning, and the switch to its result.

    <base offset>.log.cleaned  written and fsynced by the cleaning; a start deletes it
    <base offset>.log.swap     complete: replaces the segments it was made from; a start finishes
                               this
    <base offset>.log          done

Invariants: after a crash at any moment, the log has the old segments or the new one, with the same
last record of each key and the same offsets.
Source: apache/kafka LocalLog.replaceSegments.

Not here: what is kept (cleaner), what a start makes of these files (log_loader), when (actors).
"""

from __future__ import annotations

from ...protocol.config_key import LONG_MAX
from ...protocol.records.record_batch import NO_TIMESTAMP
from ..cleaner.cleaner import CleanedSegment, Cleaning, CleaningAborted, UncleanableLog
from ..cleaner.cleaner_config import CleanerConfig
from ..cleaner.cleaner_filter import LastRecord
from ..disk.file_system import sync_directory
from ..disk.storage_failure import ClosedLog, StorageFailure, refused_or_failed
from ..segments.transaction_index import AbortedTransaction
from .local_log import LocalLog


class UnnotedGap(Exception):
    """The leader sent records with a gap, which a start would take for a loss: see note_gaps."""


class LogCompaction:
    """Compaction state of a log: its cleaner offset and its next cleaning. See cleaner_manager for
    when.
    """

    __slots__ = ("_local", "cleaner_offset")

    def __init__(self, local: LocalLog, cleaner_offset: int | None) -> None:
        self._local = local
        self.cleaner_offset = cleaner_offset
        """Offset below which the log was compacted; may be outside the log. None: never compacted,
        and without gaps; another value only once the checkpoint on the disk has one.
        """

    def note_gaps(self, log_start_offset: int) -> None:
        """Note that offsets may be missing, also in a copy of a compacted log: a start that scans
        this log must not take a gap for a loss.
        """
        if self.cleaner_offset is None:
            self.cleaner_offset = log_start_offset

    def check_gap(self) -> None:
        """Check that a gap may be appended. Raises UnnotedGap."""
        if self.cleaner_offset is None:
            raise UnnotedGap

    def on_truncation(self, offset: int) -> None:
        """Note that the log was truncated to `offset`."""
        if self.cleaner_offset is not None:
            self.cleaner_offset = min(self.cleaner_offset, offset)

    def begin_cleaning(
        self,
        cleaner: CleanerConfig,
        *,
        first_dirty_offset: int,
        end_offset: int,
        now_ms: int,
        seed: bytes,
    ) -> Cleaning:
        """Begin a compaction of the segments below `end_offset`, with the current state it needs.

        Its blocking steps may run in any thread; the caller passes each cleaned group to
        replace_segments, and then calls complete_cleaning. Before this the caller has written
        to the checkpoint that this log may have gaps (note_gaps). Arguments: see cleaner_manager;
        `seed` is SEED_BYTES random bytes. Raises StorageFailure.
        """
        local = self._local
        local.health.check()
        assert self.cleaner_offset is not None, "a start must know of gaps before there are any"
        return Cleaning(
            local.file_system,
            local.directory,
            [segment for segment in local.segments[:-1] if segment.base_offset < end_offset],
            config=local.config,
            cleaner=cleaner,
            first_dirty_offset=first_dirty_offset,
            end_offset=end_offset,
            last_records={
                producer_id: LastRecord(
                    entry.batches[-1].last_offset if entry.batches else -1, entry.epoch
                )
                for producer_id, entry in local.producers.entries.items()
            },
            later_aborted=self._aborted_later(end_offset),
            truncations=local.truncations,
            now_ms=now_ms,
            seed=seed,
        )

    def _aborted_later(self, end_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions that began below `end_offset`, with markers in segments from there
        on.
        """
        local, found = self._local, list[AbortedTransaction]()
        try:
            for segment in local.segments:
                if segment is local.segments.active or segment.base_offset >= end_offset:
                    found += segment.transaction_index.find(0, end_offset)[0]
        except OSError as error:
            raise refused_or_failed(local.health, f"reading {local.directory}", error) from error
        return found

    def replace_segments(self, cleaning: Cleaning, cleaned: CleanedSegment, now_ms: int) -> None:
        """Replace source segments by a cleaned one, whose files are durable.

        It does not wait for the disk, and reads of the old segments continue. A crash at any moment
        leaves the old segments or the new one: before the new log is renamed to .log.swap a start
        deletes it, afterwards a start finishes the swap. The renames become durable in their order,
        with the next fsync of the directory at the latest.

        Raises:
            CleaningAborted: the log has changed since it was cleaned; the new files are removed.
            StorageFailure: the disk failed.
        """
        local, segment, replaced = self._local, cleaned.segment, cleaned.replaced
        if not cleaned.is_changed:
            return
        local.health.check()
        try:
            if self._has_changed_since(cleaning) or not local.segments.holds(replaced):
                segment.files.unlink()
                raise CleaningAborted(f"{local.directory} has changed meanwhile")
            due_ms = now_ms + local.config.file_delete_delay_ms
            local.segments.swap_in(replaced, segment, due_ms)
        except OSError as error:
            raise local.health.fail(f"compacting {local.directory}", error) from error
        local.is_directory_dirty = True

    def sync_names(self) -> None:
        """Make renames of files durable. In any thread. Raises OSError."""
        self._local.health.check()
        sync_directory(self._local.file_system, self._local.directory)

    def complete_cleaning(self, cleaning: Cleaning) -> None:
        """Complete a cleaning, with all groups replaced: the dirty part begins at its end."""
        if cleaning.truncations == self._local.truncations:
            self.cleaner_offset = cleaning.end_offset

    def explain_cleaning_failure(self, cleaning: Cleaning, error: Exception) -> Exception:
        """Exception for an OSError or KafkaError in a step of `cleaning`: CleaningAborted,
        UncleanableLog or StorageFailure.
        """
        local = self._local
        if isinstance(local.health, ClosedLog) or self._has_changed_since(cleaning):
            return CleaningAborted(f"{local.directory} has changed meanwhile")
        if not isinstance(error, OSError):
            reading = cleaning.reading
            if reading is not None and not local.segments.holds((reading,)):
                return CleaningAborted(f"{reading.files.path} was repaired meanwhile")
            return UncleanableLog(f"{local.directory} cannot be compacted: {error}")
        failure = refused_or_failed(local.health, f"compacting {local.directory}", error)
        return failure if isinstance(failure, StorageFailure) else CleaningAborted(str(failure))

    def _has_changed_since(self, cleaning: Cleaning) -> bool:
        """Whether the log was truncated, or its directory renamed, since the cleaning began."""
        local = self._local
        return cleaning.truncations != local.truncations or cleaning.directory != local.directory

    def roll_if_overdue(self, now_ms: int) -> bool:
        """Close the active segment if a record in it must be compacted soon (max.compaction.lag.ms)
        and nothing is appended that would close it. Raises as roll.
        """
        config, active = self._local.config, self._local.segments.active
        if not config.is_compacted or config.max_compaction_lag_ms == LONG_MAX:
            return False
        first = active.first_timestamp if active.size else NO_TIMESTAMP
        if first <= 0 or now_ms - first <= config.max_compaction_lag_ms:
            return False
        self._local.roll(now_ms=now_ms)
        return True
