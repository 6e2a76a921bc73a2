"""Directory of Parquet files with each record once, however often a load is interrupted.

    PATH/day=2026-07-01/<commit>-<task>-<n>-<run>.parquet
                                            rows; what any reader of Parquet takes
    PATH/day=2026-07-01/<commit>-compacted-<n>-<run>.parquet
                                            rows of several of them; see loaded_files
    PATH/_bradbury/commits/<commit>.json    offsets, and the files that they came with; of a
                                            compaction the offsets of before, its files, and those
                                            that they take the place of ("removed")
    PATH/_bradbury/staging/<commit>/...     files that are being written
    PATH/_bradbury/lock                     held by the load that runs

A commit, in this order:
    1. files are written below staging, and fsynced, with their directories
    2. the commit's file is linked to its name, which fails if that exists, and fsynced: from here
       on the rows are loaded
    3. the files are renamed to their paths in the table
    4. of a compaction: the files that it replaces are removed
If a load ends before 2, nothing is committed: the next load deletes the staged files. If it ends in
3 or 4, the next load first completes the newest commit.

The files of the table are those in its folders that a load has written, and the newest commit's,
without those that it removes. Commits before the newest one are complete.

Names that begin with _ are ignored by Spark, pyarrow and the like.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

import pyarrow as pa

from ...protocol.topic_partition import TopicPartition
from .compaction import CompactionRules, TableFile, file_groups
from .load_target import LoadFailed
from .loaded_files import number_of, write_compacted
from .loaded_offsets import LoadedOffsets
from .table_files import WrittenFile
from .table_format import check_format

VERSION: Final = 1
COMPACTION_VERSION: Final = 2
"""Version of a compaction's commit: code for VERSION would complete it without removals."""
KEPT_COMMITS: Final = 100


class ParquetTarget:
    """Directory of Parquet files to load into, for one load at a time.

    Use as a context manager. All methods block, and raise OSError.
    """

    def __init__(self, path: str, schema: Any, partition_by: str | None) -> None:
        """schema: None: the table exists, keeps its columns, and is only compacted."""
        self._path = Path(path)
        self._own = self._path / "_bradbury"
        self._commits = self._own / "commits"
        self._staging = self._own / "staging"
        self._schema = schema
        self._partition_by = partition_by
        self._lock: int | None = None
        self._made: list[Path] = []
        """Folders that this load has created."""
        self._number = 0
        self._table_id = uuid.uuid4().hex
        self._newest: dict[str, Any] = {}
        """Content of the newest commit; empty: there is none."""

    def __enter__(self) -> Self:
        check_format(str(self._path), "parquet")
        if self._schema is None and not self._commits.is_dir():
            raise LoadFailed(
                f"nothing is loaded into {self._path} yet: there is nothing to compact"
            )
        self._made = [path for path in (self._path, self._own) if not path.exists()]
        self._commits.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._own / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A failed load may have removed the file before it was locked here.
            is_there = os.path.samestat(os.fstat(self._lock), os.stat(self._own / "lock"))
        except (BlockingIOError, FileNotFoundError):
            is_there = False
        if not is_there:
            self._unlock()
            raise LoadFailed(f"another load is writing to {self._path}; wait for its end")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._made and not any(self._commits.glob("*")):
            self._remove_empty_folders()
        self._unlock()

    def _remove_empty_folders(self) -> None:
        """Remove the folders of a first load that has loaded nothing, as far as they are empty."""
        with suppress(OSError):
            (self._own / "lock").unlink()
            for folder in (self._staging, self._commits, self._own, *reversed(self._made)):
                if folder.exists():
                    folder.rmdir()

    def loaded(self, keys: Iterable[TopicPartition], topic_ids: Mapping[str, str]) -> LoadedOffsets:
        """See load_target. Completes the newest commit of an interrupted load.

        Raises:
            LoadFailed: a commit is damaged, or the table has other columns.
        """
        numbers = sorted(int(name.stem) for name in self._commits.glob("*.json"))
        if not numbers:
            self._delete_staging()
            return LoadedOffsets()
        self._number = numbers[-1] + 1
        commit = self._read(numbers[-1])
        self._table_id = commit.get("table_id", self._table_id)
        self._newest = commit
        self._move(commit["files"], numbers[-1])
        self._remove(commit.get("removed", ()))
        self._delete_staging()
        if self._schema is not None:
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
        offsets: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in sorted(after.offsets.items()):
            offsets.setdefault(topic, {})[str(partition)] = offset
        content = {
            "version": VERSION,
            "table_id": self._table_id,
            "offsets": offsets,
            "topic_ids": dict(after.topic_ids),
            "files": names,
            "columns": str(self._schema),
            "partition_by": self._partition_by,
        }
        self._link(number, content)
        self._move(names, number)
        self._committed(number, content)

    def compact(self, rules: CompactionRules, folders: Collection[str | None] | None = None) -> int:
        """See load_target. Each folder is a commit of its own, with the previous one's offsets.

        Raises:
            LoadFailed: nothing is loaded yet, or a file cannot be read.
        """
        if not self._newest:
            raise LoadFailed(
                f"nothing is loaded into {self._path} yet: there is nothing to compact"
            )
        by_folder: dict[str | None, list[list[str]]] = {}
        for group in file_groups(self._files(folders), rules, folders):
            by_folder.setdefault(group[0].folder, []).append([file.path for file in group])
        for groups in by_folder.values():
            self._compact(groups)
        return sum(len(names) for groups in by_folder.values() for names in groups)

    def _compact(self, groups: list[list[str]]) -> None:
        number = self._number
        place = StagingFolder(str(self._staging), number, None)
        files = []
        try:
            for count, names in enumerate(groups):
                name = f"{number:020}-compacted-{count:05}-{uuid.uuid4().hex}.parquet"
                files.append(str(Path(names[0]).parent / name))
                with place.create(files[-1]) as sink:
                    write_compacted(self._path, names, sink)
            place.finish(files)
        except (pa.ArrowException, ValueError, OSError) as error:
            self._delete_staging()
            if isinstance(error, OSError) and error.errno is not None:
                raise  # an error of the system, not pyarrow's for invalid content
            raise LoadFailed(
                f"a file of {self._path} cannot be compacted ({error}): restore it from a backup, "
                "or remove it"
            ) from None
        removed = [name for names in groups for name in names]
        content = {
            **self._newest,
            "version": COMPACTION_VERSION,
            "files": files,
            "removed": removed,
        }
        self._link(number, content)
        self._move(files, number)
        self._remove(removed)
        self._committed(number, content)

    def _files(self, folders: Collection[str | None] | None) -> list[TableFile]:
        """Files that loads have written, in these folders or all, with their folder's value."""
        by = self._newest["partition_by"]
        if by is None:
            found: Iterable[tuple[str | None, Path]] = [(None, self._path)]
        elif folders is None:
            named = self._path.glob(f"{by}=*")
            found = [(folder.name.removeprefix(f"{by}="), folder) for folder in named]
        else:  # a table of years is not listed as a whole after each commit
            found = [(value, self._path / f"{by}={value}") for value in folders]
        return [
            TableFile(str(file.relative_to(self._path)), file.stat().st_size, value)
            for value, folder in found
            for file in folder.glob("*.parquet")
            if number_of(file.name) is not None
        ]

    def discard(self, files: Sequence[WrittenFile]) -> None:
        """See load_target. Deletes all staged files."""
        self._delete_staging()

    def _link(self, number: int, content: dict[str, Any]) -> None:
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

    def _remove(self, files: Collection[str]) -> None:
        present = [self._path / name for name in files if (self._path / name).exists()]
        for file in present:
            file.unlink()
        for folder in sorted({file.parent for file in present}):
            _sync_directory(folder)

    def _committed(self, number: int, content: dict[str, Any]) -> None:
        shutil.rmtree(self._staging / f"{number:020}", ignore_errors=True)
        self._newest = content
        self._number = number + 1

    def _delete_staging(self) -> None:
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
        if version not in (VERSION, COMPACTION_VERSION):
            raise LoadFailed(f"{path} was written by a newer version of bradbury; use that one")
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
