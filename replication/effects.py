"""Effects of the replication steps for their driver, in the order in which they are to begin.

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
        """Time of the next `on_tick`, on the monotonic clock; None: none is needed."""
        ...

    def on_tick(self, now_ms: int) -> None: ...


class DeadlineMoved(NamedTuple):
    """`next_deadline_ms` of a step has changed, because of an input from another step."""

    step: TickingStep


# --- the disk ------------------------------------------------------------------------------------


class WorkingStep(Protocol):
    """A step that waits for the disk."""

    def on_work_done(self, work: Any, failure: Exception | None, now_ms: int) -> None:
        """Called when `work.run` has returned, or has raised `failure`."""
        ...


class RunWork(NamedTuple):
    """Run `work` in a storage thread; then notify `step`."""

    step: WorkingStep
    work: Work


class RunCleanerWork(NamedTuple):
    """Run `work` in a thread of the log cleaner, with its throttle; then notify `step`."""

    step: WorkingStep
    work: Any


class RunScrubWork(NamedTuple):
    """Run `work` in a thread of the log scrubber; then notify `step`."""

    step: WorkingStep
    work: Any


class SendRepairFetch(NamedTuple):
    """Send `fetch.request` to `fetch.node_id` and set `fetch.answer`; then notify `step`."""

    step: WorkingStep
    fetch: Any


# --- leaders -------------------------------------------------------------------------------------


class RequestingStep(TickingStep, Protocol):
    """A step that sends requests; exactly one of these inputs follows each request."""

    def on_answer(self, answers: Any, now_ms: int) -> None:
        """Called with one answer for each part of the request, in its order."""
        ...

    def on_failed(self, error: Exception, now_ms: int) -> None: ...


class SendControllerRequest(NamedTuple):
    """Send a request to the controller; then step.on_answer, or step.on_failed."""

    step: RequestingStep
    request: ControllerRequest[tuple[Any, ...]]


# --- followers -----------------------------------------------------------------------------------


class SuspectNode(NamedTuple):
    """Report to the controller that a node cannot be reached."""

    node_id: int


# --- the partitions of a node --------------------------------------------------------------------


class YieldToRequests(NamedTuple):
    """Notify `step` that `condition` is met, once waiting requests were handled."""

    step: WorkingStep
    condition: Any


class WakingStep(Protocol):
    """A step that waits for a time, once."""

    def on_time(self, now_ms: int) -> None: ...


class WakeAt(NamedTuple):
    """Wake `step` at `at_ms` on the monotonic clock."""

    step: WakingStep
    at_ms: int


class EndMove(NamedTuple):
    """Cancel the move of the partition `condition.key`, if there is one; then notify `step`."""

    step: WorkingStep
    condition: Any


class DirectoryFailed(NamedTuple):
    """A log directory is offline from now on; its partitions are out of service already."""

    path: str


class NoDirectoryLeft(NamedTuple):
    """All log directories are offline: the node must end."""

    reason: str


# --- followers -----------------------------------------------------------------------------------


class FetchingStep(TickingStep, Protocol):
    """The step that follows one leader; exactly one of these inputs follows each request."""

    leader_id: int

    def on_fetched(self, answer: FetchResponse, now_ms: int, wall_ms: int) -> None: ...
    def on_offsets(self, answer: ListOffsetsResponse, now_ms: int) -> None: ...
    def on_unreachable(self, error: Exception, now_ms: int) -> None: ...


class SendFetch(NamedTuple):
    """Send a fetch to the leader that `step` follows. Then step.on_fetched or on_unreachable."""

    step: FetchingStep
    request: FetchRequest


class SendListOffsets(NamedTuple):
    """Send a ListOffsets to the leader that `step` follows. Then step.on_offsets, or
    step.on_unreachable.
    """

    step: FetchingStep
    request: ListOffsetsRequest


class FetchersEnded(NamedTuple):
    """Fetchers that send nothing any more and ignore answers: their connections may be closed."""

    steps: Sequence[FetchingStep]
