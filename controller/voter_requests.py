"""Requests to a voter of the metadata, and their answers.

A request is a value that is sent between actors; metadata_voter carries it out. So a new request is
a new class here and a branch there; nothing between them changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from ..cluster.quorum.voter import NO_SNAPSHOT, Candidate, LogEnd

A = TypeVar("A")
"""The type of the answer."""


class VoterState(NamedTuple):
    """State that a voter reports to a controller. cluster_id None: an unformatted directory."""

    name: str
    directory_id: str
    cluster_id: str | None
    is_voter: bool
    vote: Candidate
    log_end_offset: int
    last_epoch: int
    voters: tuple[str, ...]
    """Directory ids of the voters by its log, or else as it was formatted; empty if it never was.
    """
    snapshot: LogEnd = NO_SNAPSHOT
    """End of its snapshot; its log begins there."""


class AppendResponse(NamedTuple):
    """Answer to an append: the log has all of it, up to `offset`; or it differs, retry from
    `offset`.
    """

    is_there: bool
    offset: int


class InstallResponse(NamedTuple):
    """Answer to a piece of a snapshot: the snapshot is complete, or continue at byte `position`."""

    is_there: bool
    position: int


class QuorumRequest(Generic[A]):
    """A request to a voter: one of those below."""


@dataclass(frozen=True, slots=True)
class DescribeVoter(QuorumRequest[VoterState]):
    """Current state, without waiting for requests under way."""


@dataclass(frozen=True, slots=True)
class FormatVoter(QuorumRequest[None]):
    """Make this empty directory a voter of a new cluster. Repeating it changes nothing.

    Raises InconsistentClusterId: it belongs to a cluster already.
    """

    cluster_id: str
    voters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VoteRequest(QuorumRequest[VoterState]):
    """Vote for the asking controller, which may then write the log. Raises FencedLeaderEpoch."""

    candidate: Candidate


@dataclass(frozen=True, slots=True)
class FetchEntries(QuorumRequest[bytes]):
    """Fetch record batches from `offset` on; empty at the end of the log.

    Raises:
        FencedLeaderEpoch: the asking controller does not have the vote (any more).
        OffsetOutOfRange: a snapshot has replaced these entries.
    """

    candidate: Candidate
    offset: int


@dataclass(frozen=True, slots=True)
class FetchSnapshot(QuorumRequest[bytes]):
    """Fetch bytes of the snapshot from `position` on; empty at its end.

    Raises FencedLeaderEpoch as FetchEntries.
    """

    candidate: Candidate
    position: int


@dataclass(frozen=True, slots=True)
class InstallSnapshot(QuorumRequest[InstallResponse]):
    """Install a piece of the snapshot that covers everything before `end`.

    The last piece stores the snapshot, and drops the log entries that it replaces.

    candidate: the controller that sends it.
    end: see cluster/quorum/metadata_snapshot.
    position: of the piece in the whole.
    size: of the whole.

    Raises:
        FencedLeaderEpoch: a newer controller has the vote.
        CommittedEntryLost: it contradicts what is committed; nothing was changed.
        CorruptMessage: the pieces are not a snapshot; nothing was changed.
    """

    candidate: Candidate
    end: LogEnd
    position: int
    piece: bytes
    size: int


@dataclass(frozen=True, slots=True)
class AppendEntries(QuorumRequest[AppendResponse]):
    """Append stamped batches that follow `previous`; answered when they are on the disk.

    committed: everything before this offset is committed.

    Raises:
        FencedLeaderEpoch: a newer controller has the vote.
        CommittedEntryLost: they contradict what is committed; nothing was changed.
    """

    candidate: Candidate
    previous: LogEnd
    batches: bytes
    committed: int
