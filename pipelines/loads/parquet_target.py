"""A directory of Parquet files, in which each record is once, however often a load was ended.

    PATH/day=2026-07-01/<commit>-<n>.parquet      rows; what any reader of Parquet takes
    PATH/_bradbury/commits/<commit>.json          offsets, and the files that they came with
    PATH/_bradbury/staging/<commit>/...           files that are being written
    PATH/_bradbury/lock                           held by the load that runs

A commit, in this order:
    1. files are written below staging, and fsynced, with their directories
    2. the commit's file is linked to its name, which nobody else can take, and fsynced: from here
       on the rows are loaded
    3. the files are renamed to where readers look
Ended before 2, nothing has happened: the next load throws staging away. Ended in 3, the next load
goes on with the renames of the newest commit before anything else.

Names that begin with _ are passed over by Spark, pyarrow and the like.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Self

import pyarrow.parquet as pq

from ...clients.wire.record_metadata import TopicPartition
from .load_rows import by_partition
from .load_target import LoadFailed
from .loaded_offsets import LoadedOffsets

VERSION: Final = 1
MOST_OPEN: Final = 64
"""Files at a time. One more partition begins, and the oldest file ends."""
KEPT_COMMITS: Final = 100


class ParquetTarget:
    """One load at a time; use as a context manager. All methods block, and raise OSError."""

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
            raise LoadFailed(f"another load writes to {self._path}; wait for its end") from None
        return self

    def __exit__(self, *_: object) -> None:
        self._unlock()

    def loaded(self, keys: Iterable[TopicPartition], topic_ids: Mapping[str, str]) -> LoadedOffsets:
        """See load_target. Finishes what an interrupted load has begun.

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

    def write(self, rows: Iterable[Any], after: LoadedOffsets) -> int:
        """Write these and commit; returns how many there were.

        Raises:
            LoadFailed: another load has committed meanwhile.
        """
        number = self._number
        staged = _StagedFiles(self._staging / f"{number:020}", number, self._schema)
        try:
            for batch in rows:
                for value, part in by_partition(batch, self._partition_by):
                    folder = "" if value is None else f"{self._partition_by}={value}"
                    staged.write(folder, part)
            files = staged.close()
        except BaseException:
            staged.abandon()
            raise
        self._commit(number, files, after)
        self._move(files, number)
        shutil.rmtree(self._staging / f"{number:020}", ignore_errors=True)
        self._number = number + 1
        return staged.rows

    def _commit(self, number: int, files: list[str], after: LoadedOffsets) -> None:
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
                f"another load has committed to {self._path}: nothing of this one is in it"
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
                f"{path} is damaged ({error}): put it back from a backup, or load into another "
                "directory"
            ) from None
        if version != VERSION:
            raise LoadFailed(f"{path} was written by a newer version of bradbury; use that one")
        return commit

    def _check_columns(self, commit: dict[str, Any]) -> None:
        if (commit["columns"], commit["partition_by"]) != (str(self._schema), self._partition_by):
            by = commit["partition_by"]
            had = f"{commit['columns']}, partitioned by {by}".replace("\n", ", ")
            raise LoadFailed(
                f"{self._path} has other columns: {had}; load with the same ones, or into another "
                "directory"
            )

    def _name(self, number: int) -> Path:
        return self._commits / f"{number:020}.json"

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class _StagedFiles:
    """The files of one commit, one for each value of the partition column, or several."""

    def __init__(self, folder: Path, number: int, schema: Any) -> None:
        self._folder = folder
        self._number = number
        self._schema = schema
        self._open: dict[str, pq.ParquetWriter] = {}
        self._names: list[str] = []
        self.rows = 0

    def write(self, folder: str, batch: Any) -> None:
        writer = self._open.pop(folder, None)
        if writer is None:
            if len(self._open) >= MOST_OPEN:
                self._end(next(iter(self._open)))
            name = f"{self._number:020}-{len(self._names)}.parquet"
            self._names.append(f"{folder}/{name}" if folder else name)
            (self._folder / folder).mkdir(parents=True, exist_ok=True)
            writer = pq.ParquetWriter(
                str(self._folder / self._names[-1]), batch.schema, compression="zstd"
            )
        self._open[folder] = writer  # the last one that was written to is the last to end
        writer.write_batch(batch)
        self.rows += batch.num_rows

    def close(self) -> list[str]:
        """Their names, relative to the table, when they are on the disk."""
        for folder in list(self._open):
            self._end(folder)
        for name in self._names:
            with open(self._folder / name, "rb") as file:
                os.fsync(file.fileno())
        for path in {(self._folder / name).parent for name in self._names}:
            _sync_directory(path)
        return self._names

    def abandon(self) -> None:
        for writer in self._open.values():
            writer.close()
        self._open.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self, folder: str) -> None:
        self._open.pop(folder).close()


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
