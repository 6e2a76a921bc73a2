"""Parts that a kind of coordinator provides: its rules, its record formats, its settings.

Source: apache/kafka coordinator-common/.../CoordinatorShard.java, CoordinatorShardBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from ..protocol.buffer import Buffer
from ..protocol.error_code import ErrorCode
from .rules_effects import Append, RulesEffect


class CoordinatorRules(Protocol):
    """Rules of a coordinator. First `apply` for each entry of the log, `on_loaded`, then requests
    and timers.

    `now_ms` is wall time: records are stamped with it.
    """

    def apply(self, entry: Any) -> None:
        """Apply the next entry of the log, while loading."""
        ...

    def on_loaded(self, *, now_ms: int) -> Sequence[RulesEffect]:
        """Called when the whole log has been applied; from now on requests may come."""
        ...

    def on_timer(self, key: Any, *, now_ms: int) -> Sequence[RulesEffect]: ...
    def on_committed(self, append: Append, *, now_ms: int) -> Sequence[RulesEffect]:
        """Called when the records are committed, in log order."""
        ...

    def on_failed(self, append: Append, error: ErrorCode, *, now_ms: int) -> Sequence[RulesEffect]:
        """Called when the append failed with `error`: nothing was appended."""
        ...

    def on_late(self, append: Append, *, now_ms: int) -> tuple[Sequence[RulesEffect], Append]:
        """Called when the commit takes too long: waiting requests are answered with an error.

        Returns the Append to continue with, without waiting requests.
        """
        ...

    def close(self) -> None:
        """Called when the coordinator has ended."""
        ...


R = TypeVar("R", bound=CoordinatorRules)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorKind(Generic[R]):
    """One kind of coordinator, as its contexts need it."""

    topic: str
    """Topic whose partitions are its logs."""
    contents: str
    """Name of the loaded data in log messages: "group metadata"."""
    new_rules: Callable[[], R]
    """Makes empty rules for a coordinator that starts."""
    count: Callable[[R], str]
    """Text about the loaded data in log messages: "3 groups, 12 offsets"."""
    encode: Callable[[Any], tuple[bytes, bytes | None]]
    """Encodes a record as (key, value)."""
    decode: Callable[[Buffer, int], tuple[list[Any], int]]
    """Decodes the entries in whole batches from an offset on; returns them, and the offset after
    them.

    Called in a thread. Raises CorruptMessage.
    """
    load_buffer_size: int
    """Bytes that are read at a time when a coordinator starts."""
    append_timeout_ms: int
    """Timeout in ms of a request that waits for its record to be committed."""
    compression_codec: int = 0
    note_load_ms: Callable[[int], None] = lambda load_ms: None
    """Called with the time that each partition took to load, for a metric."""
