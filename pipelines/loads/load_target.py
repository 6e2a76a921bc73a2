"""What a table must be able to do to be loaded."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from ...clients.wire.record_metadata import TopicPartition
from .compaction import CompactionRules
from .loaded_offsets import LoadedOffsets
from .table_files import FilePlace, WrittenFile


class LoadFailed(Exception):
    """The table cannot be loaded. The text says why, and what to do; nothing was changed."""


class LoadTarget(Protocol):
    """A table. Use as a context manager; everything blocks."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def loaded(self, keys: Iterable[TopicPartition], topic_ids: Mapping[str, str]) -> LoadedOffsets:
        """How far it is with these partitions, of topics that have these ids now."""
        ...

    def begin(self) -> FilePlace:
        """Where the files of the next commit are written, here or in other processes."""
        ...

    def commit(self, files: Sequence[WrittenFile], after: LoadedOffsets) -> None:
        """Add these files, and that it is so far then, both or neither."""
        ...

    def discard(self, files: Sequence[WrittenFile]) -> None:
        """The commit of `begin` comes to nothing; these are what is known to be written of it."""
        ...

    def compact(self, rules: CompactionRules, folders: Collection[str | None] | None = None) -> int:
        """Small files become larger ones, and how far it is stays as it is; after `loaded`.

        folders: values of the partition column; None: all. Returns how many files are gone into
        others; one that somebody else's commit has stopped counts as none if it was part of a load.
        """
        ...
