"""The files of one segment: the log, its two indexes, and the transaction index if there is one.

Invariants:
    The log file is opened at first use and its descriptor lives as long as a slice refers to it.
    A segment knows the suffix its files have while it waits to be swapped in, or to be unlinked, so
    that readers of it still find them.

Not here: what is in them (log_segment, offset_index, time_index).
"""

from __future__ import annotations

from typing import Final

from ..disk.file_system import File, FileSystem
from ..log_config import LogConfig
from .offset_index import ENTRY as OFFSET_ENTRY, OffsetIndex
from .time_index import ENTRY as TIME_ENTRY, TimeIndex
from .transaction_index import (
    ENTRY as TRANSACTION_ENTRY,
    TRANSACTION_INDEX_SUFFIX,
    TransactionIndex,
)

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
HEALED_SUFFIX: Final = ".healed"
HEALED_SWAP_SUFFIX: Final = ".healedswap"
SWAP_SUFFIXES: Final = {CLEANED_SUFFIX: SWAP_SUFFIX, HEALED_SUFFIX: HEALED_SWAP_SUFFIX}
"""Suffix of a new segment's files while they are swapped in, by their suffix before. The cleaner
and the repair of damage have their own: both may make a segment of the same offset at once.
"""


class SegmentFiles:
    """Names of a segment's files, and the open log file. Methods raise OSError."""

    __slots__ = (
        "_base_offset",
        "_file_system",
        "_suffix",
        "offset_index",
        "opened",
        "path_prefix",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        base_offset: int,
        *,
        config: LogConfig,
        index_sizes: tuple[int, int, int],
        suffix: str,
    ) -> None:
        self._file_system = file_system
        self._base_offset = base_offset
        self._suffix = suffix
        self.opened: File | None = None
        """The open log file; None: not open."""
        self.path_prefix = f"{directory}/{base_offset:020d}"
        """Common prefix of the paths of all files."""
        self.offset_index = OffsetIndex(
            file_system,
            self.path_prefix + INDEX_SUFFIX + suffix,
            base_offset=base_offset,
            segment_index_bytes=config.segment_index_bytes,
            stored=index_sizes[0] // OFFSET_ENTRY.size,
        )
        self.time_index = TimeIndex(
            file_system,
            self.path_prefix + TIME_INDEX_SUFFIX + suffix,
            base_offset=base_offset,
            segment_index_bytes=config.segment_index_bytes,
            stored=index_sizes[1] // TIME_ENTRY.size,
        )
        self.transaction_index = TransactionIndex(
            file_system,
            self.path_prefix + TRANSACTION_INDEX_SUFFIX + suffix,
            stored=index_sizes[2] // TRANSACTION_ENTRY.size,
        )

    @property
    def path(self) -> str:
        """Path of the log file."""
        return self.path_prefix + LOG_SUFFIX + self._suffix

    @property
    def file(self) -> File:
        """The log file, opened now if it was not."""
        file = self.opened
        if file is None:
            try:
                file = self._file_system.open(self.path)
            except FileNotFoundError:
                # For a search in another thread: the log's owner may be renaming the file.
                file = self._file_system.open(self.path)
            self.opened = file
        return file

    def open_apart(self) -> File:
        """Open the log file with a descriptor of its own, closed by the caller. From any thread."""
        try:
            return self._file_system.open(self.path)
        except FileNotFoundError:
            return self._file_system.open(self.path)  # renamed meanwhile, as in `file`

    def release(self) -> None:
        """Release the descriptor; slices that still refer to it keep it open."""
        self.opened = None

    def modified_ms(self) -> int:
        """Modification time of the log file, in ms."""
        return self._file_system.modified_ms(self.path)

    def create(self) -> None:
        """Create the empty log file, removing stale files of its name."""
        self.opened = self._file_system.open(self.path, create=True)
        if self.opened.size():
            self.opened.truncate(0)
        for path in (self.offset_index.path, self.time_index.path, self.transaction_index.path):
            if self._file_system.exists(path):
                self._file_system.unlink(path)

    def relocate(self, directory: str) -> None:
        """Note that the files are in `directory` now."""
        self.path_prefix = f"{directory}/{self._base_offset:020d}"
        self._name_indexes()

    def rename(self, suffix: str) -> list[str]:
        """Replace the suffix of all existing files by `suffix`.

        The log is renamed last when the new suffix says that it takes part in a swap, else first:
        while there is a .log.swap (.log.healedswap), a start can repeat the swap. Returns the new
        paths.
        """
        order = [LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX]
        if suffix in SWAP_SUFFIXES.values():
            order.reverse()
        old, self._suffix = self._suffix, suffix
        self._name_indexes()
        renamed: list[str] = []
        for kind in order:
            path = self.path_prefix + kind
            if self._file_system.exists(path + old):
                self._file_system.rename(path + old, path + suffix)
                renamed.append(path + suffix)
        return renamed

    def begin_swap(self) -> None:
        """Rename the files of a new, durable segment: from here on a start finishes the swap."""
        self.rename(SWAP_SUFFIXES[self._suffix])

    def _name_indexes(self) -> None:
        self.offset_index.path = self.path_prefix + INDEX_SUFFIX + self._suffix
        self.time_index.path = self.path_prefix + TIME_INDEX_SUFFIX + self._suffix
        self.transaction_index.path = self.path_prefix + TRANSACTION_INDEX_SUFFIX + self._suffix

    def unlink(self) -> None:
        """Remove all files of a segment that was never part of the log."""
        self.opened = None
        for kind in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
            path = self.path_prefix + kind + self._suffix
            if self._file_system.exists(path):
                self._file_system.unlink(path)
