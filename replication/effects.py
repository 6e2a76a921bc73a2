"""Effects: what the steps of replication ask their driver to do, in the order to be begun.

One list per node, which all its steps share. See docs/design/steps.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from ..cluster.control.controller_request import ControllerRequest
from ..protocol.messages.fetch import FetchRequest, FetchResponse
from ..protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from .storage_work import Work

Effects = list[Any]


class TickingStep(Protocol):
    """A step that waits for a time."""

    @property
    def next_deadline_ms(self) -> int | None:
        """When `on_tick` is to be called next, on the monotonic clock; None: not at all."""
        ...

    def on_tick(self, now_ms: int) -> None: ...


class DeadlineMoved(NamedTuple):
    """`next_deadline_ms` of a step is another one, because of an input from another step."""

    step: TickingStep


# --- the disk ------------------------------------------------------------------------------------


class WorkingStep(Protocol):
    """A step that waits for the disk."""

    def on_work_done(self, work: Any, failure: Exception | None, now_ms: int) -> None:
        """`work.run` has returned, or has raised `failure`."""
        ...


class RunWork(NamedTuple):
    """Run `work` in a storage thread; then tell `step`."""

    step: WorkingStep
    work: Work


class RunCleanerWork(NamedTuple):
    """Run `work` in a thread of the log cleaner, with what throttles it; then tell `step`."""

    step: WorkingStep
    work: Any


class RunScrubWork(NamedTuple):
    """Run `work` in a thread of the log scrubber; then tell `step`."""

    step: WorkingStep
    work: Any


class SendRepairFetch(NamedTuple):
    """Ask `fetch.node_id` for `fetch.request` and set `fetch.answer`; then tell `step`."""

    step: WorkingStep
    fetch: Any


# --- leaders -------------------------------------------------------------------------------------


class RequestingStep(TickingStep, Protocol):
    """The step that asks; exactly one of these inputs follows each request."""

    def on_answer(self, answers: Any, now_ms: int) -> None:
        """One for each part of the request, in its order."""
        ...

    def on_failed(self, error: Exception, now_ms: int) -> None: ...


class SendControllerRequest(NamedTuple):
    """Ask the controller; tell `step` its answer, or why there is none."""

    step: RequestingStep
    request: ControllerRequest[tuple[Any, ...]]


# --- followers -----------------------------------------------------------------------------------


class SuspectNode(NamedTuple):
    """Tell the controller that a node cannot be reached."""

    node_id: int


# --- the partitions of a node --------------------------------------------------------------------


class GiveWay(NamedTuple):
    """Tell `step` that `condition` is met when others have had their turn."""

    step: WorkingStep
    condition: Any


class WakingStep(Protocol):
    """Something that waits for a time, once."""

    def on_time(self, now_ms: int) -> None: ...


class WakeAt(NamedTuple):
    """Tell `step` when it is `at_ms`, on the monotonic clock."""

    step: WakingStep
    at_ms: int


class EndMove(NamedTuple):
    """Give up the move of the partition `condition.key`, if there is one; then tell `step`."""

    step: WorkingStep
    condition: Any


class DirectoryFailed(NamedTuple):
    """A log directory is offline from now on; its partitions are out of service already."""

    path: str


class NoDirectoryLeft(NamedTuple):
    """All log directories are offline: the node is of no use any more."""

    reason: str


# --- followers -----------------------------------------------------------------------------------


class FetchingStep(TickingStep, Protocol):
    """The step that follows one leader; exactly one of these inputs follows each request."""

    leader_id: int

    def on_fetched(self, answer: FetchResponse, now_ms: int, wall_ms: int) -> None: ...
    def on_offsets(self, answer: ListOffsetsResponse, now_ms: int) -> None: ...
    def on_unreachable(self, error: Exception, now_ms: int) -> None: ...


class SendFetch(NamedTuple):
    """Ask the leader that `step` follows. Then step.on_fetched, or step.on_unreachable."""

    step: FetchingStep
    request: FetchRequest


class SendListOffsets(NamedTuple):
    """Ask the leader that `step` follows. Then step.on_offsets, or step.on_unreachable."""

    step: FetchingStep
    request: ListOffsetsRequest


class FetchersEnded(NamedTuple):
    """These ask nothing any more, and no answer is waited for: their connections may go."""

    steps: Sequence[FetchingStep]
