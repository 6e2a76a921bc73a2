"""The aborted transactions of one segment, so that read_committed can skip their records.

    00000000000000368769.txnindex    34-byte entries  >hqqqq
        version = 0, producer_id, first_offset, last_offset (of the abort marker),
        last_stable_offset when it was written

An entry is in the segment that holds the marker; the transaction may begin in an earlier one. So
entries ascend by last_offset, and by last_stable_offset, too. Without entries there is no file.

Unlike in the other indexes, an entry is not a hint: if it were missing, a reader would take aborted
records for committed ones. So the index is flushed with the records, and rebuilt for each segment
that is scanned at startup.
Source: apache/kafka storage/.../internals/log/AbortedTxn.java, TransactionIndex.java.

Not here: what an abort is (producers/producer_state), recovery (producers/producer_recovery).
"""

from __future__ import annotations

from contextlib import closing
from struct import Struct
from typing import Final, NamedTuple

from ..disk.file_system import FileSystem
from .index_file import IndexFile

TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
VERSION: Final = 0
ENTRY: Final = Struct(">hqqqq")
TEMPORARY_SUFFIX: Final = ".tmp"
"""Suffix of files that are removed at startup."""
MOST_ENTRIES: Final = 1 << 62
"""Most entries; unbounded, as a segment has one for each marker."""
_LAST_OFFSET: Final = 3


class AbortedTransaction(NamedTuple):
    """An aborted transaction: the records of `producer_id` in [first_offset, last_offset)."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex(IndexFile):
    """Transaction index of one segment. Methods raise OSError."""

    __slots__ = ("is_unsynced",)

    def __init__(self, file_system: FileSystem, path: str, *, stored: int) -> None:
        super().__init__(file_system, path, ENTRY, capacity=MOST_ENTRIES, stored=stored)
        self.is_unsynced = False
        """Whether it was changed since the last sync, which clears this."""

    def add(self, transaction: AbortedTransaction) -> None:
        """Add an entry; its marker must be after those of all other entries."""
        self.is_unsynced = True
        self.append(ENTRY.pack(VERSION, *transaction))

    def transaction(self, number: int) -> AbortedTransaction:
        return AbortedTransaction(*self.entry(number)[1:])

    def all(self) -> list[AbortedTransaction]:
        return [self.transaction(number) for number in range(len(self))]

    def find(self, fetch_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """(entries with records in [fetch_offset, end_offset), whether no later entry has any)."""
        found: list[AbortedTransaction] = []
        if not len(self):
            return found, False
        first = self.floor(fetch_offset, column=_LAST_OFFSET, below=True) + 1
        for number in range(first, len(self)):
            transaction = self.transaction(number)
            if transaction.first_offset < end_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def is_plausible(self, base_offset: int, end_offset: int) -> bool:
        """Whether the file of a clean stop can belong to the segment of these offsets."""
        if not len(self):
            return True
        first, last = self.entry(0), self.entry(len(self) - 1)
        return (
            first[0] == last[0] == VERSION
            and base_offset <= first[_LAST_OFFSET] <= last[_LAST_OFFSET] < end_offset
        )

    def forget(self) -> None:
        """Discard the content of the file, which is wrong: the caller adds all entries again, then
        calls replace_file.
        """
        self._stored = 0
        self._block = b""
        self._pending = bytearray()
        self._spill_at = MOST_ENTRIES

    def in_file(self) -> list[AbortedTransaction]:
        """Entries that the file still has after reset, until replace_file."""
        return read_transaction_index(self._file_system, self.path)

    def replace_file(self) -> None:
        """Replace the file by the entries added since forget.

        The new file is synced; its name is durable once the directory is synced.
        """
        if not self.has_pending:
            if self._file_system.exists(self.path):
                self._file_system.unlink(self.path)
            return
        path, self.path = self.path, self.path + TEMPORARY_SUFFIX
        try:
            super().write_out()
            self._file_system.open(self.path).sync()
            self._file_system.rename(self.path, path)
            self.is_unsynced = False
        finally:
            self.path = path

    def write_out(self) -> None:
        """Write the buffered entries, if there are any."""
        if self.has_pending:
            super().write_out()

    def truncate(self, count: int) -> None:
        if count < len(self):
            self.is_unsynced = True
            super().truncate(count)

    def truncate_to(self, offset: int) -> None:
        """Forget the transactions whose markers are at `offset` or later."""
        if len(self):
            self.truncate(self.floor(offset, column=_LAST_OFFSET, below=True) + 1)


def invalidate_transaction_index(file_system: FileSystem, path: str) -> None:
    """Make the next start rebuild the file, even after a crash: until replace_file it ends in the
    middle of an entry. An absent file is created, as absence means that no transaction was aborted.
    The file is synced; its name is durable once the directory is synced. Raises OSError.
    """
    with closing(file_system.open(path, create=True)) as file:
        size = file.size()
        if not size % ENTRY.size:
            file.write_at(b"\0", size)
        file.sync()


def read_transaction_index(file_system: FileSystem, path: str) -> list[AbortedTransaction]:
    """The entries of a file; none if it is absent. Raises OSError."""
    size = file_system.size(path) if file_system.exists(path) else 0
    return TransactionIndex(file_system, path, stored=size // ENTRY.size).all()
