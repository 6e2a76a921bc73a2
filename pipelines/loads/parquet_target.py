"""Directory of Parquet files with each record once, however often a load is interrupted.

    PATH/day=2026-07-01/<commit>-<task>-<n>-<run>.parquet
                                            rows, for any reader of Parquet
    PATH/_bradbury/commits/<commit>.json    offsets, and the files committed with them
    PATH/_bradbury/staging/<commit>/...     files that are being written
    PATH/_bradbury/lock                     held by the load that runs

A commit, in this order:
    1. files are written below staging, and fsynced, with their directories
    2. the commit's file is linked to its name, which fails if the name exists, and fsynced: from
    here on the rows are loaded
    3. the files are renamed to their final paths
If a load ends before step 2, nothing is committed: the next load deletes staging. If it ends in
step 3, the next load first completes the renames of the newest commit.

Names that begin with _ are ignored by Spark, pyarrow and the like.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

from ...clients.wire.record_metadata import TopicPartition
from .load_target import LoadFailed
from .loaded_offsets import LoadedOffsets
from .table_files import WrittenFile

VERSION: Final = 1
KEPT_COMMITS: Final = 100


class ParquetTarget:
    """Directory of Parquet files to load into, for one load at a time.

    Use as a context manager. All methods block, and raise OSError.
    """

    def __init__(self, path: str, schema: Any, partition_by: str | None) -> None:
        self._path = Path(path)
        self._own = self._path / "_bradbury"
        self._commits = self._own / "commits"
        self._staging = self._own / "staging"
        self._schema = schema
        self._partition_by = partition_by
        self._lock: int | None = None
        self._number = 0
        self._table_id = uuid.uuid4().hex

    def __enter__(self) -> Self:
        self._commits.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._own / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._unlock()
            raise LoadFailed(f"another load is writing to {self._path}; wait for its end") from None
        return self

    def __exit__(self, *_: object) -> None:
        self._unlock()

    def loaded(self, keys: Iterable[TopicPartition], topic_ids: Mapping[str, str]) -> LoadedOffsets:
        """See load_target. Completes the newest commit of an interrupted load.

        Raises:
            LoadFailed: a commit is damaged, or the table has other columns.
        """
        numbers = sorted(int(name.stem) for name in self._commits.glob("*.json"))
        if not numbers:
            self._throw_staging_away()
            return LoadedOffsets()
        self._number = numbers[-1] + 1
        commit = self._read(numbers[-1])
        self._table_id = commit.get("table_id", self._table_id)
        self._move(commit["files"], numbers[-1])
        self._throw_staging_away()
        self._check_columns(commit)
        for number in numbers[:-KEPT_COMMITS]:
            self._name(number).unlink()
        return LoadedOffsets(
            {
                TopicPartition(topic, int(partition)): offset
                for topic, partitions in commit["offsets"].items()
                for partition, offset in partitions.items()
            },
            commit["topic_ids"],
        )

    def begin(self) -> StagingFolder:
        """See load_target."""
        return StagingFolder(str(self._staging), self._number, self._partition_by)

    def commit(self, files: Sequence[WrittenFile], after: LoadedOffsets) -> None:
        """See load_target.

        Raises:
            LoadFailed: another load committed in the meantime, or files are not on this machine.
        """
        number = self._number
        staging = self._staging / f"{number:020}"
        for file in files:
            path = staging / file.path
            if not path.exists() or path.stat().st_size != file.size:
                raise LoadFailed(
                    f"{path} was written on another machine and is not visible on this one; use a "
                    "directory that is mounted on all nodes"
                )
        names = [file.path for file in files]
        self._link(number, names, after)
        self._move(names, number)
        shutil.rmtree(staging, ignore_errors=True)
        self._number = number + 1

    def discard(self, files: Sequence[WrittenFile]) -> None:
        """See load_target. Deletes all staged files."""
        self._throw_staging_away()

    def _link(self, number: int, files: list[str], after: LoadedOffsets) -> None:
        offsets: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in sorted(after.offsets.items()):
            offsets.setdefault(topic, {})[str(partition)] = offset
        content = {
            "version": VERSION,
            "table_id": self._table_id,
            "offsets": offsets,
            "topic_ids": dict(after.topic_ids),
            "files": files,
            "columns": str(self._schema),
            "partition_by": self._partition_by,
        }
        temporary = self._commits / f"{number:020}.tmp"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, self._name(number))
        except FileExistsError:
            raise LoadFailed(
                f"another load has committed to {self._path}: this commit was not made; run the "
                "load again"
            ) from None
        finally:
            temporary.unlink()
        _sync_directory(self._commits)

    def _move(self, files: list[str], number: int) -> None:
        staging = self._staging / f"{number:020}"
        folders = set()
        for name in files:
            staged, target = staging / name, self._path / name
            if staged.exists():
                target.parent.mkdir(exist_ok=True)
                staged.rename(target)
                folders.add(target.parent)
        for folder in sorted(folders):
            _sync_directory(folder)
        if folders:
            _sync_directory(self._path)

    def _throw_staging_away(self) -> None:
        if self._staging.exists():
            shutil.rmtree(self._staging)

    def _read(self, number: int) -> dict[str, Any]:
        path = self._name(number)
        try:
            commit: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            version = commit["version"]
        except (ValueError, KeyError, TypeError) as error:
            raise LoadFailed(
                f"{path} is damaged ({error}): restore it from a backup, or load into another "
                "directory"
            ) from None
        if version != VERSION:
            raise LoadFailed(f"{path} was written by a newer version of bradbury; use that version")
        return commit

    def _check_columns(self, commit: dict[str, Any]) -> None:
        if (commit["columns"], commit["partition_by"]) != (str(self._schema), self._partition_by):
            by = commit["partition_by"]
            had = f"{commit['columns']}, partitioned by {by}".replace("\n", ", ")
            raise LoadFailed(
                f"{self._path} has other columns: {had}; load with the same columns, or into "
                "another directory"
            )

    def _name(self, number: int) -> Path:
        return self._commits / f"{number:020}.json"

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class StagingFolder:
    """FilePlace in a staging folder. Paths are relative to it and, once committed, to the table."""

    has_partition_column = False

    def __init__(self, staging: str, number: int, partition_by: str | None) -> None:
        self._folder = Path(staging) / f"{number:020}"
        self._number = number
        self._partition_by = partition_by

    def path(self, value: str | None, name: str) -> str:
        """See FilePlace."""
        name = f"{self._number:020}-{name}"
        return name if value is None else f"{self._partition_by}={value}/{name}"

    def create(self, path: str) -> BinaryIO:
        """See FilePlace."""
        target = self._folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        return open(target, "xb")

    def finish(self, paths: Sequence[str]) -> None:
        """See FilePlace. Fsyncs the files and their folders."""
        for path in paths:
            with open(self._folder / path, "rb") as file:
                os.fsync(file.fileno())
        folders = {(self._folder / path).parent for path in paths}
        if folders:
            folders |= {self._folder, self._folder.parent}
        for folder in sorted(folders, reverse=True):
            _sync_directory(folder)

    def size(self, path: str) -> int:
        """See FilePlace."""
        return (self._folder / path).stat().st_size

    def statistics(self, metadata: Any) -> str:
        """See FilePlace. Empty: readers use the file's own statistics."""
        return ""

    def delete(self, path: str) -> None:
        """See FilePlace."""
        (self._folder / path).unlink(missing_ok=True)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
