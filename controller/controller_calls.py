"""Calls to the controller, and their answers.

A call is a value that is sent between actors; quorum_controller carries it out. So a new call is a
new class here and a branch there; nothing between them changes. Each raises NotController while its
controller is not the active one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

from ..cluster.control.controller_request import ControllerRequest
from ..cluster.control.controller_state import NodeRegistration
from ..cluster.control.metered_request import MeteredRequest
from ..cluster.control.poll_times import PollTime
from ..cluster.quorum.voter_change import VoterChange

A = TypeVar("A")
"""The type of the answer."""


class Registered(NamedTuple):
    node_id: int
    cluster_id: str
    controller_epoch: int


class MetadataUpdate(NamedTuple):
    """Encoded records that lead from the asked offset (or, if whole, from nothing) to `offset`."""

    controller_epoch: int
    offset: int
    whole: bool
    records: list[bytes]


class QuorumState(NamedTuple):
    """State of the metadata log: voters by directory id, nodes by id, each with its offset.

    polls: times of each node's polls.
    """

    epoch: int
    high_watermark: int
    voters: dict[str, int]
    applied: dict[int, int]
    polls: dict[int, PollTime]


class ControllerCall(Generic[A]):
    """A call to the controller: one of those below."""


@dataclass(frozen=True, slots=True)
class RegisterBroker(ControllerCall[Registered]):
    """Take a node into service. Raises InconsistentClusterId, BrokerIdNotRegistered."""

    registration: NodeRegistration


@dataclass(frozen=True, slots=True)
class PollMetadata(ControllerCall[MetadataUpdate]):
    """Poll for metadata after offset `applied`; parked while there is none. Also the node's
    heartbeat.

    Raises BrokerIdNotRegistered, StaleBrokerEpoch: the node must register (again), or end.
    """

    node_id: int
    incarnation: str
    applied: int
    newest_epoch: int = -1
    """Newest epoch in which a voter is known to have voted. A controller of an older epoch ends: if
    it has nothing to write, it would never learn of the newer controller.
    """


@dataclass(frozen=True, slots=True)
class ControlledShutdown(ControllerCall[None]):
    """Move leadership off a node that is about to stop, where other nodes can lead.

    Raises BrokerIdNotRegistered, StaleBrokerEpoch: it was not in service any more.
    """

    node_id: int
    incarnation: str


@dataclass(frozen=True, slots=True)
class ReportUnreachableBroker(ControllerCall[None]):
    """Report a node that another node cannot reach. If nothing listens on its port its process is
    dead, and others lead at once, before broker.session.timeout.ms.

    No more than a hint: a node that is fenced by mistake polls again, and is back in service.
    """

    node_id: int


@dataclass(frozen=True, slots=True)
class Change(ControllerCall[A]):
    """Carry out a request that decides for itself. Raises what its `decide` raises.

    Answered when the nodes concerned act on it, or after timeout_ms: it is in force all the same.
    """

    request: ControllerRequest[A]
    timeout_ms: int


class MeteredAnswer(NamedTuple, Generic[A]):
    """Answer to a MeteredChange. throttle_ms: time that the client is to wait before its next
    request (KIP-599).
    """

    answer: A
    throttle_ms: int


@dataclass(frozen=True, slots=True)
class MeteredChange(ControllerCall[MeteredAnswer[A]]):
    """A Change for a client that may have a quota. is_strict: it is refused if over quota."""

    request: MeteredRequest[A]
    timeout_ms: int
    user: str
    client_id: str
    is_strict: bool


@dataclass(frozen=True, slots=True)
class ChangeVoter(ControllerCall[tuple[str, ...]]):
    """Add a voter, once it has the committed log, or remove one; answered with the voters
    afterwards.

    Raises what VoterChange raises; RequestTimedOut: a new one has not caught up in time.
    """

    change: VoterChange
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class DescribeQuorum(ControllerCall[QuorumState]):
    """Voters and observers of the metadata log, with their offsets."""


@dataclass(frozen=True, slots=True)
class AllocateProducerIds(ControllerCall[tuple[int, int]]):
    """Allocate a block of producer ids, given out only once: (first, count)."""


def as_repeated(call: ControllerCall[A]) -> ControllerCall[A]:
    """Copy of a call that is marked as a retry after a lost answer, if it has such a mark."""
    repeated: Any = call
    match call:
        case Change() | MeteredChange():
            repeated = replace(call, request=replace(call.request, is_repeated=True))
        case ChangeVoter(change, _):
            repeated = replace(call, change=replace(change, is_repeated=True))
    typed: ControllerCall[A] = repeated
    return typed
