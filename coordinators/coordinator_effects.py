"""Effects of a coordinator's partition for its driver; all of them, in order.

A ticket is the driver's own object for a request; it comes back with the answer, once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from ..steps.replies import Refuse, Reply
from .rules_effects import Append, TransactionMarker


class CoordinatorLog(Protocol):
    """Log of a partition as its coordinator needs it."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...


class PendingRead(NamedTuple):
    """A request that changes nothing, and may wait for earlier appends."""

    ticket: Any
    waits: Callable[[Any], bool]
    """Whether an append that is under way concerns the request, given the rules."""
    answer: Callable[[Any], Any]
    """Makes the answer, given the rules."""


@dataclass(slots=True, eq=False)
class PendingAppend:
    """Records between the decision to append them and their commit."""

    append: Append
    late_at_ms: int
    """Deadline after which the waiting requests are refused."""
    is_late: bool = False
    is_committed: bool = False
    failure: Exception | None = None
    """Error that makes it unknown whether the records are in the log; None: there is none."""
    is_abandoned: bool = False
    reads: list[PendingRead] = field(default_factory=list)
    """Reads that wait for this append."""


class AppendBatch(NamedTuple):
    """Append the batch to the log, with the guard of pending.append.producer if it has one. Before
    any other input the driver calls one of

    on_committed(pending)            it is committed already
    on_append_failed(pending, …)     it was refused, or something is wrong

    or later on_committed, or on_commit_failed if it is unknown whether the batch is in the log.
    """

    pending: PendingAppend
    batch: bytearray


class AppendMarker(NamedTuple):
    """Version of AppendBatch for the control batch of `marker`, which the replica makes."""

    pending: PendingAppend
    marker: TransactionMarker


class ReadLog(NamedTuple):
    """Read the log from `offset` on, and decode it; then call one of on_log_read, on_log_damaged
    and on_log_read_failed.

    Read at most `max_bytes`, but at least one batch, and nothing from `up_to` on. Blocking: not on
    an event loop.
    """

    offset: int
    max_bytes: int
    up_to: int


class WatchHighWatermark(NamedTuple):
    """Call on_high_watermark from now on whenever it may have moved, until UnwatchHighWatermark."""


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
"""An effect of the context; Any: an effect of the rules' own."""
