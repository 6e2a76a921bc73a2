"""Compiled loops of the cleaner, with the same interface as the plain ones. Importing it loads
numba.

Measured on batches of 16 KiB of 100-byte records with keys of 12 bytes, one thread: see
docs/design/compaction.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ...protocol.buffer import Buffer
from ...protocol.errors import CorruptMessage
from . import cleaner_kernels as kernels
from .cleaner_rows import KeptRecords, RecordRows, Rewrite

_FOUND_WRONG: Final = {
    kernels.BAD_VARINT: "a varint does not end",
    kernels.BAD_LENGTH: "a length passes the end of its record or batch",
    kernels.BAD_OFFSET_DELTA: "an offset delta does not increase or passes the batch's last",
    kernels.LEFT_OVER: "bytes are left over after a batch",
}
SPARE_SLOTS = 8


class CompiledOffsetMap:
    """Compiled cleaner_rows.OffsetMap. A tenth of the slots stays free, to keep searches short."""

    def __init__(self, limit: int, seed: bytes) -> None:
        slots = limit + limit // 9 + SPARE_SLOTS
        self._table: Any = np.zeros(slots * kernels.WORDS, np.uint64)
        self._seed: Any = np.frombuffer(seed, "<u8").astype(np.uint64)
        self._state: Any = np.array([0, -1, limit], np.int64)

    @property
    def entries(self) -> int:
        return int(self._state[kernels.ENTRIES])

    @property
    def latest_offset(self) -> int:
        return int(self._state[kernels.LATEST_OFFSET])

    @latest_offset.setter
    def latest_offset(self, offset: int) -> None:
        self._state[kernels.LATEST_OFFSET] = offset

    def index(self, source: Buffer, batches: Sequence[RecordRows], start_offset: int) -> bool:
        answer = kernels.index(
            np.frombuffer(source, np.uint8),
            _table(batches),
            start_offset,
            self._seed,
            self._table,
            self._state,
        )
        if answer == kernels.FULL:
            return False
        _check(answer)
        return True

    def filter(self, source: Buffer, batches: Sequence[RecordRows]) -> CompiledFilteredRecords:
        rows = _table(batches)
        counts = rows[:, kernels.COUNT]
        keep = np.zeros(int(counts.sum()), np.uint8)
        kept = np.zeros((len(batches), len(KeptRecords._fields)), np.int64)
        bytes_at_hand = np.frombuffer(source, np.uint8)
        _check(
            kernels.choose(bytes_at_hand, rows, self._seed, self._table, self._state, keep, kept)
        )
        first_rows = np.cumsum(counts) - counts
        return CompiledFilteredRecords(
            bytes_at_hand, rows, first_rows, keep, [KeptRecords(*row) for row in kept.tolist()]
        )


class CompiledFilteredRecords:
    """Compiled cleaner_rows.FilteredRecords."""

    def __init__(
        self, source: Any, rows: Any, first_rows: Any, keep: Any, kept: list[KeptRecords]
    ) -> None:
        self._source = source
        self._rows = rows
        self._first_rows = first_rows
        self._keep = keep
        self.kept = kept

    def rewrite(self, rewrites: Sequence[Rewrite], target: bytearray) -> list[int]:
        ends = np.empty(len(rewrites), np.int64)
        kernels.rewrite(
            self._source,
            self._rows,
            self._first_rows,
            self._keep,
            _table(rewrites),
            ends,
            np.frombuffer(target, np.uint8),
        )
        found: list[int] = ends.tolist()
        return found


def _table(rows: Sequence[tuple[int, ...]]) -> Any:
    return np.array(rows, np.int64)


def _check(answer: int) -> None:
    if answer != kernels.DONE:
        raise CorruptMessage(f"the records of a batch are malformed: {_FOUND_WRONG[answer]}")
