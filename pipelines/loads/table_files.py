"""The Parquet files of a commit, or of one task's part of it: one for each value of the partition
column, or several.

Where they are, and how they are made, is the place's: a directory, or the storage of a table's
format. It travels to the processes that write.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Final, NamedTuple, Protocol, Self

import pyarrow as pa
import pyarrow.parquet as pq

from .load_rows import by_partition

MOST_OPEN: Final = 64
"""Files at a time. One more partition begins, and the oldest file ends."""


class WrittenFile(NamedTuple):
    """path: as its place has it. size: bytes. value: of the partition column, or None."""

    path: str
    size: int
    rows: int
    value: str | None
    statistics: str
    """What the place has made of the file's own ones; see FilePlace."""


class FilePlace(Protocol):
    """Where the files of a table are written. It can be pickled; methods block."""

    has_partition_column: bool
    """Whether it is in the files, too, and not in their folders' names alone."""

    def path(self, value: str | None, name: str) -> str:
        """Of a file of that name with the rows of that value of the partition column."""
        ...

    def create(self, path: str) -> AbstractContextManager[Any]:
        """A new file, to be written."""
        ...

    def finish(self, paths: Sequence[str]) -> None:
        """They have been written: see to it that they outlive the machine, as the place does."""
        ...

    def size(self, path: str) -> int: ...
    def statistics(self, metadata: Any) -> str: ...
    def delete(self, path: str) -> None: ...


class TableFiles:
    """Use as a context manager: if it is left by an exception, its files are deleted."""

    def __init__(self, place: FilePlace, partition_by: str | None, task: int = 0) -> None:
        """In the order of their names files of a task have the rows as they came; see LoadTask."""
        self._place = place
        self._partition_by = partition_by
        self._task = task
        self._run = uuid.uuid4().hex  # a task may run twice at the same time
        self._open: dict[str | None, _OpenFile] = {}
        self._paths: list[str] = []
        self._written: list[WrittenFile] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            return
        for file in self._open.values():
            file.opened.close()
        for path in self._paths:
            self._place.delete(path)

    def write(self, batch: Any) -> None:
        for value, part in by_partition(batch, self._partition_by):
            rows = part
            if self._partition_by is not None and self._place.has_partition_column:
                column = pa.repeat(pa.scalar(value, pa.string()), part.num_rows)
                rows = part.append_column(self._partition_by, column).select(batch.schema.names)
            file = self._open.pop(value, None) or self._begun(value, rows.schema)
            self._open[value] = file  # the last one that was written to is the last to end
            file.writer.write_batch(rows)
            file.rows += rows.num_rows

    def close(self) -> list[WrittenFile]:
        """What was written, when it is safe."""
        for value in list(self._open):
            self._end(value)
        self._place.finish([file.path for file in self._written])
        return self._written

    def _begun(self, value: str | None, schema: Any) -> _OpenFile:
        if len(self._open) >= MOST_OPEN:
            self._end(next(iter(self._open)))
        name = f"{self._task:05}-{len(self._paths):05}-{self._run}.parquet"
        path = self._place.path(value, name)
        opened = ExitStack()
        self._paths.append(path)
        sink = opened.enter_context(self._place.create(path))
        # It is closed before its sink, also where writing has failed.
        metadata: list[Any] = []
        writer = opened.enter_context(
            pq.ParquetWriter(sink, schema, compression="zstd", metadata_collector=metadata)
        )
        return _OpenFile(path, writer, metadata, opened)

    def _end(self, value: str | None) -> None:
        file = self._open.pop(value)
        file.opened.close()
        self._written.append(
            WrittenFile(
                file.path,
                self._place.size(file.path),
                file.rows,
                value,
                self._place.statistics(file.metadata[0]),
            )
        )


class _OpenFile:
    """metadata: of the file, once it is closed."""

    def __init__(
        self, path: str, writer: pq.ParquetWriter, metadata: list[Any], opened: ExitStack
    ) -> None:
        self.path = path
        self.writer = writer
        self.metadata = metadata
        self.opened = opened
        self.rows = 0


def write_rows(
    place: FilePlace, partition_by: str | None, task: int, rows: Iterable[Any]
) -> list[WrittenFile]:
    """The record batches as files of the table, which are not in it yet."""
    with TableFiles(place, partition_by, task) as files:
        for batch in rows:
            files.write(batch)
        return files.close()
