"""The Parquet files of a directory that `load` has written: their names, and what is in which.

    <commit>-<task>-<n>-<run>.parquet          rows of one commit
    <commit>-compacted-<n>-<run>.parquet       the rows of several such files, one file's behind the
                                               other's; its footer names them:
        bradbury.compacted    [[path in the table, rows], ...]

Invariants: a file of a commit keeps its name, its rows and their order forever, whichever
file they are in now. So a replay that is half way through a commit resumes there, and a commit is
the same part of the table before and after a compaction.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

LOADED_NAME: Final = re.compile(r"(\d{20})-\d+(-\d+-[0-9a-f]{32})?\.parquet")
COMPACTED_NAME: Final = re.compile(r"(\d{20})-compacted-\d+-[0-9a-f]{32}\.parquet")
COMPACTED: Final = b"bradbury.compacted"
GROUP_ROWS: Final = 131_072
GROUP_BYTES: Final = 64 * 1024 * 1024
"""Bytes of values in memory; a row group of a compacted file ends at this or GROUP_ROWS."""


class LoadedFile(NamedTuple):
    """A file of a commit. name: its path in the table. rows: None: not looked up."""

    name: str
    rows: int | None


def number_of(name: str) -> int | None:
    """Number of the commit that wrote the file of this name; None: no load wrote it."""
    found = LOADED_NAME.fullmatch(name) or COMPACTED_NAME.fullmatch(name)
    return None if found is None else int(found[1])


def loaded_files(path: Path, name: str) -> list[LoadedFile]:
    """Files of commits whose rows are in the file at `path`, `name` in the table, in order.

    Raises:
        OSError, pa.ArrowException: it cannot be read.
        ValueError: a compacted file does not list them.
    """
    if COMPACTED_NAME.fullmatch(path.name) is None:
        return [LoadedFile(name, None)]
    with open(path, "rb") as file:
        metadata = pq.read_metadata(file).metadata or {}
    if COMPACTED not in metadata:
        raise ValueError(f"{path} does not say what was compacted into it")
    return [LoadedFile(one, int(rows)) for one, rows in json.loads(metadata[COMPACTED])]


def write_compacted(table: Path, names: Sequence[str], sink: BinaryIO) -> None:
    """Write the rows of these files as one file, with one row group at a time in memory.

    Raises:
        OSError, pa.ArrowException, ValueError: one cannot be read, or has other columns.
    """
    inside: list[LoadedFile] = []
    for name in names:
        for one in loaded_files(table / name, name):
            rows = one.rows
            if rows is None:
                rows = pq.read_metadata(table / name).num_rows
            inside.append(LoadedFile(one.name, rows))
    schema = pq.read_schema(table / names[0]).remove_metadata()
    pieces = (piece for name in names for piece in _row_groups(table / name, schema))
    write_row_groups(sink, schema, pieces, {COMPACTED: json.dumps(inside).encode()})


def write_row_groups(
    sink: BinaryIO, schema: Any, pieces: Iterable[Any], footer: Mapping[bytes, bytes] | None = None
) -> None:
    """Write tables as a Parquet file, in row groups of about GROUP_ROWS or GROUP_BYTES."""
    with pq.ParquetWriter(sink, schema.with_metadata(footer), compression="zstd") as writer:
        held: list[Any] = []
        rows = size = 0
        for piece in pieces:
            held.append(piece)
            rows += piece.num_rows
            size += piece.nbytes
            if rows >= GROUP_ROWS or size >= GROUP_BYTES:
                writer.write_table(_whole(held, footer), row_group_size=rows)
                held, rows, size = [], 0, 0
        if rows:
            writer.write_table(_whole(held, footer), row_group_size=rows)


def _whole(held: list[Any], footer: Mapping[bytes, bytes] | None) -> Any:
    return pa.concat_tables(held).replace_schema_metadata(footer)


def _row_groups(path: Path, schema: Any) -> Iterator[Any]:
    with open(path, "rb") as opened, pq.ParquetFile(opened) as file:
        found = file.schema_arrow.remove_metadata()
        if found != schema:
            raise ValueError(f"{path} has other columns than the files beside it")
        for number in range(file.num_row_groups):
            yield file.read_row_group(number).replace_schema_metadata(None)
