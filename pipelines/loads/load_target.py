"""What a table must be able to do to be loaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from ...clients.wire.record_metadata import TopicPartition
from .loaded_offsets import LoadedOffsets


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

    def write(self, rows: Iterable[Any], after: LoadedOffsets) -> int:
        """Add record batches, and that it is so far then, both or neither; returns the rows."""
        ...
