"""Opening of a log: loads segments, leader epochs and producers from the disk.

After a clean stop little more than the ends of files is read. After a crash everything from the
segment that holds the recovery point on is scanned, byte by byte, up to the first batch that is not
sound; the log is truncated there. Below the recovery point all was fsynced: a batch that is not
sound there is damage, and with `keeps_places` only that batch is lost.

Order, each step safe to repeat after a crash in it: leftovers of interrupted deletions and swaps,
segments, scan, removal of the segments behind the truncation (last one first, so that an unfinished
removal leaves no gap), epochs, producers.
Source: apache/kafka storage/.../internals/log/LogLoader.java.

Not here: log directories (log_directory).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...protocol.records.record_batch import RecordBatchHeader
from ..disk.file_system import FileSystem, sync_directory
from ..log_config import LogConfig
from ..producers.producer_recovery import (
    LoadedProducers,
    load_producer_state,
    remove_snapshots,
    snapshot_offsets,
)
from ..segments.batch_scan import MAX_RELATIVE_OFFSET, BatchScan, walk_headers
from ..segments.closed_segments import ClosedSegments
from ..segments.log_segment import LogSegment
from ..segments.lost_segments import (
    INDEX_SUFFIXES,
    ListedSegments,
    is_lost,
    mark_lost_durably,
    offset_of,
)
from ..segments.offset_index import ENTRY as OFFSET_ENTRY
from ..segments.segment_files import LOG_SUFFIX
from ..segments.segment_list import SegmentList
from ..segments.segment_runs import SegmentReader, find_runs
from ..segments.time_index import ENTRY as TIME_ENTRY
from ..segments.transaction_index import ENTRY as TRANSACTION_ENTRY
from .leader_epoch_cache import LeaderEpochCache, begins_before, contradicts, epochs_in
from .log_leftovers import MOST_RECORDS, LogLeftovers

LAST_OFFSET = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """Report of opening a log, for the broker's log. All zero after a clean stop."""

    segments_scanned: int = 0
    bytes_scanned: int = 0
    bytes_truncated: int = 0
    segments_deleted: int = 0
    indexes_rebuilt: int = 0
    batches_replayed: int = 0
    """Batches whose headers were read to update the producer state."""
    is_damaged: bool = False
    """Whether something other than one torn batch at the end was damaged."""
    reasons: tuple[str, ...] = ()
    """Messages about everything that differs from a clean stop."""


@dataclass(slots=True)
class LoadedLog:
    segments: SegmentList
    epochs: LeaderEpochCache
    producers: LoadedProducers
    closed: ClosedSegments
    log_start_offset: int
    recovery_point: int
    report: RecoveryReport


class LogLoader:
    """Loads one partition directory, which exists. One use: call load(). It raises OSError."""

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        *,
        config: LogConfig,
        recovery_point: int,
        clean: bool,
        now_ms: int,
        log_start_offset: int | None,
        may_have_gaps: bool,
        keeps_places: bool = False,
    ) -> None:
        """`log_start_offset`: from the checkpoint, or None. `keeps_places`: lost durable records
        leave a gap, which readers and other replicas see; otherwise the log continues without it.
        """
        self._file_system = file_system
        self._directory = directory
        self._config = config
        self._recovery_point = recovery_point
        self._clean = clean
        self._now_ms = now_ms
        self._known_start = log_start_offset
        self._log_start_offset = log_start_offset or 0
        self._safe_end = LAST_OFFSET if clean else recovery_point
        """Offset below which everything was durable."""
        self._kept_end = max(recovery_point, self._log_start_offset) if keeps_places else 0
        """Offset below which a flaw is damage, not the effect of a crash, and nothing behind it is
        truncated.
        """
        self._may_have_gaps = may_have_gaps
        self._keeps_places = keeps_places
        self._reasons: list[str] = []
        self._scanned_from: int | None = None
        """Base offset of the first scanned segment; None: none was scanned."""
        self._segments_scanned = 0
        self._bytes_scanned = 0
        self._bytes_truncated = 0
        self._segments_deleted = 0
        self._is_damaged = False
        self._indexes_rebuilt = 0
        self._without_index: list[LogSegment] = []
        """Segments whose transaction indexes are rebuilt."""
        self._transaction_index_sizes: dict[int, int] = {}
        """Sizes in bytes of the existing transaction indexes, by base offset."""
        self._lost: set[LogSegment] = set()
        self._holed: set[LogSegment] = set()
        """Segments with undamaged batches behind damaged ones."""

    def load(self) -> LoadedLog:
        self._listed = ListedSegments(
            self._file_system,
            self._directory,
            counts=self._keeps_places,
            safe_end=self._safe_end,
        )
        leftovers = LogLeftovers(
            self._file_system,
            self._directory,
            self._listed,
            safe_end=self._safe_end,
            log_start_offset=self._known_start,
            keeps_places=self._keeps_places,
        )
        leftovers.remove()
        self._reasons += leftovers.reasons
        self._is_damaged = leftovers.is_damaged
        epochs = LeaderEpochCache(self._file_system, self._directory)
        segments, unsound = self._open_segments()
        found_epochs: list[tuple[int, int]] = []
        if segments and not self._clean:
            segments = self._recover(segments, epochs, found_epochs)
        else:
            segments = self._check(segments, unsound, epochs, found_epochs)
        if segments and segments[-1].next_offset < self._log_start_offset:
            self._note(
                f"the log ends at {segments[-1].next_offset}, "
                f"before its start {self._log_start_offset}"
            )
            self._delete(segments, 0)
            segments = []
        if not segments:
            # The state of producers is dropped with their records, as in Kafka.
            remove_snapshots(
                self._file_system,
                self._directory,
                set(snapshot_offsets(self._file_system, self._directory)),
            )
            sync_directory(self._file_system, self._directory)
            segments = [self._create_segment(self._first_offset())]
        end = segments[-1].next_offset
        if self._keeps_places and not self._clean and end < self._recovery_point:
            self._note(
                f"{self._directory} ends at {end}, and was flushed to {self._recovery_point}"
            )
            self._is_damaged = True
        if self._keeps_places and self._clean:
            self._keep_end(segments)
        log = SegmentList(self._file_system, segments)
        log.unlink_later([self._path(name) for name in leftovers.waiting])
        log_start_offset = max(self._log_start_offset, segments[0].base_offset)
        log_end_offset = log.active.next_offset
        self._load_epochs(epochs, found_epochs, log, log_start_offset)
        producers = self._load_producers(log)
        closed = self._listed.closed(log.segments, self._without_index)
        for segment in segments:
            segment.files.release()
        return LoadedLog(
            log,
            epochs,
            producers,
            closed,
            log_start_offset,
            min(self._recovery_point, log_end_offset),
            self._report(producers.replayed),
        )

    def _report(self, replayed: int) -> RecoveryReport:
        return RecoveryReport(
            segments_scanned=self._segments_scanned,
            bytes_scanned=self._bytes_scanned,
            bytes_truncated=self._bytes_truncated,
            segments_deleted=self._segments_deleted,
            is_damaged=self._is_damaged,
            indexes_rebuilt=self._indexes_rebuilt,
            batches_replayed=replayed,
            reasons=tuple(self._reasons),
        )

    def _note(self, reason: str) -> None:
        self._reasons.append(reason)

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _first_offset(self) -> int:
        """First offset of a log without segments. After a clean stop its records are lost, and the
        log start may be within a batch.
        """
        start = self._log_start_offset
        if self._keeps_places and self._clean and start < self._recovery_point:
            return max(0, start - MOST_RECORDS)
        return start

    def _keep_end(self, segments: list[LogSegment]) -> None:
        """Keep the end of the log at its recovery point after a clean stop: if records before it
        are missing, a new segment begins there, so that no offset is assigned twice.
        """
        end = segments[-1].next_offset
        if end >= self._recovery_point:
            return
        self._note(
            f"{segments[-1].files.path} ends at {end}, where a clean stop left "
            f"{self._recovery_point}: records are lost here"
        )
        last = segments[-1]
        if last.size:
            last.close_indexes()
        else:
            mark_lost_durably(self._file_system, last.files.path)
            last.size = self._file_system.size(last.files.path)
        segments.append(self._create_segment(self._recovery_point))

    def _open_segments(self) -> tuple[list[LogSegment], list[LogSegment]]:
        """(all segments ascending, those whose indexes are absent or have a wrong size)."""
        names = set(self._file_system.list_directory(self._directory))
        bases = sorted(offset_of(name) for name in names if name.endswith(LOG_SUFFIX))
        segments: list[LogSegment] = []
        unsound: list[LogSegment] = []
        for base_offset, following in zip(bases, (*bases[1:], None), strict=False):
            stem = f"{base_offset:020d}"
            log_size = self._file_system.size(self._path(stem + LOG_SUFFIX))
            sizes = [
                self._file_system.size(self._path(stem + suffix)) if stem + suffix in names else -1
                for suffix in INDEX_SUFFIXES
            ]
            is_empty = log_size == 0 or is_lost(self._file_system, self._path(stem + LOG_SUFFIX))
            # An empty segment needs no index, and entries of an existing one are wrong.
            sound = is_empty or all(
                size >= 0 and size % entry == 0
                for size, entry in zip(sizes, (OFFSET_ENTRY.size, TIME_ENTRY.size), strict=False)
            )
            if sound and not is_empty and (line := self._listed.line(base_offset, following)):
                sound = sizes[1] == line.times * TIME_ENTRY.size
            segment = LogSegment(
                self._file_system,
                self._directory,
                base_offset,
                config=self._config,
                now_ms=self._now_ms,
                size=log_size,
                next_offset=base_offset if following is None else following,
                index_sizes=(
                    *((sizes[0], sizes[1]) if sound and not is_empty else (0, 0)),
                    max(sizes[2], 0),
                ),
            )
            if log_size and is_empty:
                self._lost.add(segment)
            if sizes[2] > 0:
                self._transaction_index_sizes[base_offset] = sizes[2]
            segments.append(segment)
            if not sound:
                unsound.append(segment)
        return segments, unsound

    def _check_transactions(self, segment: LogSegment) -> None:
        """Check that the transaction index of a segment that is not scanned, if there is one, is
        valid.
        """
        size = self._transaction_index_sizes.get(segment.base_offset, 0)
        index = segment.transaction_index
        if (
            size % TRANSACTION_ENTRY.size
            or not index.is_plausible(segment.base_offset, segment.next_offset)
            or self._listed.has_other_transactions(segment)
        ):
            self._note(f"{index.path} was absent or damaged; rebuilt from the log")
            self._forget_transactions(segment)

    def _forget_transactions(self, segment: LogSegment) -> None:
        segment.transaction_index.forget()
        self._without_index.append(segment)

    def _check(
        self,
        segments: list[LogSegment],
        unsound: list[LogSegment],
        epochs: LeaderEpochCache,
        found_epochs: list[tuple[int, int]],
    ) -> list[LogSegment]:
        """Check segments after a clean stop: indexes exist, and the log ends with a whole batch."""
        for segment in unsound:
            if segment is not segments[-1]:
                self._rebuild_indexes(segment)
        if not segments:
            return segments
        active = segments[-1]
        is_unlike = active in unsound or not active.load_tail()
        if is_unlike or (self._keeps_places and active.next_offset != self._recovery_point):
            self._note(
                f"the indexes or the end of {active.files.path} are not as a clean stop leaves them"
            )
            is_ahead = not is_unlike and active.next_offset > self._recovery_point
            if self._keeps_places and not is_ahead and self._is_broken(active):
                # Sound batches behind the damage are kept: appends go to another segment.
                active.next_offset = self._recovery_point
                if active in unsound:
                    self._rebuild_indexes(active)
                else:  # only the transaction index, which is kept, covers the damaged part
                    self._index_again(active)
                segments = [*segments, self._create_segment(self._recovery_point)]
            else:
                self._scan(active, epochs.epoch_at(active.base_offset - 1), found_epochs)
                self._indexes_rebuilt += 1
        for segment in segments:
            if segment not in self._without_index:
                self._check_transactions(segment)
        return segments

    def _is_broken(self, active: LogSegment) -> bool:
        """Whether the log file of a segment that ended at the recovery point is damaged, too."""
        end = self._recovery_point
        if end <= active.base_offset or not active.size:
            return False
        reader = SegmentReader(
            active.file, active.size, end_offset=end, has_gaps=self._may_have_gaps
        )
        runs = find_runs(reader, active.base_offset)
        return len(runs) != 1 or runs[0].size != active.size or runs[0].next_offset != end

    def _recover(
        self,
        segments: list[LogSegment],
        epochs: LeaderEpochCache,
        found_epochs: list[tuple[int, int]],
    ) -> list[LogSegment]:
        """Recover after a crash: scan from the segment with the recovery point, truncate at the
        first flaw that is not in durable records.
        """
        first = max(
            (
                number
                for number, segment in enumerate(segments)
                if segment.base_offset <= self._recovery_point
            ),
            default=0,
        )
        for segment in segments[:first]:
            stored = (len(segment.offset_index), len(segment.time_index))
            if stored == (0, 0) and segment.size and segment not in self._lost:
                self._rebuild_indexes(segment)
            else:
                self._check_transactions(segment)
        expected = segments[first].base_offset
        epoch = epochs.epoch_at(expected - 1)
        for number in range(first, len(segments)):
            segment = segments[number]
            # Without compaction offsets have no gaps: one between two files means that the end of
            # the first, which was not fsynced, did not survive.
            gap = segment.base_offset > max(expected, self._kept_end) and not self._may_have_gaps
            if segment.base_offset < expected or gap:
                self._note(f"{segment.files.path} begins where {expected} was expected")
                self._is_damaged = True
                return self._delete(segments, number)
            if number < len(segments) - 1 and segment in self._lost:
                expected = segments[number + 1].base_offset
                continue
            following = segments[number + 1].base_offset if number < len(segments) - 1 else None
            epoch, whole = self._scan(segment, epoch, found_epochs, following)
            if not whole:
                segments = self._delete(segments, number + 1)
                break
            expected = segment.next_offset
            if number < len(segments) - 1:
                segment.close_indexes()
                segment.files.release()
        if (
            last := segments[-1]
        ) in self._holed:  # as after a clean stop: appends go to another one
            last.close_indexes()
            segments = [*segments, self._create_segment(last.next_offset)]
        return segments

    def _scan(
        self,
        segment: LogSegment,
        epoch: int,
        found_epochs: list[tuple[int, int]],
        following: int | None = None,
    ) -> tuple[int, bool]:
        """Recover one segment; `following`: base offset of the next one. Returns the last leader
        epoch, and whether nothing was truncated.
        """
        if self._scanned_from is None:
            self._scanned_from = segment.base_offset
        size = segment.size
        has_markers = len(segment.transaction_index) > 0
        base_offset = segment.base_offset
        for _, header in walk_headers(segment.file, 0, size):
            # A healed segment has no deleted records any more.
            if base_offset < header.base_offset <= self._log_start_offset:
                base_offset = header.base_offset
            break
        scan = BatchScan(
            segment.file,
            base_offset=base_offset,
            leader_epoch=epoch,
            allow_gaps=self._may_have_gaps,
        )
        for header in segment.recover(scan):
            # An epoch that continues from before the scan did not begin here.
            if header.leader_epoch != epoch:
                epoch = header.leader_epoch
                found_epochs.append((epoch, header.base_offset))
            has_markers |= header.is_control
        if scan.reason is not None:
            for header in self._keep_behind(segment, size, epoch, following):
                if header.leader_epoch != epoch:
                    epoch = header.leader_epoch
                    found_epochs.append((epoch, header.base_offset))
                has_markers |= header.is_control
            if segment.size < size:
                segment.file.truncate(segment.size)
        if has_markers and segment not in self._without_index:
            self._forget_transactions(segment)
        self._segments_scanned += 1
        self._bytes_scanned += size
        if scan.reason is None:
            return epoch, True
        self._bytes_truncated += size - segment.size
        self._is_damaged = self._is_damaged or not scan.is_cut or segment in self._holed
        if segment in self._holed:
            self._note(
                f"{segment.files.path} is damaged at byte {scan.position}: {scan.reason}; it is "
                "below what was flushed, and what is sound behind it stays"
            )
        if segment.size < size:
            path = segment.files.path
            self._note(f"{path} cut from {size} to {segment.size} bytes: {scan.reason}")
        return epoch, segment.size == size

    def _keep_behind(
        self, segment: LogSegment, size: int, epoch: int, following: int | None
    ) -> list[RecordBatchHeader]:
        """Keep undamaged batches behind a flaw in durable or deleted records: they stay in
        `segment`, and a following segment that begins in such records stays. Returns their headers.

        A run that begins above is dropped: unflushed data is intact only up to some batch, and
        bytes behind that may be from any time.
        """
        known = segment.next_offset
        if known >= self._kept_end:
            return []
        end = segment.base_offset + MAX_RELATIVE_OFFSET if following is None else following
        reader = SegmentReader(segment.file, size, end_offset=end, has_gaps=self._may_have_gaps)
        kept: list[RecordBatchHeader] = []
        position, expected = segment.size, known
        for run in find_runs(reader, segment.base_offset, self._log_start_offset):
            if run.first_offset > max(expected, self._kept_end):
                break
            for at, header in walk_headers(segment.file, run.position, run.position + run.size):
                if header.base_offset < known:
                    continue
                if header.leader_epoch < epoch and header.base_offset >= self._kept_end:
                    break  # as in BatchScan
                kept.append(header)
                position, expected = at + header.size, header.next_offset
                epoch = header.leader_epoch
        if following is not None and following <= self._kept_end:
            position, expected = size, following  # reads detect what is missing
        if position > segment.size:
            segment.size, segment.next_offset = position, expected
            self._index_again(segment)
            self._holed.add(segment)
        return kept

    def _index_again(self, segment: LogSegment) -> None:
        next_offset = segment.next_offset
        segment.rebuild_indexes()
        segment.next_offset = next_offset

    def _rebuild_indexes(self, segment: LogSegment) -> None:
        self._index_again(segment)
        # As in Kafka, an operator who deletes the indexes gets all of them rebuilt. A segment
        # without aborted transactions looks the same as one with a deleted transaction index.
        self._forget_transactions(segment)
        self._indexes_rebuilt += 1
        self._note(f"the indexes of {segment.files.path} were absent or damaged")

    def _delete(self, segments: list[LogSegment], start: int) -> list[LogSegment]:
        deleted = segments[start:]
        self._bytes_truncated += sum(segment.size for segment in deleted)
        self._segments_deleted += len(deleted)
        self._is_damaged = self._is_damaged or any(segment.size for segment in deleted)
        if deleted:
            self._listed.forget_from(deleted[0].base_offset)
            removed = SegmentList(self._file_system, deleted)
            removed.mark_deleted(reversed(deleted), self._now_ms)
            sync_directory(self._file_system, self._directory)
            removed.unlink_deleted(self._now_ms)
        return segments[:start]

    def _create_segment(self, offset: int) -> LogSegment:
        segment = LogSegment(
            self._file_system,
            self._directory,
            offset,
            config=self._config,
            now_ms=self._now_ms,
            size=0,
            next_offset=offset,
        )
        segment.files.create()
        return segment

    def _load_epochs(
        self,
        epochs: LeaderEpochCache,
        found_epochs: list[tuple[int, int]],
        log: SegmentList,
        log_start_offset: int,
    ) -> None:
        if epochs.is_damaged or (not epochs.entries and log.size_in_bytes):
            self._note(f"{epochs.path} was absent or damaged; rebuilt from the log")
            epochs.replace_all(epochs_in(log.segments))
        elif epochs.entries and begins_before(log.segments, log_start_offset, epochs.entries[0][1]):
            # Deleted records are back, as the log start was not in the checkpoint at the crash;
            # their epochs may be missing, or begin too late.
            self._note(f"{epochs.path} begins after the log; rebuilt from the log")
            epochs.replace_all(epochs_in(log.segments))
        elif self._scanned_from is None or self._holed:
            epochs.assign_all(found_epochs)
        else:
            # A power loss may have restored an older file. The scan has found the epochs of the
            # records it read, and those before were durable with their records.
            known = [each for each in epochs.entries if each[1] < self._scanned_from]
            epochs.replace_all([*known, *found_epochs])
        if self._keeps_places and contradicts(log, epochs.entries, log_start_offset):
            self._note(f"{epochs.path} is inconsistent with the log; rebuilt from it")
            epochs.replace_all(epochs_in(log.segments))
        epochs.truncate_from_end(log.active.next_offset)
        epochs.truncate_from_start(log_start_offset)

    def _load_producers(self, log: SegmentList) -> LoadedProducers:
        offsets = snapshot_offsets(self._file_system, self._directory)
        # Only segments that are still in the log; also those rebuilt without a scan.
        without_index = [segment for segment in self._without_index if segment in log.segments]
        loaded = load_producer_state(
            self._file_system,
            self._directory,
            log,
            offsets,
            without_index=without_index,
            damaged=self._holed,
        )
        for segment in without_index:
            # The old file is replaced only now: a start after a crash before this finds it damaged
            # again. The active segment's, too: its entries for truncated records would be trusted
            # once the segment is closed.
            segment.transaction_index.replace_file()
        if without_index:
            sync_directory(self._file_system, self._directory)
        # A snapshot is deleted with the segment that begins at its offset. Others are left from
        # earlier stops; the newest of all is kept for the next start.
        bases = {segment.base_offset for segment in log.segments}
        stray = [offset for offset in offsets if offset <= loaded.state.end_offset][:-1]
        remove_snapshots(self._file_system, self._directory, set(stray) - bases)
        return loaded
