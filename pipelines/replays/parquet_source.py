"""Parquet files as a source of a replay: a directory written by `load`, or any other.

loaded   a part is a commit: the files of its number, renamed already or not. Later commits are
         later parts, so a replay that is run again writes the new rows.
other    one part, of all files in the order of their paths. Files must not be changed or added
         until they are replayed: new ones could not be told apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from .table_source import ReplayFailed, TablePart, files_digest

_LOADED_FILE: Final = re.compile(r"(\d{20})-\d+(-\d+-[0-9a-f]{32})?\.parquet")


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


class LoadedParquetSource:
    """Source of a directory written by `load`, also while another load writes to it."""

    def __init__(self, path: str) -> None:
        """Raises ReplayFailed: nothing is loaded yet, or there are files that no load wrote."""
        self._given = path
        self._path = Path(path).resolve()
        own = self._path / "_bradbury"
        numbers = [int(name.stem) for name in (own / "commits").glob("*.json")]
        if not numbers:
            raise ReplayFailed(f"nothing is loaded into {path} yet; run `bradbury load` first")
        newest = max(numbers)
        try:
            commit = json.loads((own / "commits" / f"{newest:020}.json").read_text())
            self.table_id = str(commit.get("table_id", ""))
            last_files: list[str] = commit["files"]
        except (ValueError, KeyError, AttributeError) as error:
            raise ReplayFailed(
                f"the newest commit of {path} is damaged ({error}); run `bradbury load` for details"
            ) from None
        self._by_number: dict[int, list[str]] = {}
        for file in self._path.rglob("*.parquet"):
            name = str(file.relative_to(self._path))
            if name.startswith(("_", ".")):
                continue
            found = _LOADED_FILE.fullmatch(file.name)
            if found is None:
                raise ReplayFailed(
                    f"{file} was not written by a load; remove it, or replay a copy of the "
                    "directory without its folder _bradbury"
                )
            if int(found[1]) < newest:
                self._by_number.setdefault(int(found[1]), []).append(name)
        if last_files:  # their renames may be outstanding
            self._by_number[newest] = last_files
        self._staging = own / "staging"
        if not self._by_number:
            raise ReplayFailed(f"{path} has no rows; load records first")
        self.schema = self._dataset(min(self._by_number)).schema

    def part(self, number: int, *, is_whole: bool) -> TablePart | None:
        if number not in self._by_number:
            return None
        names = self._by_number[number]
        return TablePart(number, False, self._dataset(number), tuple(names))

    def parts(self, after: int | None) -> Iterator[TablePart]:
        for number in sorted(self._by_number):
            if after is None or number > after:
                part = self.part(number, is_whole=False)
                assert part is not None
                yield part

    def _dataset(self, number: int) -> Any:
        """Dataset of a commit, whose files are in staging or already renamed."""
        staging = self._staging / f"{number:020}"
        paths = []
        for name in sorted(self._by_number[number]):
            staged = staging / name
            # It may be renamed after this check; then `moved` is opened.
            paths.append(str(staged if staged.exists() else self._path / name))
        moved = [str(self._path / name) for name in sorted(self._by_number[number])]
        try:
            return dataset_of(self._given, fs.LocalFileSystem(), paths, str(self._path))
        except ReplayFailed:
            return dataset_of(self._given, fs.LocalFileSystem(), moved, str(self._path))


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
