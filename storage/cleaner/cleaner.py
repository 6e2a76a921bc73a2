"""Cleaner of one log: keeps the last record of each key, in fewer and smaller segments.

Two passes. The first reads the dirty part, from the first dirty offset on, and stores the last
offset of each key in an offset map of bounded size; if the map is full, the dirty part of this
cleaning ends there. The second reads all segments up to that end, from the oldest on, in groups
that fit into one new segment, writes the remaining records to a new segment's files,
`<base offset>.log.cleaned` and so on, and fsyncs them.

Invariants:
    A record is removed only if a later one with its key is in the dirty part, if it has no value
    and its delete horizon has passed, if it has no key, or if its transaction was aborted. Groups
    are cleaned in order and a failed one ends the cleaning, so an old value never outlives the
    tombstone that deletes it.
    Offsets never change, and no file of the log is changed: see LogCompaction.replace_segments for
    how the new segment takes the place of the old ones.

Blocking: the methods of Cleaning run in any thread, one at a time, and open their own files.
Memory: the map, and a few chunks of `read_bytes` (or of the largest batch, decompressed).
Source: apache/kafka core/.../log/LogCleaner.scala (Cleaner).

Not here: which log (cleaner_manager), threads, throttle, time (actors/replication/log_cleaner).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..disk.file_system import FileSystem
from ..log_config import LogConfig
from ..segments.batch_scan import MAX_RELATIVE_OFFSET
from ..segments.log_segment import LogSegment
from ..segments.offset_index import ENTRY as OFFSET_ENTRY
from ..segments.segment_files import CLEANED_SUFFIX
from ..segments.time_index import ENTRY as TIME_ENTRY
from ..segments.transaction_index import (
    TRANSACTION_INDEX_SUFFIX,
    AbortedTransaction,
    read_transaction_index,
)
from .cleaner_config import CleanerConfig
from .cleaner_filter import BatchFilter, LastRecord, StoredBatch, index_batches, read_batches
from .cleaner_loops import make_offset_map
from .cleaner_rows import OffsetMap
from .cleaner_transactions import CleanedTransactions

MOST_SEGMENTS = 64
"""Most segments in one group; their files are renamed in one step, which others wait for."""
TYPICAL_RECORD_BYTES = 100

Progress = Callable[[int], None]
"""Called with each number of bytes read or written; it may wait, or raise to end the cleaning."""


class CleaningAborted(Exception):
    """The log was truncated, closed or deleted meanwhile, or the cleaner stops. Retry later."""


class UncleanableLog(Exception):
    """The log is damaged. Its undamaged records are still served, but it is no longer compacted."""


@dataclass(slots=True)
class CleaningReport:
    """Result of a cleaning, for the broker's log and its metrics."""

    map_bytes_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    keyless_records: int = 0
    """Records dropped because they have no key."""
    segments_before: int = 0
    segments_after: int = 0
    buffer_utilization: float = 0.0


@dataclass(frozen=True, slots=True)
class CleanedSegment:
    """Segment that replaces `replaced`, if it differs."""

    segment: LogSegment
    replaced: tuple[LogSegment, ...]
    is_changed: bool


class Cleaning:
    """One cleaning of one log. Made by LogCompaction.begin_cleaning."""

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        segments: Sequence[LogSegment],
        *,
        config: LogConfig,
        cleaner: CleanerConfig,
        first_dirty_offset: int,
        end_offset: int,
        last_records: dict[int, LastRecord],
        later_aborted: Sequence[AbortedTransaction],
        truncations: int,
        now_ms: int,
        seed: bytes,
    ) -> None:
        self._file_system = file_system
        self.directory = directory
        self._segments = tuple(segments)
        ends = [*(segment.base_offset for segment in segments[1:]), end_offset]
        self._ends = dict(zip((segment.base_offset for segment in segments), ends, strict=True))
        """One past the last offset that a segment can have, by its base offset."""
        self._config = config
        self._cleaner = cleaner
        self._last_records = last_records
        self._later_aborted = later_aborted
        self._now_ms = now_ms
        self._seed = seed
        self._offsets: OffsetMap | None = None
        self._filter: BatchFilter | None = None
        self._transactions = CleanedTransactions(())
        self.first_dirty_offset = first_dirty_offset
        self.uncleanable_offset = end_offset
        self.truncations = truncations
        self.report = CleaningReport(segments_before=len(segments))
        self.reading: LogSegment | None = None
        """The segment that is being read, or was read last: the one that failed, after a failure.
        """

    @property
    def end_offset(self) -> int:
        """Offset from which the log is dirty after this cleaning; known once the map is built."""
        assert self._offsets is not None
        return self._offsets.latest_offset + 1

    def build_offset_map(self, progress: Progress) -> None:
        """Do the first pass: build the offset map.

        Raises:
            CorruptMessage, InvalidRecord: the log is damaged: it cannot be cleaned.
            OSError, and whatever `progress` raises.
        """
        start = self.first_dirty_offset
        dirty = [
            segment
            for segment in self._segments
            if self._ends[segment.base_offset] > start
            and segment.base_offset < self.uncleanable_offset
        ]
        most = min(self._cleaner.most_keys, self.uncleanable_offset - start)
        size = sum(segment.size for segment in self._segments)
        self._offsets = make_offset_map(
            most,
            self._seed,
            record_count=min(most + size // TYPICAL_RECORD_BYTES, self.uncleanable_offset),
        )
        self._offsets.latest_offset = start - 1
        aborted = self._aborted()
        transactions = CleanedTransactions(aborted)
        for segment in dirty:
            self.reading = segment
            if not self._index(segment, transactions, progress):
                break
            # Offsets that are missing at the end of a segment have no records to index.
            self._offsets.latest_offset = self._ends[segment.base_offset] - 1
        self.report.buffer_utilization = self._offsets.entries / self._cleaner.most_keys
        self._transactions = CleanedTransactions(aborted)
        self._filter = BatchFilter(
            self._offsets,
            self._transactions,
            now_ms=self._now_ms,
            delete_retention_ms=self._config.delete_retention_ms,
            last_records=self._last_records,
            end_offset=self.uncleanable_offset,
        )

    def _index(
        self, segment: LogSegment, transactions: CleanedTransactions, progress: Progress
    ) -> bool:
        assert self._offsets is not None
        file = self._file_system.open(segment.files.path)
        for read, batches in read_batches(file, segment.size, self._cleaner.read_bytes):
            progress(read)
            self.report.map_bytes_read += read
            if not index_batches(batches, self._offsets, transactions, self.first_dirty_offset):
                return False
        return True

    def _aborted(self) -> list[AbortedTransaction]:
        found = [
            transaction
            for segment in self._segments
            for transaction in read_transaction_index(
                self._file_system, segment.files.path_prefix + TRANSACTION_INDEX_SUFFIX
            )
        ]
        # An aborted record must not supersede an older one, even if its marker is not cleaned yet.
        return [*found, *self._later_aborted]

    def groups(self) -> list[tuple[LogSegment, ...]]:
        """The segments below end_offset, in runs that fit into one segment each."""
        groups: list[list[LogSegment]] = []
        limit = self._config.segment_index_bytes
        sizes = [0, 0, 0]
        for segment in self._segments:
            if segment.base_offset >= self.end_offset:
                break
            more = [
                segment.size,
                len(segment.offset_index) * OFFSET_ENTRY.size,
                len(segment.time_index) * TIME_ENTRY.size,
            ]
            fits = bool(groups) and (
                len(groups[-1]) < MOST_SEGMENTS
                and sizes[0] + more[0] <= self._config.segment_bytes
                and sizes[1] + more[1] <= limit
                and sizes[2] + more[2] <= limit
                and self._ends[segment.base_offset] - 1 - groups[-1][0].base_offset
                <= MAX_RELATIVE_OFFSET
            )
            if fits:
                groups[-1].append(segment)
                sizes = [size + added for size, added in zip(sizes, more, strict=True)]
            else:
                groups.append([segment])
                sizes = more
        return [tuple(group) for group in groups]

    def clean_group(self, group: tuple[LogSegment, ...], progress: Progress) -> CleanedSegment:
        """Do the second pass through one group: write the remaining records, durably.

        Raises:
            CorruptMessage, InvalidRecord: the log is damaged: it cannot be cleaned.
            OSError, and whatever `progress` raises. Nothing is left behind.
        """
        assert self._filter is not None
        target = LogSegment(
            self._file_system,
            self.directory,
            group[0].base_offset,
            config=self._config,
            now_ms=self._now_ms,
            size=0,
            next_offset=group[0].base_offset,
            suffix=CLEANED_SUFFIX,
        )
        try:
            target.files.create()
            is_changed = len(group) > 1
            for segment in group:
                self.reading = segment
                file = self._file_system.open(segment.files.path)
                for read, batches in read_batches(file, segment.size, self._cleaner.read_bytes):
                    progress(read)
                    is_changed |= self._copy(batches, target, progress)
                self.report.bytes_read += segment.size
            aborted, self._transactions.retained = self._transactions.retained, []
            target.next_offset = self._ends[group[-1].base_offset]
            if is_changed:
                self._make_durable(target, aborted)
            else:
                target.files.unlink()  # nothing would change: the old segment stays
        except BaseException:
            target.files.unlink()
            raise
        self.report.keyless_records = self._filter.keyless
        self.report.segments_after += 1
        return CleanedSegment(target, group, is_changed)

    def _copy(self, batches: list[StoredBatch], target: LogSegment, progress: Progress) -> bool:
        assert self._filter is not None
        self.report.records_read += sum(batch.header.record_count for batch in batches)
        is_changed = False
        for cleaned in self._filter.filter(batches):
            is_changed |= cleaned.is_changed
            if cleaned.content:
                target.append_run(cleaned.content, cleaned.headers)
                self.report.bytes_written += len(cleaned.content)
                self.report.records_written += cleaned.record_count
                progress(len(cleaned.content))
        return is_changed

    def _make_durable(self, target: LogSegment, aborted: list[AbortedTransaction]) -> None:
        """Make the new files, and their names, durable before they replace others."""
        for transaction in aborted:
            target.transaction_index.add(transaction)
        target.close_indexes()
        if aborted:
            self._file_system.open(target.transaction_index.path).sync()
        for path in (target.offset_index.path, target.time_index.path):
            self._file_system.open(path).sync()
        target.file.sync()
