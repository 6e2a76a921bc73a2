"""Segments of one log in order, and the files of removed segments.

Invariants: at least one segment; base offsets strictly increase; the last is the active
one. The list is replaced, never changed, so an iteration over it sees a consistent snapshot.

A deleted segment's files get the suffix .deleted at once, so that a crash cannot bring them back,
and are unlinked `file.delete.delay.ms` later. Open slices of them stay readable all the time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Final, overload

from ..disk.file_system import FileSystem
from .log_segment import LogSegment
from .segment_files import DELETED_SUFFIX, LOG_SUFFIX, SNAPSHOT_SUFFIX

DELETED_LOG_SUFFIX: Final = LOG_SUFFIX + DELETED_SUFFIX


class SegmentList:
    """A log's segments, oldest first, and its deleted files that still exist."""

    __slots__ = ("_base_offsets", "_deleted", "_file_system", "active", "removals", "segments")

    def __init__(self, file_system: FileSystem, segments: Iterable[LogSegment]) -> None:
        self._file_system = file_system
        self._deleted: list[tuple[int, str]] = []
        self.removals = 0
        """Number of removals of segments from the log."""
        self._replace(tuple(segments))

    def _replace(self, segments: tuple[LogSegment, ...]) -> None:
        self.segments = segments
        self.active = segments[-1]
        self._base_offsets = [segment.base_offset for segment in segments]

    def __len__(self) -> int:
        return len(self.segments)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self.segments)

    @overload
    def __getitem__(self, number: int) -> LogSegment: ...
    @overload
    def __getitem__(self, number: slice) -> tuple[LogSegment, ...]: ...
    def __getitem__(self, number: int | slice) -> LogSegment | tuple[LogSegment, ...]:
        return self.segments[number]

    @property
    def size_in_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    def from_offset(self, offset: int) -> tuple[LogSegment, ...]:
        """The segment that holds `offset` (the first one if none does), and all after it."""
        return self.segments[max(bisect_right(self._base_offsets, offset) - 1, 0) :]

    def add(self, segment: LogSegment) -> None:
        self._replace((*self.segments, segment))

    def replace_last(self, segment: LogSegment) -> tuple[LogSegment, ...]:
        """Replace the active segment by `segment`; returns the former one."""
        removed = (self.active,)
        self._replace((*self.segments[:-1], segment))
        return removed

    def replace_all(self, segment: LogSegment) -> tuple[LogSegment, ...]:
        """Make `segment` the only one; returns the former ones."""
        removed = self.segments
        self._replace((segment,))
        return removed

    def remove_first(self, count: int) -> tuple[LogSegment, ...]:
        removed = self.segments[:count]
        self._replace(self.segments[count:])
        return removed

    def remove_after(self, offset: int) -> tuple[LogSegment, ...]:
        """Remove the segments whose base offset is above `offset`, but never the first."""
        count = max(bisect_right(self._base_offsets, offset), 1)
        removed = self.segments[count:]
        self._replace(self.segments[:count])
        return removed

    def relocate(self, directory: str) -> None:
        """Note that all files are in `directory` now."""
        for segment in self.segments:
            segment.files.relocate(directory)
        self._deleted = [
            (due_ms, f"{directory}/{path.rpartition('/')[2]}") for due_ms, path in self._deleted
        ]

    def replace(self, replaced: tuple[LogSegment, ...], segment: LogSegment) -> None:
        """Replace adjacent segments by `segment`, which begins where they do."""
        first = self.segments.index(replaced[0])
        last = first + len(replaced)
        assert self.segments[first:last] == replaced
        assert segment.base_offset == replaced[0].base_offset
        self._replace((*self.segments[:first], segment, *self.segments[last:]))

    def holds(self, segments: tuple[LogSegment, ...]) -> bool:
        """Whether these are adjacent closed segments of the log."""
        closed = self.segments[:-1]
        if segments[0] not in closed:
            return False
        first = closed.index(segments[0])
        return closed[first : first + len(segments)] == segments

    def swap_in(
        self,
        replaced: tuple[LogSegment, ...],
        segment: LogSegment,
        due_ms: int,
        on_begun: Callable[[], None] = lambda: None,
    ) -> None:
        """Replace adjacent closed segments by one whose files are durable.

        It does not wait for the disk, and reads of the old segments continue. Before the new log is
        renamed to .log.swap (.log.healedswap) a start deletes it, afterwards a start finishes the
        swap. `on_begun` is called after that rename: if the process dies later, a start continues
        from there. Raises OSError.
        """
        segment.files.begin_swap()
        on_begun()
        self.mark_deleted(replaced, due_ms, keep_snapshot=segment.base_offset)
        segment.files.rename("")
        segment.files.release()
        self.replace(replaced, segment)

    def mark_deleted(
        self, removed: Iterable[LogSegment], due_ms: int, *, keep_snapshot: int | None = None
    ) -> None:
        """Rename the files of `removed`, to be unlinked at `due_ms`. Raises OSError.

        In the order given, which must leave no gap in the log if a crash comes in between. The
        snapshot at offset `keep_snapshot` is not renamed.
        """
        self.removals += 1
        for segment in removed:
            segment.files.release()
            paths = segment.files.rename(DELETED_SUFFIX)
            snapshot = segment.files.path_prefix + SNAPSHOT_SUFFIX
            if segment.base_offset != keep_snapshot and self._file_system.exists(snapshot):
                self._file_system.rename(snapshot, snapshot + DELETED_SUFFIX)
                paths.append(snapshot + DELETED_SUFFIX)
            # An earlier deleted file of this name was replaced: its due time is not that of ours.
            self._deleted = [entry for entry in self._deleted if entry[1] not in paths]
            self._deleted += [(due_ms, path) for path in paths]

    def unlink_later(self, paths: Iterable[str]) -> None:
        """Schedule the unlinking of files that were deleted in an earlier run, soon."""
        self._deleted += [(0, path) for path in paths]

    def has_due(self, now_ms: int) -> bool:
        """Whether unlink_deleted would find a due file."""
        return any(due_ms <= now_ms for due_ms, _ in self._deleted)

    def unlink_deleted(self, now_ms: int, *, keeps_marks: bool = False) -> int:
        """Unlink the files that are due; returns their number. Raises OSError.

        keeps_marks: only the log files. While the checkpoints do not reflect the deletion of a
        segment, its other files show a start that it was deleted.
        """
        due = [
            path
            for due_ms, path in self._deleted
            if due_ms <= now_ms and not (keeps_marks and not path.endswith(DELETED_LOG_SUFFIX))
        ]
        gone = set(due)
        self._deleted = [entry for entry in self._deleted if entry[1] not in gone]
        for path in due:
            # A directory of this name is none of ours, and stays.
            if self._file_system.exists(path) and not self._file_system.is_directory(path):
                self._file_system.unlink(path)
        return len(due)
