"""What a table must be able to do to be replayed: to give its rows in parts that stay as they are.

A part is a set of files that are only ever there as a whole: a commit of a load, a version of a
Delta table, or all there is. Its number is greater than those of the parts before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

OFFSET: Final = "offset"
LOADED_ORDER: Final = (OFFSET, "topic", "partition")
"""Of a loaded table: partitions advance together, and each in the order of its log."""


class ReplayFailed(Exception):
    """The table cannot be replayed. The text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class TablePart:
    """Rows of a table, as a pyarrow Dataset. files: their names say whether it is still the same.

    is_whole: everything that was there at this number, and not only what it has added.
    """

    number: int
    is_whole: bool
    dataset: Any
    files: tuple[str, ...]

    @property
    def digest(self) -> str:
        return hashlib.sha256("\n".join(sorted(self.files)).encode()).hexdigest()[:16]


class TableSource(Protocol):
    """A table."""

    table_id: str
    """Another one for a table that was made again at the same place."""
    schema: Any

    def part(self, number: int, *, is_whole: bool) -> TablePart | None:
        """One that was begun, as it was then; None if it is not there any more."""
        ...

    def parts(self, after: int | None) -> Iterator[TablePart]:
        """In order. after: the number of the last one that is done."""
        ...


def natural_order(schema: Any) -> list[str]:
    """The columns by which rows are ordered where nobody says: offsets, if there are any."""
    import pyarrow as pa

    if OFFSET not in schema.names or not pa.types.is_integer(schema.field(OFFSET).type):
        return []
    return [name for name in LOADED_ORDER if name in schema.names]


def files_digest(files: Iterable[str], sizes: Mapping[str, int]) -> str:
    named = sorted(f"{name}:{sizes[name]}" for name in files)
    return hashlib.sha256("\n".join(named).encode()).hexdigest()[:16]
