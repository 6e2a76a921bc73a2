"""Leftovers of interrupted work in a log's directory, cleaned up before the log is opened.

    .deleted, .cleaned, .healed, .tmp   are deleted
    .swap, .healedswap          replace the segments they were made from, if they are complete
    a directory for a file      is set aside, as is a file that cannot be read
    a missing log file          is replaced by a mark, see segments/lost_segments

Every step may be repeated: after a crash here the next start does all of it again.

Not here: what is made of the files that are there then (log_loader).
"""

from __future__ import annotations

from ..disk.file_system import FileSystem
from ..disk.storage_failure import SET_ASIDE_SUFFIX
from ..producers.producer_recovery import forget_derived
from ..segments.batch_scan import walk_headers
from ..segments.lost_segments import (
    INDEX_SUFFIXES,
    ListedSegments,
    deleted_between,
    first_segment,
    mark_lost_durably,
    missing_segments,
    offset_of,
)
from ..segments.segment_files import (
    DELETED_SUFFIX,
    HEALED_SWAP_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIXES,
)

MOST_RECORDS = 2**24
"""Most records of a batch. If the log starts within a batch, that is repaired as a whole: so the
mark covers this many offsets before the log start.
"""


class LogLeftovers:
    """Leftovers in one directory. One use: call remove(). It raises OSError."""

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        listed: ListedSegments,
        *,
        safe_end: int,
        log_start_offset: int | None,
        keeps_places: bool,
    ) -> None:
        """`safe_end`: offset below which everything was durable. `log_start_offset`,
        `keeps_places`: see LogLoader.
        """
        self._file_system = file_system
        self._directory = directory
        self._listed = listed
        self._safe_end = safe_end
        self._log_start_offset = log_start_offset
        self._keeps_places = keeps_places
        self.reasons: list[str] = []
        """Messages about unexpected findings."""
        self.is_damaged = False
        """Whether damage was found; see RecoveryReport."""
        self.waiting: list[str] = []
        """Deleted files that are kept because they show why the log begins where it does: see
        lost_segments.
        """

    def remove(self) -> None:
        """Finish interrupted deletions and swaps, and delete unfinished cleanings and repairs."""
        if self._keeps_places:
            self._set_unreadable_aside()
        self._unlink_indexes_of_deleted(self._names())
        if self._keeps_places:
            self._keep_places(self._names())
        names = self._names()
        self._listed.forget_leftovers(names)
        swaps: dict[str, list[str]] = {}
        for made, swap in SWAP_SUFFIXES.items():
            swaps[swap] = self._drop_unfinished(names, made, swap)
        for name in names:
            if name.endswith((DELETED_SUFFIX, *SWAP_SUFFIXES, ".tmp")) and (
                name not in self.waiting
            ):
                self._unlink(name)
        for swap, kept in swaps.items():
            self._finish_swaps(kept, swap)
        names = self._names()
        for name in names:
            stem, dot, suffix = name.partition(".")
            if dot + suffix in INDEX_SUFFIXES and stem + LOG_SUFFIX not in names:
                self._unlink(name)

    def _drop_unfinished(self, names: list[str], made: str, swap: str) -> list[str]:
        """Unlink the swap files of a segment that is not complete. Returns the others.

        While there is a .cleaned, the .swap next to it is an index without its log (see
        SegmentFiles.rename). It is unlinked first: alone, it would become the old segment's index.
        """
        unfinished = [offset_of(name) for name in names if name.endswith(made)]
        swaps = [name for name in names if name.endswith(swap)]
        kept = [name for name in swaps if not unfinished or offset_of(name) < min(unfinished)]
        for name in sorted(set(swaps) - set(kept)):
            self._unlink(name)
        return kept

    def _finish_swaps(self, names: list[str], swap: str) -> None:
        for name in names:
            if name.endswith(LOG_SUFFIX + swap):
                self._finish_swap(name)
        for name in names:
            self._file_system.rename(self._path(name), self._path(name.removesuffix(swap)))

    def _set_unreadable_aside(self) -> None:
        """Set aside a directory where a file should be, and a file whose size cannot be read: its
        records are missing.
        """
        for name in self._names():
            if name.endswith(SET_ASIDE_SUFFIX) or self._is_file(self._path(name)):
                continue
            target = name + SET_ASIDE_SUFFIX
            while self._file_system.exists(self._path(target)):
                target += SET_ASIDE_SUFFIX
            self._file_system.rename(self._path(name), self._path(target))
            self._note(f"{self._path(name)} is not a readable file; renamed it to {target}")
            self.is_damaged = self.is_damaged or name.endswith(LOG_SUFFIX)

    def _is_file(self, path: str) -> bool:
        try:
            return self._file_system.size(path) >= 0 and not self._file_system.is_directory(path)
        except OSError:
            return False

    def _unlink_indexes_of_deleted(self, names: list[str]) -> None:
        """Unlink indexes before their .log.deleted: without it the log file would seem lost."""
        for name in names:
            log = name.partition(".")[0] + LOG_SUFFIX
            if name.endswith(INDEX_SUFFIXES) and log not in names and log + DELETED_SUFFIX in names:
                self._unlink(name)

    def _keep_places(self, names: list[str]) -> None:
        """Put marks in place of missing log files: see lost_segments."""
        for base_offset in missing_segments(self._file_system, self._directory, names):
            if base_offset < self._safe_end:
                self._mark_lost(base_offset)
            else:  # not flushed: a crash may lose it, and the scan truncates the log here
                self._note(f"{self._path(f'{base_offset:020d}{LOG_SUFFIX}')} is missing")
                self._file_system.open(
                    self._path(f"{base_offset:020d}{LOG_SUFFIX}"), create=True
                ).close()
            names.append(f"{base_offset:020d}{LOG_SUFFIX}")
        for base_offset in self._listed.missing(names, self._log_start_offset or 0):
            self._mark_lost(base_offset)
            names.append(f"{base_offset:020d}{LOG_SUFFIX}")
        first, start = first_segment(names), self._log_start_offset
        if first is None or start is None or first <= start:
            return
        self.waiting = deleted_between(self._file_system, self._directory, names, start, first)
        if self.waiting:
            return
        if first <= self._safe_end:
            self._mark_lost(max(0, start - MOST_RECORDS))
        else:  # unflushed records may be lost with the page cache
            self._note(f"{self._directory} begins at {first}, and had records from {start} on")
            self.is_damaged = True

    def _mark_lost(self, base_offset: int) -> None:
        path = self._path(f"{base_offset:020d}{LOG_SUFFIX}")
        self._note(f"{path} is missing: its records are lost here")
        mark_lost_durably(self._file_system, path)

    def _finish_swap(self, name: str) -> None:
        """Finish a swap: delete the segments whose records are in the swap file `name`."""
        file = self._file_system.open(self._path(name))
        base_offset = next_offset = offset_of(name)
        has_producers = has_transactions = False
        for _, header in walk_headers(file, 0, file.size()):
            next_offset = header.next_offset
            has_producers = has_producers or header.producer_id >= 0
            has_transactions = has_transactions or header.is_transactional
        file.close()
        if name.endswith(HEALED_SWAP_SUFFIX) and has_producers:
            forget_derived(
                self._file_system,
                self._directory,
                base_offset,
                with_transactions=has_transactions,
            )
        # Logs last: else, after another crash, indexes alone would mean that the log file was lost.
        for other in sorted(self._names(), key=lambda name: name.endswith(LOG_SUFFIX)):
            stem, _, suffix = other.partition(".")
            if not stem.isdigit() or suffix == "snapshot":
                continue
            if other.endswith((*SWAP_SUFFIXES.values(), SET_ASIDE_SUFFIX)):
                continue
            if base_offset <= int(stem) < max(next_offset, base_offset + 1):
                self._unlink(other)

    def _note(self, reason: str) -> None:
        self.reasons.append(reason)

    def _names(self) -> list[str]:
        return sorted(self._file_system.list_directory(self._directory))

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _unlink(self, name: str) -> None:
        self._file_system.unlink(self._path(name))
