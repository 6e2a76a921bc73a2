"""What the two twins of the cleaner's loops are given and answer: plain numbers, no arrays.

Not here: the loops (cleaner_plain, cleaner_compiled), what is done with the answers
(cleaner_filter).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ...protocol.buffer import Buffer

BYTES_PER_ENTRY = 24
"""What one key takes in an offset map: 16 bytes of hash and 8 of offset, as in Kafka."""
SEED_BYTES = 16


class RecordRows(NamedTuple):
    """Where the records of one batch lie in the bytes at hand, decompressed. Field order matters:
    the compiled twin makes an array of it.
    """

    start: int
    end: int
    record_count: int
    base_offset: int
    last_offset_delta: int
    base_timestamp: int
    drops_tombstones: int
    """1 if a record without a value need not be kept: the batch's delete horizon has passed."""


class KeptRecords(NamedTuple):
    """What is left of one batch."""

    record_count: int
    size: int
    """Bytes of the kept records."""
    tombstones: int
    """How many of the kept ones have no value."""
    max_timestamp: int
    """The largest of the kept ones' timestamps; -1 if none is kept."""
    keyless: int
    """Records without a key, which nothing is known to supersede: they are dropped."""


class Rewrite(NamedTuple):
    """One batch whose kept records are to be written."""

    batch: int
    """Its number among the rows."""
    position: int
    """Where its first record goes."""
    shift: int
    """Added to each timestamp delta, because the base timestamp became this much smaller."""


class OffsetMap(Protocol):
    """The last offset of each key, by the key's hash: bounded memory, whatever the keys' sizes.

    128 bits under a secret seed: no producer can make another's key look like its own, and among
    2**32 keys a chance collision, which would lose a record, has a probability below 2**-64.
    """

    latest_offset: int
    """Everything up to this offset is in the map; -1 if nothing is."""

    @property
    def entries(self) -> int:
        """How many keys it holds."""
        ...

    def index(self, source: Buffer, batches: Sequence[RecordRows], start_offset: int) -> bool:
        """Note the keys of the records of `batches` from `start_offset` on.

        Returns False if the map became full: then latest_offset tells how far it got.

        Raises:
            CorruptMessage: the records are not what their batch says.
        """
        ...

    def filter(self, source: Buffer, batches: Sequence[RecordRows]) -> FilteredRecords:
        """Find the records that are still the last of their key, or above latest_offset.

        Raises:
            CorruptMessage: as index.
        """
        ...


class FilteredRecords(Protocol):
    """Which records of some batches are kept."""

    kept: list[KeptRecords]

    def rewrite(self, rewrites: Sequence[Rewrite], target: bytearray) -> list[int]:
        """Write the kept records of some batches into `target`; returns where each one ends.

        A record grows by at most GROWTH bytes when its timestamp delta is shifted.
        """
        ...


GROWTH = 10
"""Nine bytes of timestamp delta, and one of the record's length."""
