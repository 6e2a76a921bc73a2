"""Damage of a log: records that cannot be read, and the errors that readers get there.

Segments that exist when the process starts are not read in full then. So the first batch of each
read from such a segment is checked (one header and one CRC). If it is not sound, or does not begin
where the last one ended, the segment becomes suspect: a thread reads it in full and finds its runs
of sound batches (segments/segment_runs). Between the runs are DamagedRanges.

A reader that reaches a DamagedRange gets, in this order:
    while the segment is examined, or another replica may have the missing records:
    KAFKA_STORAGE_ERROR, which clients retry;
    with bradbury.damaged.segment=skip: the first batch behind it;
    else CORRUPT_MESSAGE, which clients pass to the application.

Invariants: no sound batch is withheld because of an unsound one. In logs that are or were
compacted, gaps are normal: there only bytes that are not a sound batch, a file that ends too early
or a missing file count as damage.

Unlike Kafka, which continues with the next segment without an error, or whose consumers then make
no progress.

Not here: who examines, and when (replication/logs/segment_healer, log_scrub), the use of records
from another replica (segment_patch).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple, Protocol

from ...protocol.errors import CorruptMessage, KafkaError, KafkaStorageError
from ...protocol.records.record_batch import NO_TIMESTAMP
from ..disk.file_system import File
from ..disk.storage_failure import SHORTAGES, ClosedLog
from ..segments.batch_scan import walk_headers
from ..segments.log_segment import EMPTY_SLICE, LogSegment, SegmentSlice
from ..segments.offset_index import OffsetIndex
from ..segments.segment_runs import SegmentReader, SegmentRun, find_runs
from .local_log import LocalLog

SKIP = "skip"
MOST_LOOKED_AT = 8 * 1024 * 1024
"""Most bytes of a batch that is checked on the log's loop; a larger one is examined in a thread."""
NO_BATCH = "a reader found no valid batch where one was expected"
SENT_IN_VAIN, SENT_EVERY = 3, 100
"""Deliveries of the same records to a follower before the leader checks them, and before it checks
them again.
"""
MOST_REMEMBERED = 1000
"""Most remembered positions in damaged segments where readers continue."""


class DamagedSegment(CorruptMessage):
    """The records from an offset on are lost on this disk. `next_offset`: offset behind them."""

    def __init__(self, message: str, next_offset: int = -1) -> None:
        super().__init__(message, next_offset)
        self.next_offset = next_offset

    def __str__(self) -> str:
        return str(self.args[0])


class DamagedRange(NamedTuple):
    """Damaged offsets [start, end) of a log: assigned to records that cannot be read."""

    start: int
    end: int
    path: str
    position: int
    """Byte in the file where the damage begins."""

    def __str__(self) -> str:
        return f"offsets {self.start} to {self.end - 1} ({self.path} from byte {self.position} on)"


class CompactedLog(Protocol):
    """Compaction state of a log. See log_compaction."""

    @property
    def cleaner_offset(self) -> int | None: ...


class SegmentExamination:
    """Examination of one segment in its current state; `run` reads it in full, in a thread.
    `runs`: its undamaged parts.
    """

    def __init__(
        self,
        segment: LogSegment,
        *,
        end_offset: int,
        has_gaps: bool,
        indexed_end: int,
        truncations: int,
        start_offset: int = 0,
    ) -> None:
        self.segment = segment
        self.path = segment.files.path
        self.end_offset = end_offset
        self.truncations = truncations
        self.runs: list[SegmentRun] = []
        self._size = max(segment.size, segment.noted_size)
        self._start_offset = start_offset
        self._has_gaps = has_gaps
        self._indexed_end = indexed_end
        self._base_offset = segment.base_offset

    def run(self, progress: Callable[[int], None] = lambda size: None) -> None:
        """Read the file. If it is missing or cannot be read, it has no undamaged part.

        Raises:
            OSError: the machine is short of descriptors or memory: nothing is known of the file.
        """
        try:
            file = self.segment.files.open_apart()
        except OSError as error:
            if error.errno in SHORTAGES:
                raise
            return
        with closing(file):
            try:
                size = file.size()
            except OSError:
                return
            reader = SegmentReader(
                file,
                min(self._size, size),
                end_offset=self.end_offset,
                has_gaps=self._has_gaps,
                progress=progress,
            )
            self.runs = find_runs(reader, self._base_offset, self._start_offset)

    @property
    def is_whole(self) -> bool:
        """Whether the file is one undamaged run from its beginning to its end."""
        if not self.runs:
            return not self._size
        return self.runs[0].position == 0 and self.runs[0].size == self._size

    def damage(self) -> list[DamagedRange]:
        """Damaged ranges between the runs, before and behind them."""
        found: list[DamagedRange] = []
        offset, position = max(self._base_offset, self._start_offset), 0
        for run in self.runs:
            if run.first_offset > offset and (position < run.position or not self._has_gaps):
                found.append(DamagedRange(offset, run.first_offset, self.path, position))
            offset = max(offset, run.next_offset)
            position = run.position + run.size
        is_cut = position < self._size or self._indexed_end > offset
        if offset < self.end_offset and (is_cut or not self._has_gaps):
            found.append(DamagedRange(offset, self.end_offset, self.path, position))
        return found


class SegmentEnd(NamedTuple):
    """Expected end of a closed segment, with a frozen index, for a thread."""

    segment: LogSegment
    offset_index: OffsetIndex
    end_offset: int
    has_gaps: bool

    def is_doubtful(self) -> bool:
        """Whether the segment's file is gone, empty, or ends elsewhere. A few small reads."""
        segment = self.segment
        try:
            with closing(segment.files.open_apart()) as file:
                last = self.offset_index.last()
                position = 0 if last is None or last[1] >= segment.size else last[1]
                offset = segment.base_offset
                for start, header in walk_headers(file, position, segment.size):
                    position, offset = start + header.size, header.next_offset
                was = max(segment.size, segment.noted_size)
                has_shrunk = not position == file.size() == was
        except OSError:
            return True
        indexed_end = -1 if last is None else last[0] + 1
        return (
            has_shrunk or indexed_end > offset or (offset != self.end_offset and not self.has_gaps)
        )


def segments_to_examine(ends: Iterable[SegmentEnd]) -> list[LogSegment]:
    """Segments to be examined. Run in a thread."""
    return [end.segment for end in ends if end.is_doubtful()]


def _cannot_be_read(damage: DamagedRange) -> DamagedSegment:
    return DamagedSegment(
        f"{damage} cannot be read; put the file back, delete the records before "
        f"{damage.end}, or set bradbury.damaged.segment=skip on the topic",
        damage.end,
    )


def doubt(segment: LogSegment) -> None:
    """Mark the content of its file as not written by this process."""
    segment.is_proven = False
    segment.unproven = segment.size


def _prove(segment: LogSegment) -> None:
    """Mark the segment as read whole and undamaged."""
    segment.is_proven = True
    segment.unproven = 0


class LogDamage:
    """Known damage of one log. Used on the loop of the log's owner."""

    def __init__(self, local: LocalLog, compaction: CompactedLog) -> None:
        self._local = local
        self._compaction = compaction
        self.ranges: tuple[DamagedRange, ...] = ()
        """Damaged ranges, ascending."""
        self.suspects: dict[LogSegment, str] = {}
        """Segments to be examined, with the reason."""
        self.runs: dict[str, list[SegmentRun]] = {}
        """Undamaged runs of damaged segments, by path; also of those without missing records."""
        self._resume: dict[tuple[str, int], int] = {}
        """Position in a damaged segment's file at which a reader at an offset continues, by path
        and offset.
        """
        self._sent: dict[int, tuple[int, int]] = {}
        """(offset sent last, number of times it was sent), by follower."""
        self.may_heal = False
        """Whether other replicas are being asked for the missing records."""
        self.has_other_replicas = False
        """Whether the partition has other replicas, running or not: one that restarts may have the
        records.
        """
        self.start_offset = 0
        """Log start offset: damage below it does not matter."""
        self.ended = 0
        """Number of times that damage was repaired, deleted or truncated."""
        self.skipped_offsets = 0
        """Number of offsets skipped by readers, with bradbury.damaged.segment=skip."""

    @property
    def is_closed(self) -> bool:
        return isinstance(self._local.health, ClosedLog)

    @property
    def has_gaps(self) -> bool:
        """Whether offsets may be missing without damage."""
        return self._local.config.is_compacted or self._compaction.cleaner_offset is not None

    # --- readers ---------------------------------------------------------------------------------

    def look(self, segments: Iterable[LogSegment], position: int, offset: int) -> int | None:
        """Check whether a reader at `offset` may get the batch at `position` of the last of
        `segments`; the others have no batch for it.

        Returns None, or the offset to continue at.

        Raises:
            KafkaStorageError: a segment must be examined or repaired before.
            DamagedSegment: the records at `offset` are lost.
        Cost: a header and a CRC.
        """
        tried = list(segments)
        segment = tried[-1]
        if (known := self._at(offset)) is not None:
            return self._beyond(known)
        reader = SegmentReader(
            segment.file,
            segment.size,
            end_offset=segment.next_offset,
            has_gaps=True,
            chunk_bytes=0,  # on the log's loop: not a byte more than this batch
            most_bytes=MOST_LOOKED_AT,
        )
        found = reader.batch_at(position, segment.base_offset, has_gap=True)
        if found is not None and found[0].base_offset <= offset:
            return None
        # In a log that may have gaps, a gap is accepted if the segments passed over are proven.
        passed = tried[:-1] if self.has_gaps else tried
        if found is not None and self.has_gaps and all(each.is_proven for each in passed):
            return None
        if found is None:  # also if this process has written it: disks lose data
            self.suspect(segment, NO_BATCH)
        else:
            self._suspect(passed)
        raise KafkaStorageError(f"{segment.files.path} is being examined: it may be damaged")

    def look_at_end(self, segments: Sequence[LogSegment], offset: int) -> int | None:
        """Version of look for a read that found no batch in any segment, although the log has
        records at `offset` or above.
        """
        if (known := self._at(offset)) is not None:
            return self._beyond(known)
        if self.has_gaps or any(segment.locate(offset) < segment.size for segment in segments):
            return None
        doubtful = [segment for segment in segments if not segment.is_proven]
        if not doubtful:
            return None
        self._suspect(doubtful)
        raise KafkaStorageError(f"{doubtful[0].files.path} is being examined: it may be damaged")

    def read_damaged(
        self, offset: int, max_bytes: int, up_to: int, min_one_batch: bool
    ) -> tuple[File | None, SegmentSlice] | None:
        """Read from a segment of which only runs are undamaged: (file, slice), as LogSegment.read.

        None: the segment has no known damage, or no run behind `offset`.

        An empty slice: continue at its next_offset. Raises as look, and OSError.
        Cost: the headers of the slice if the reader continues where one ended; else all from the
        run's beginning.
        """
        segment = self._local.segments.from_offset(offset)[0]
        runs = self.runs.get(segment.files.path)
        if runs is None:
            return None
        if (known := self._at(offset)) is not None:
            return None, EMPTY_SLICE._replace(next_offset=self._beyond(known))
        run = next((run for run in runs if run.next_offset > offset), None)
        if run is None:
            return None
        end = run.position + run.size
        path = segment.files.path
        position = self._resume.get((path, offset), run.position)
        if not run.position <= position < end:
            position = run.position
        start, size, following, is_limited = -1, 0, offset, False
        for at, header in walk_headers(segment.file, position, end):
            if header.last_offset < offset:
                continue
            if header.base_offset >= up_to:
                break
            if size + header.size > max_bytes and (size or not min_one_batch):
                is_limited = True
                break
            start = at if start < 0 else start
            size, following = size + header.size, header.next_offset
        if not size:
            return None, SegmentSlice(0, 0, -1, is_limited)
        if len(self._resume) >= MOST_REMEMBERED:
            self._resume.clear()
        self._resume[path, following] = start + size
        return segment.file, SegmentSlice(start, size, following, is_limited)

    def on_read_error(
        self, segments: Iterable[LogSegment], offset: int, error: OSError
    ) -> KafkaError:
        """Exception for a read error in one of the segments, which are scheduled for examination:
        it shows whether the file or the disk is damaged, and a damaged file is repaired.
        """
        if (known := self._at(offset)) is not None:
            return _cannot_be_read(known)
        for segment in segments:
            doubt(segment)
            self.suspect(segment, f"reading it failed: {error.strerror or error}")
        return KafkaStorageError(f"reading {self._local.directory}: {error.strerror or error}")

    def refuse_gap(self, offset: int) -> None:
        """Refuse a read across a gap to a reader that stores the records, such as another replica:
        it would store the log without the skipped records, and serve it so.

        Raises as look, whatever bradbury.damaged.segment says.
        """
        if (known := self._at(offset)) is not None:
            if self.may_heal:
                raise KafkaStorageError(f"{known} is being fetched from another replica")
            raise _cannot_be_read(known)

    def on_sent(self, node_id: int, offset: int, next_offset: int) -> None:
        """Note that a follower was sent the records [offset, next_offset). A follower that
        repeatedly fetches the same ones cannot append them: it checks every CRC, and a leader that
        has written them does not.
        """
        sent, times = self._sent.get(node_id, (-1, 0))
        times = times + 1 if sent == offset else 1
        self._sent[node_id] = (offset, times)
        if times % SENT_EVERY == SENT_IN_VAIN:
            segment = self._local.segments.from_offset(next_offset - 1)[0]
            self.suspect(segment, f"node {node_id} fetched offset {offset} {times} times")

    def _at(self, offset: int) -> DamagedRange | None:
        return next((each for each in self.ranges if each.start <= offset < each.end), None)

    def _beyond(self, damage: DamagedRange) -> int:
        if self.may_heal:
            raise KafkaStorageError(f"{damage} is being fetched from another replica")
        if self._local.config.bradbury_damaged_segment == SKIP:
            self.skipped_offsets += damage.end - damage.start
            return damage.end
        raise _cannot_be_read(damage)

    # --- the ends of files -----------------------------------------------------------------------

    def ends(self) -> list[SegmentEnd]:
        """Expected ends of the closed segments that are not proven."""
        segments = self._local.segments.segments
        return [
            SegmentEnd(segment, segment.offset_index.frozen(), following.base_offset, self.has_gaps)
            for segment, following in pairwise(segments)
            if not segment.is_proven
        ]

    # --- examining -------------------------------------------------------------------------------

    def _suspect(self, segments: Iterable[LogSegment]) -> None:
        for segment in segments:
            if not segment.is_proven or segment.unproven:
                self.suspect(segment, NO_BATCH)

    def suspect(self, segment: LogSegment, reason: str) -> None:
        """Schedule the examination of a segment."""
        self.suspects.setdefault(segment, reason)
        self._local.health.damaged[self] = None

    def begin_examination(self, segment: LogSegment) -> SegmentExamination | None:
        """Begin an examination; None: the segment is no longer in the log. Raises OSError: its
        index cannot be read.
        """
        segments = self._local.segments.segments
        if segment not in segments:
            self.suspects.pop(segment, None)
            return None
        number = segments.index(segment)
        is_last = number == len(segments) - 1
        end = segment.next_offset if is_last else segments[number + 1].base_offset
        indexed = segment.offset_index.last()
        return SegmentExamination(
            segment,
            end_offset=end,
            has_gaps=self.has_gaps,
            indexed_end=-1 if indexed is None else indexed[0] + 1,
            truncations=self._local.truncations,
            start_offset=self.start_offset,
        )

    def complete_examination(self, examination: SegmentExamination) -> list[DamagedRange]:
        """Record an examination. Returns the damaged ranges; empty: the segment is undamaged."""
        segment = examination.segment
        self.suspects.pop(segment, None)
        if (
            examination.truncations != self._local.truncations
            or segment not in self._local.segments.segments
        ):
            return []
        found = examination.damage()
        others = [each for each in self.ranges if each.path != examination.path]
        self.ended += not found and len(others) < len(self.ranges)  # its file was put back
        self.ranges = tuple(sorted((*others, *found)))
        self._resume.clear()
        self.runs.pop(examination.path, None)
        if not examination.is_whole:
            # Also if only deleted records are damaged: a header there may contain other offsets.
            self.runs[examination.path] = examination.runs
        if found:
            nothing = (NO_TIMESTAMP, segment.base_offset)
            largest = (run.largest for run in examination.runs)
            segment.largest = max(largest, default=nothing, key=itemgetter(0))
            self._local.health.damaged[self] = None
        else:
            _prove(segment)
        return found

    # --- the log changes -------------------------------------------------------------------------

    def forget_below(self, offset: int) -> None:
        """Forget damage below `offset`, the new log start."""
        self.start_offset = offset
        if self.ranges:
            self._keep(lambda each: each.end > offset)

    def on_truncation(self, offset: int) -> None:
        """Forget damage at `offset` and above, as the log was truncated."""
        self.start_offset = min(self.start_offset, offset)
        if self.ranges:
            self._keep(lambda each: each.start < offset)
            self.ranges = tuple(each._replace(end=min(each.end, offset)) for each in self.ranges)
        if self.runs:
            active = self._local.segments.active
            left = {each.files.path: each for each in self._local.segments}
            self.runs = {path: runs for path, runs in self.runs.items() if path in left}
            if active.files.path in self.runs:
                self.runs[active.files.path] = [
                    run._replace(
                        size=min(run.size, active.size - run.position),
                        next_offset=min(run.next_offset, offset),
                    )
                    for run in self.runs[active.files.path]
                    if run.position < active.size
                ]
            self._resume.clear()

    def on_healed(self, path: str) -> None:
        """Note that the segment of this name is repaired."""
        self._keep(lambda each: each.path != path)
        self.runs.pop(path, None)
        self._resume.clear()

    def _keep(self, is_left: Callable[[DamagedRange], bool]) -> None:
        before, self.ranges = self.ranges, tuple(filter(is_left, self.ranges))
        self.ended += len(self.ranges) < len(before)
