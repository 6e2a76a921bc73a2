"""Effects: what the steps of replication ask their driver to do, in the order to be begun.

One list per node, which all its steps share. See docs/design/steps.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from ..cluster.alter_partition import AlterPartition, PartitionState

Effects = list[Any]


class TickingStep(Protocol):
    """A step that waits for a time."""

    @property
    def next_deadline_ms(self) -> int | None:
        """When `on_tick` is to be called next, on the monotonic clock; None: not at all."""
        ...

    def on_tick(self, now_ms: int) -> None: ...


class DeadlineMoved(NamedTuple):
    """`next_deadline_ms` of a step is another one, because of what another step has told it."""

    step: TickingStep


class AlterPartitionStep(TickingStep, Protocol):
    """The step that asks; exactly one of these inputs follows each request."""

    def on_answer(self, answers: tuple[PartitionState, ...], now_ms: int) -> None: ...
    def on_failed(self, error: Exception, now_ms: int) -> None: ...


class SendAlterPartition(NamedTuple):
    """Ask the controller; tell `step` its answer, or why there is none."""

    step: AlterPartitionStep
    request: AlterPartition
