"""Input and output of both variants of the cleaner's loops: plain numbers, no arrays.

Not here: the loops (cleaner_plain, cleaner_compiled), the use of their results (cleaner_filter).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ...protocol.buffer import Buffer

BYTES_PER_ENTRY = 24
"""Bytes of one key in an offset map: 16 of hash and 8 of offset, as in Kafka."""
SEED_BYTES = 16


class RecordRows(NamedTuple):
    """Position of the records of one batch in the decompressed bytes. Field order matters: the
    compiled variant makes an array of it.
    """

    start: int
    end: int
    record_count: int
    base_offset: int
    last_offset_delta: int
    base_timestamp: int
    drops_tombstones: int
    """1 if records without a value are dropped: the batch's delete horizon has passed."""


class KeptRecords(NamedTuple):
    """Kept records of one batch."""

    record_count: int
    size: int
    """Bytes of the kept records."""
    tombstones: int
    """Number of kept records without a value."""
    max_timestamp: int
    """Largest timestamp of the kept records; -1 if none is kept."""
    keyless: int
    """Number of records without a key, which are dropped, as nothing can supersede them."""


class Rewrite(NamedTuple):
    """One batch to write with its kept records."""

    batch: int
    """Number of the batch among the rows."""
    position: int
    """Position of its first record in the target."""
    shift: int
    """Number added to each timestamp delta, as the base timestamp became this much smaller."""


class OffsetMap(Protocol):
    """Last offset of each key, by the key's hash, in bounded memory.

    128 bits under a secret seed: no producer can make another's key look like its own, and among
    2**32 keys a chance collision, which would lose a record, has a probability below 2**-64.
    """

    latest_offset: int
    """Offset up to which all records are in the map; -1: none."""

    @property
    def entries(self) -> int:
        """Number of keys in the map."""
        ...

    def index(self, source: Buffer, batches: Sequence[RecordRows], start_offset: int) -> bool:
        """Note the keys of the records of `batches` from `start_offset` on.

        Returns False if the map became full: then latest_offset is the last offset indexed.

        Raises:
            CorruptMessage: the records contradict the header of their batch.
        """
        ...

    def filter(self, source: Buffer, batches: Sequence[RecordRows]) -> FilteredRecords:
        """Find the records that are still the last of their key, or above latest_offset.

        Raises:
            CorruptMessage: as index.
        """
        ...


class FilteredRecords(Protocol):
    """Kept records of some batches."""

    kept: list[KeptRecords]

    def rewrite(self, rewrites: Sequence[Rewrite], target: bytearray) -> list[int]:
        """Write the kept records of some batches into `target`; returns the end of each one.

        A record grows by at most GROWTH bytes when its timestamp delta is shifted.
        """
        ...


GROWTH = 10
"""Most bytes that a rewritten record grows: nine of the timestamp delta, and one of the length."""
