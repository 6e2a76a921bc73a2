"""A directory of Parquet files that `load` has written, also while another load writes to it.

A part is a commit: the files that it wrote, renamed already or not, and whichever files a
compaction has put their rows into. Later commits are later parts, so a replay that is run again
writes the new rows.

Invariants: a row is in one part, and that part has the same rows in the same order before
and after a compaction, and in the middle of one; see loads/loaded_files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ..loads.loaded_files import loaded_files, number_of
from .table_source import ReplayFailed, TablePart


class _Place(NamedTuple):
    """Place of the rows that a commit wrote as a file. rows: number from `first` on; None: all."""

    path: Path
    first: int
    rows: int | None


class LoadedParquetSource:
    """Directory of Parquet files to replay; see the module docstring."""

    def __init__(self, path: str) -> None:
        """Raises ReplayFailed: nothing is loaded yet, or files are there that no load wrote."""
        self._given = path
        self._path = Path(path).resolve()
        self._own = self._path / "_bradbury"
        self._places: dict[str, _Place] = {}
        self._update_places()
        self._by_number: dict[int, list[str]] = {}
        for name in sorted(self._places):
            number = number_of(name.rpartition("/")[2])
            assert number is not None, name
            self._by_number.setdefault(number, []).append(name)
        if not self._by_number:
            raise ReplayFailed(f"{path} has no rows; load something first")
        with self._opened(name)[0] as file:
            try:
                self.schema = _with_folder(pq.read_schema(file).empty_table(), name).schema
            except (pa.ArrowException, OSError) as error:
                raise ReplayFailed(f"{self._path / name} cannot be read: {error}") from None

    def part(self, number: int, *, is_whole: bool) -> TablePart | None:
        names = tuple(self._by_number.get(number, ()))
        return TablePart(number, False, _Rows(self, names), names) if names else None

    def parts(self, after: int | None) -> Iterator[TablePart]:
        for number in sorted(self._by_number):
            if after is None or number > after:
                part = self.part(number, is_whole=False)
                assert part is not None
                yield part

    def rows_of(self, name: str) -> int:
        opened, place = self._opened(name)
        with opened as file:
            return pq.read_metadata(file).num_rows if place.rows is None else place.rows

    def batches_of(self, name: str, columns: Sequence[str]) -> Iterator[Any]:
        """The rows that a commit wrote into the file of this name, with these columns, in order."""
        opened, place = self._opened(name)
        with opened, pq.ParquetFile(opened) as file:
            start, end = place.first, place.first + (place.rows or 0)
            if place.rows is None:
                end = file.metadata.num_rows
            groups, skipped = _groups(file.metadata, start, end)
            own = set(file.schema_arrow.names)
            needed = [column for column in columns if column in own] or [file.schema_arrow.names[0]]
            at = skipped
            for batch in file.iter_batches(row_groups=groups, columns=needed):
                first, last = max(start - at, 0), min(end - at, batch.num_rows)
                at += batch.num_rows
                if last > first:
                    rows = pa.Table.from_batches([batch.slice(first, last - first)])
                    yield from _with_folder(rows, name).select(columns).to_batches()

    def _opened(self, name: str) -> tuple[BinaryIO, _Place]:
        """Open the file that has the rows of this name now; also returns their place in it.

        An open file can be read to its end, also if it is compacted meanwhile.

        Raises:
            ReplayFailed: the file is gone, and its rows are in no other one.
        """
        while True:
            place = self._places[name]
            try:
                return open(place.path, "rb"), place
            except FileNotFoundError:
                self._update_places()
                if self._places.get(name, place) == place:
                    raise ReplayFailed(
                        f"{self._path / name} was removed; restore it, or use another --name "
                        "to replay all that is there"
                    ) from None

    def _update_places(self) -> None:
        """Update the current place of each file of a commit. Raises ReplayFailed."""
        missing = None
        while True:
            newest, commit = self._newest()
            found = None
            try:
                found = self._found(newest, commit)
            except FileNotFoundError as error:  # renamed or compacted since the commit was read
                if missing == (newest, error.filename):
                    raise ReplayFailed(f"{error.filename} was removed; restore it") from None
                missing = newest, error.filename
            except (ValueError, pa.ArrowException) as error:
                raise ReplayFailed(f"a file of {self._given} cannot be read: {error}") from None
            if self._newest()[0] == newest and found is not None:
                self._places |= found
                return

    def _newest(self) -> tuple[int, dict[str, Any]]:
        numbers = [int(name.stem) for name in (self._own / "commits").glob("*.json")]
        if not numbers:
            raise ReplayFailed(
                f"nothing is loaded into {self._given} yet; run the load again first"
            )
        newest = max(numbers)
        try:
            text = (self._own / "commits" / f"{newest:020}.json").read_text(encoding="utf-8")
            commit: dict[str, Any] = json.loads(text)
            self.table_id = str(commit.get("table_id", ""))
            return newest, {"files": commit["files"], "removed": commit.get("removed", [])}
        except (ValueError, KeyError, AttributeError) as error:
            raise ReplayFailed(
                f"the newest commit of {self._given} is damaged ({error}); see what "
                "`bradbury load` says"
            ) from None

    def _found(self, newest: int, commit: dict[str, Any]) -> dict[str, _Place]:
        """Places by name. Raises FileNotFoundError: a file was compacted meanwhile."""
        names = {}
        for file in self._path.rglob("*.parquet"):
            name = str(file.relative_to(self._path))
            if name.startswith(("_", ".")):
                continue
            number = number_of(file.name)
            if number is None:
                raise ReplayFailed(
                    f"{file} was not written by a load; remove it, or replay a copy of the "
                    "directory without its folder _bradbury"
                )
            if number < newest and name not in commit["removed"]:
                names[name] = file
        for name in commit["files"]:  # they may wait for their renames
            staged = self._own / "staging" / f"{newest:020}" / name
            names[name] = staged if staged.exists() else self._path / name
        places = {}
        for name, path in names.items():
            first = 0
            for one in loaded_files(path, name):
                places[one.name] = _Place(path, first, one.rows)
                first += one.rows or 0
        return places


class _Rows:
    """Rows of files, with the methods of a pyarrow Dataset that a replay uses."""

    def __init__(self, source: LoadedParquetSource, names: Sequence[str]) -> None:
        self._source = source
        self._names = names

    def to_batches(self, columns: Sequence[str]) -> Iterator[Any]:
        for name in self._names:
            yield from self._source.batches_of(name, columns)

    def count_rows(self) -> int:
        return sum(self._source.rows_of(name) for name in self._names)


def _groups(metadata: Any, start: int, end: int) -> tuple[list[int], int]:
    """The row groups that have rows of [start, end), and how many rows are before them."""
    groups: list[int] = []
    at = skipped = 0
    for number in range(metadata.num_row_groups):
        rows = metadata.row_group(number).num_rows
        if at + rows <= start:
            skipped = at + rows
        elif at < end:
            groups.append(number)
        at += rows
    return groups, skipped


def _with_folder(rows: Any, name: str) -> Any:
    """Rows with the columns that folder names (day=...) add."""
    for folder in name.split("/")[:-1]:
        column, equals, value = folder.partition("=")
        if equals:
            rows = rows.append_column(
                column, pa.repeat(pa.scalar(value, pa.string()), rows.num_rows)
            )
    return rows
