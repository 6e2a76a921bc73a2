"""Parquet files of a commit, or of one task's part of it: one or more for each value of the
partition column.

A FilePlace says where they are and creates them: a directory, or the storage of a table format. It
is pickled for the processes that write.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Final, NamedTuple, Protocol, Self

import pyarrow as pa
import pyarrow.parquet as pq

from .load_rows import by_partition

logger = logging.getLogger(__name__)

MOST_OPEN: Final = 64
"""Most open files; for another partition the least recently written file is closed."""


class WrittenFile(NamedTuple):
    """A written file. path: relative to its place. size: bytes. value: of the partition column."""

    path: str
    size: int
    rows: int
    value: str | None
    statistics: str
    """Statistics in the table format's own form; see FilePlace."""


class FilePlace(Protocol):
    """Place where the files of a table are written. It can be pickled; methods block."""

    has_partition_column: bool
    """Whether files contain the partition column; otherwise only folder names have its value."""

    def path(self, value: str | None, name: str) -> str:
        """Path of a file named `name` for rows with `value` in the partition column."""
        ...

    def create(self, path: str) -> AbstractContextManager[Any]:
        """Create a new file and open it for writing."""
        ...

    def finish(self, paths: Sequence[str]) -> None:
        """Make these written files as durable as the place can."""
        ...

    def size(self, path: str) -> int: ...
    def statistics(self, metadata: Any) -> str: ...
    def delete(self, path: str) -> None: ...


class TableFiles:
    """Writer of the files of one task.

    Use as a context manager: if it is left by an exception, its files are deleted.
    """

    def __init__(self, place: FilePlace, partition_by: str | None, task: int = 0) -> None:
        """Sorted by name, files have the rows in the order of writing. task: number of the task."""
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
            try:
                file.opened.close()
            except Exception:  # the incomplete file is deleted; the first error is raised
                logger.debug("closing %s failed", file.path, exc_info=True)
        for path in self._paths:
            self._place.delete(path)

    def write(self, batch: Any) -> None:
        for value, part in by_partition(batch, self._partition_by):
            rows = part
            if self._partition_by is not None and self._place.has_partition_column:
                column = pa.repeat(pa.scalar(value, pa.string()), part.num_rows)
                rows = part.append_column(self._partition_by, column).select(batch.schema.names)
            file = self._open.pop(value, None) or self._begun(value, rows.schema)
            self._open[value] = file  # last written to, last to be closed
            file.writer.write_batch(rows)
            file.rows += rows.num_rows

    def close(self) -> list[WrittenFile]:
        """Close all files and make them durable; returns them."""
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
        # Closed before its sink, also after a failed write.
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
    """A file being written. metadata: Parquet metadata of the file, once it is closed."""

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
    """Write record batches to files that are not yet part of the table."""
    with TableFiles(place, partition_by, task) as files:
        for batch in rows:
            files.write(batch)
        return files.close()
