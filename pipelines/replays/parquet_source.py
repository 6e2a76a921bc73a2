"""Parquet files as a table: a directory that `load` has written (see loaded_parquet_source), or any
other: one part, of all files in the order of their paths. Files must not change until they are
replayed, nor be added: new ones could not be distinguished.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from .loaded_parquet_source import LoadedParquetSource
from .table_source import ReplayFailed, TablePart, files_digest


def parquet_source(path: str) -> LoadedParquetSource | ParquetSource:
    """The source for a path. Raises ReplayFailed: it has no Parquet files."""
    if "://" not in path and (Path(path) / "_bradbury" / "commits").is_dir():
        return LoadedParquetSource(path)
    return ParquetSource(path)


class ParquetSource:
    """Source of a file, a directory with files below it, or a URL of either (s3://..., ...)."""

    def __init__(self, path: str) -> None:
        """Raises ReplayFailed: there are no Parquet files."""
        try:
            if "://" in path:
                self._files, self._path = fs.FileSystem.from_uri(path)
            else:
                self._files, self._path = fs.LocalFileSystem(), str(Path(path).resolve())
            found = self._files.get_file_info(self._path)
        except pa.ArrowException as error:
            raise ReplayFailed(
                f"{path}: {error}; use a directory, or s3://... or gs://..."
            ) from None
        if found.type == fs.FileType.NotFound:
            raise ReplayFailed(f"{path}: there is no such file or directory")
        infos = [found]
        if found.type == fs.FileType.Directory:
            infos = self._files.get_file_info(fs.FileSelector(self._path, recursive=True))
        sizes = {
            one.path: one.size
            for one in infos
            if one.type == fs.FileType.File
            and (one is found or one.path.endswith((".parquet", ".parq")))
            and not any(
                name.startswith(("_", ".")) for name in one.path.removeprefix(self._path).split("/")
            )
        }
        if not sizes:
            raise ReplayFailed(
                f"{path} has no Parquet files; give a file, or a directory with files, or use "
                "the format delta"
            )
        self._sizes = sizes
        self.table_id = files_digest(sizes, sizes)
        self._dataset = dataset_of(path, self._files, sorted(sizes), self._path)
        self.schema = self._dataset.schema

    def part(self, number: int, *, is_whole: bool) -> TablePart | None:
        return TablePart(0, True, self._dataset, tuple(self._sizes))

    def parts(self, after: int | None) -> Iterator[TablePart]:
        if after is None:
            yield TablePart(0, True, self._dataset, tuple(self._sizes))


def dataset_of(given: str, files: Any, paths: list[str], base: str) -> Any:
    """Dataset of these files, in this order, with the columns of folder names (day=...)."""
    try:
        hive = ds.partitioning(flavor="hive")
        return ds.dataset(
            paths,
            filesystem=files,
            format="parquet",
            partitioning=hive,
            partition_base_dir=base,
        )
    except (pa.ArrowException, OSError) as error:
        raise ReplayFailed(f"{given}: {error}; use a directory of Parquet files") from None
