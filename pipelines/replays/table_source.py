"""Interface of a table that can be replayed: rows in parts that do not change.

A part is a set of files that appear together: a commit of a load, a version of a Delta table, or
all files. Its number is greater than those of earlier parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

OFFSET: Final = "offset"
LOADED_ORDER: Final = (OFFSET, "topic", "partition")
"""Order of a loaded table: partitions advance together, each in the order of its log."""


class ReplayFailed(Exception):
    """The table cannot be replayed. The text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class TablePart:
    """Part of a table.

    is_whole: has all rows as of this number, not only those that it added. dataset: the rows, as a
    pyarrow Dataset. files: names by which a change of the part is detected.
    """

    number: int
    is_whole: bool
    dataset: Any
    files: tuple[str, ...]

    @property
    def digest(self) -> str:
        return hashlib.sha256("\n".join(sorted(self.files)).encode()).hexdigest()[:16]


class TableSource(Protocol):
    """A table to replay."""

    table_id: str
    """Id of the table; differs if the table is recreated at the same place."""
    schema: Any

    def part(self, number: int, *, is_whole: bool) -> TablePart | None:
        """The part with this number, as it was; None: it no longer exists."""
        ...

    def parts(self, after: int | None) -> Iterator[TablePart]:
        """Parts in order. after: number of the last completed part; None: there is none."""
        ...


def natural_order(schema: Any) -> list[str]:
    """Columns of the default order: those of LOADED_ORDER if there are offsets, else none."""
    import pyarrow as pa

    if OFFSET not in schema.names or not pa.types.is_integer(schema.field(OFFSET).type):
        return []
    return [name for name in LOADED_ORDER if name in schema.names]


def files_digest(files: Iterable[str], sizes: Mapping[str, int]) -> str:
    named = sorted(f"{name}:{sizes[name]}" for name in files)
    return hashlib.sha256("\n".join(named).encode()).hexdigest()[:16]
