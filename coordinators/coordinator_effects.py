"""What a coordinator's partition asks its driver to do; in order, and all of it.

A ticket is whatever the driver brought with a request: it is handed back with the answer, once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from ..steps.replies import Refuse, Reply
from .rules_effects import Append, TransactionMarker


class CoordinatorLog(Protocol):
    """A partition's log, as far as its coordinator looks at it."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...


class PendingRead(NamedTuple):
    """A request that changes nothing, and may wait for appends that came before it."""

    ticket: Any
    waits: Callable[[Any], bool]
    """Given the rules: whether an append that is under way concerns it."""
    answer: Callable[[Any], Any]
    """Given the rules: the answer."""


@dataclass(slots=True, eq=False)
class PendingAppend:
    """Records between the decision to append them and their commit."""

    append: Append
    late_at_ms: int
    """When nobody waits for it any more."""
    is_late: bool = False
    is_committed: bool = False
    failure: Exception | None = None
    """What makes it doubtful whether the records are in the log."""
    is_abandoned: bool = False
    reads: list[PendingRead] = field(default_factory=list)
    """Who asks for what is committed so far."""


class AppendBatch(NamedTuple):
    """Append the batch to the log, with the guard of pending.append.producer if it has one. Before
    any other input one of

    on_committed(pending)            it is committed already
    on_append_refused(pending, …)    nothing of it was appended

    or later on_committed, or on_commit_failed if it is in doubt whether it is in the log.
    """

    pending: PendingAppend
    batch: bytearray


class AppendMarker(NamedTuple):
    """As AppendBatch, for the control batch of `marker`, which the replica makes."""

    pending: PendingAppend
    marker: TransactionMarker


class ReadLog(NamedTuple):
    """Read the log from `offset` on, and decode it; then on_log_read or on_log_read_failed.

    At most `max_bytes`, but one batch; and none from `up_to` on. Blocks: not on an event loop.
    """

    offset: int
    max_bytes: int
    up_to: int


class WatchHighWatermark(NamedTuple):
    """From now on call on_high_watermark whenever it may have moved, until it is Unwatched."""


class UnwatchHighWatermark(NamedTuple):
    pass


ContextEffect: TypeAlias = (
    Reply
    | Refuse
    | AppendBatch
    | AppendMarker
    | ReadLog
    | WatchHighWatermark
    | UnwatchHighWatermark
    | Any
)
"""Any: an effect of the rules' own."""
