"""Interface of a table that can be loaded."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from ...protocol.topic_partition import TopicPartition
from .compaction import CompactionRules
from .loaded_offsets import LoadedOffsets
from .table_files import FilePlace, WrittenFile


class LoadFailed(Exception):
    """The table cannot be loaded. The text says why, and what to do; nothing was changed."""


class LoadTarget(Protocol):
    """A table to load into. Use as a context manager; all methods block."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def loaded(self, keys: Iterable[TopicPartition], topic_ids: Mapping[str, str]) -> LoadedOffsets:
        """Loaded offsets of these partitions, whose topics now have these ids."""
        ...

    def begin(self) -> FilePlace:
        """Place for the files of the next commit, usable in this and in other processes."""
        ...

    def commit(self, files: Sequence[WrittenFile], after: LoadedOffsets) -> None:
        """Commit these files and the loaded offsets `after` them, both or neither."""
        ...

    def discard(self, files: Sequence[WrittenFile]) -> None:
        """Abandon the commit of `begin` and delete `files`, those known to be written for it."""
        ...

    def compact(self, rules: CompactionRules, folders: Collection[str | None] | None = None) -> int:
        """Replace small files by larger ones; loaded offsets stay the same. Call it after `loaded`.

        folders: values of the partition column; None: all. Returns the number of replaced files.
        If another writer's commit prevents it as part of a load, that is no error.
        """
        ...
