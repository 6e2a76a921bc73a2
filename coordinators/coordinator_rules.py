"""What a kind of coordinator brings: its rules, the layout of its records, its settings.

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
    """First `apply` for each entry of the log, `on_loaded`, then requests and timers.

    `now_ms` is what records carry: wall time.
    """

    def apply(self, entry: Any) -> None:
        """The next thing in the log, while loading."""
        ...

    def on_loaded(self, *, now_ms: int) -> Sequence[RulesEffect]:
        """The log is applied to its end; requests may come."""
        ...

    def on_timer(self, key: Any, *, now_ms: int) -> Sequence[RulesEffect]: ...
    def on_committed(self, append: Append, *, now_ms: int) -> Sequence[RulesEffect]:
        """The records are in the log for good. Called in log order."""
        ...

    def on_failed(self, append: Append, error: ErrorCode, *, now_ms: int) -> Sequence[RulesEffect]:
        """Nothing of it was appended, because of `error`."""
        ...

    def on_late(self, append: Append, *, now_ms: int) -> tuple[Sequence[RulesEffect], Append]:
        """It is not committed for long: waiting requests are answered with an error.

        Returns the Append to go on with, which nobody waits for.
        """
        ...

    def close(self) -> None:
        """The coordinator has ended."""
        ...


R = TypeVar("R", bound=CoordinatorRules)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorKind(Generic[R]):
    """One kind of coordinator, as its contexts need to know it."""

    topic: str
    """Whose partitions are its logs."""
    contents: str
    """What is loaded, for the log: "group metadata"."""
    new_rules: Callable[[], R]
    """Of a coordinator that knows nothing yet."""
    count: Callable[[R], str]
    """What was loaded, for the log: "3 groups, 12 offsets"."""
    encode: Callable[[Any], tuple[bytes, bytes | None]]
    """(key, value) of a record."""
    decode: Callable[[Buffer, int], tuple[list[Any], int]]
    """The entries in whole batches from an offset on, and the offset after them.

    Called in a thread. Raises CorruptMessage.
    """
    load_buffer_size: int
    """How many bytes are read at a time when a coordinator starts."""
    append_timeout_ms: int
    """How long a request waits for a record to be committed."""
    compression_codec: int = 0
    note_load_ms: Callable[[int], None] = lambda load_ms: None
    """Told how long each partition took to load, for a metric."""
