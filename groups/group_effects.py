"""Effects of the group rules, besides those that all coordinators have.

See coordinators/rules_effects for those.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, auto
from typing import NamedTuple

from ..coordinators.rules_effects import Append, CancelTimer, Respond, StartTimer
from ..protocol.messages.delete_groups import DeleteGroupsResponse
from ..protocol.messages.offset_commit import OffsetCommitResponse
from ..protocol.messages.offset_delete import OffsetDeleteResponse
from ..protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
from .group_records import GroupRecord


class TimerKind(IntEnum):
    """Kind of a timer. An int, because its hash is computed for every heartbeat."""

    SESSION = auto()
    """Session timeout of a member, or of a member id that was given out."""
    JOIN = auto()
    """Timeout of rejoining, or of the initial rebalance delay."""
    SYNC = auto()
    """Timeout of the members' SyncGroups."""
    RETENTION = auto()
    """Time to check for expired offsets. Of the whole coordinator: no group id."""


class TimerKey(NamedTuple):
    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class AssignmentStored:
    """Completion: the leader's assignment of this generation is committed."""

    group_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class StaticMemberStored:
    """Completion: a static member's new member id is committed; `member_id` is the new one."""

    group_id: str
    member_id: str
    request_id: int
    previous_leader: str
    may_skip_assignment: bool


@dataclass(frozen=True, slots=True)
class OffsetsStored:
    """Completion: offsets are committed, so the request can be answered with `response`.

    `request_id` is None when the request was answered already, as the append takes too long.
    """

    request_id: int | None
    response: OffsetCommitResponse | TxnOffsetCommitResponse


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """Completion: the marker of a transaction's end is committed; `request_id` None: no request
    waits.
    """

    request_id: int | None


class DeletedGroup(NamedTuple):
    """A group before its deletion. is_written: whether the log has a commit or generation of it."""

    record: GroupRecord
    is_written: bool


@dataclass(frozen=True, slots=True)
class GroupsDeleted:
    """Completion: the deletion of groups is committed. Groups of `before` are restored if a
    record of theirs could not be appended.

    `request_id` is None when nobody asked (the groups expired), or nobody waits any more.
    """

    request_id: int | None
    response: DeleteGroupsResponse
    before: tuple[DeletedGroup, ...]


@dataclass(frozen=True, slots=True)
class OffsetsDeleted:
    """Completion: the deletion of offsets is committed; `request_id` None: no request waits."""

    request_id: int | None
    response: OffsetDeleteResponse


Completion = (
    AssignmentStored
    | StaticMemberStored
    | OffsetsStored
    | TransactionEnded
    | GroupsDeleted
    | OffsetsDeleted
)
"""Completion of an Append."""


@dataclass(frozen=True, slots=True)
class Report:
    """A line for the log: what happened to the group, and why, in the words of Kafka's coordinator.

    The text has names and reasons that clients chose.
    """

    group_id: str
    text: str


Effect = Respond | StartTimer | CancelTimer | Append | Report
