"""Effects that the steps of this folder ask of their drivers, in the order in which they are to
begin.

Requests are answered by the effects of steps/replies. An effect with a `then` is passed back to the
step (`on_done`) with its result, or its exception.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..cluster.metadata.metadata_image import MetadataImage
from .controller_calls import ControllerCall, Registered
from .voter_requests import QuorumRequest


class Instant(NamedTuple):
    """A moment: on a clock that never jumps, and on the wall clock."""

    now_ms: int
    wall_ms: int


Then = Callable[[Any, Instant], None]


class FoundVoters(NamedTuple):
    """The answer to FindVoters."""

    voters: list[Any]
    """Voters of all existing brokers, as handles of the driver."""
    token: str
    """Random token of 32 hexadecimal digits, never used before."""


class FindVoters(NamedTuple):
    """Find the existing brokers: each of them may hold a copy of the metadata."""

    then: Then


class AskVoter(NamedTuple):
    """Send a request to one of the voters that were found."""

    voter: Any
    request: QuorumRequest[Any]
    timeout_ms: int
    then: Then


class RunInThread(NamedTuple):
    """Work that waits for the disk, or takes long for a large cluster."""

    work: Callable[[], Any]
    then: Then


class ProbePort(NamedTuple):
    """Probe a port: True if the machine is reachable and nothing listens on the port."""

    host: str
    port: int
    then: Then


class Ended(NamedTuple):
    """The controller was active and has ended: another one may be active."""


class AskController(NamedTuple):
    """Ask the current controller."""

    call: ControllerCall[Any]
    then: Then


class FindActor(NamedTuple):
    """Look up the actor of this name; then on_answer with its handle, or ConnectionFailed.

    `number` identifies this effect in on_answer and StopAsking, as in AskActor and AskForVote.
    """

    number: int
    name: str


class AskActor(NamedTuple):
    """Ask an actor that was found, and may be the controller; then on_answer."""

    number: int
    actor: Any
    call: ControllerCall[Any]


class AskForVote(NamedTuple):
    """Ask the voter of the broker of this name for its vote; then on_answer with a Candidate."""

    number: int
    name: str


class StopAsking(NamedTuple):
    """Cancel the effect of this number: nothing waits for its answer any more."""

    number: int


class StoreIdentity(NamedTuple):
    """Store the node's identity on its disk."""

    registered: Registered
    then: Then


class ApplyMetadata(NamedTuple):
    """Have the node act on this metadata."""

    image: MetadataImage
    then: Then


class Fenced(NamedTuple):
    """The node must end: a newer incarnation of it is registered, or it is not registered."""

    reason: str


class HandOver(NamedTuple):
    """Hand this node's leaderships to others; `then` gets False if no controller confirmed it."""

    then: Then


class CloseNode(NamedTuple):
    """Close the node: everything is flushed, and the clean marks are written."""

    then: Then


class EndProcess(NamedTuple):
    """End the process of this node; it is started again once its machine is back."""

    reason: str


class StartStandby(NamedTuple):
    """Start a standby controller in this process; `then` gets its image once it is active, or the
    error. EndStandby may come before.
    """

    then: Then


class AskStandby(NamedTuple):
    """Ask the standby controller."""

    call: ControllerCall[Any]
    then: Then


class EndStandby(NamedTuple):
    """End the standby controller, active or not: another node is or may become the controller."""

    reason: str


class VoteGranted(NamedTuple):
    """The node's voter has granted another vote: callers of the former controller ask the next."""
