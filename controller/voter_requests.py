"""What a voter of the metadata can be asked, and what it answers.

A request is a value that crosses actors; metadata_voter carries it out. So a new one is a new
class here and a branch there: nothing between them has to know it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from ..cluster.quorum.voter import NO_SNAPSHOT, LogEnd, Promise

A = TypeVar("A")
"""The type of the answer."""


class VoterState(NamedTuple):
    """What a voter tells a starting controller. cluster_id None: an unformatted directory."""

    name: str
    directory_id: str
    cluster_id: str | None
    is_voter: bool
    promise: Promise
    log_end_offset: int
    last_epoch: int
    voters: tuple[str, ...]
    """Directory ids, as its log says, or else as it was formatted; none if it never was."""
    snapshot: LogEnd = NO_SNAPSHOT
    """What its snapshot stands for; its log begins there."""


class AppendAnswer(NamedTuple):
    """Of an append: the log has all of it, up to `offset`; or it differs, and try from `offset`."""

    is_there: bool
    offset: int


class InstallAnswer(NamedTuple):
    """Of a piece of a snapshot: it has the whole, or go on with the bytes from `position`."""

    is_there: bool
    position: int


class VoterRequest(Generic[A]):
    """One of those below."""


@dataclass(frozen=True, slots=True)
class DescribeVoter(VoterRequest[VoterState]):
    """What it has, without waiting for anything that is under way."""


@dataclass(frozen=True, slots=True)
class FormatVoter(VoterRequest[None]):
    """Make this empty directory a voter of a new cluster. Repeating it changes nothing.

    Raises InconsistentClusterId: it belongs to a cluster already.
    """

    cluster_id: str
    voters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Prepare(VoterRequest[VoterState]):
    """Vote for the asking controller: the log is its to write. Raises FencedLeaderEpoch."""

    asked: Promise


@dataclass(frozen=True, slots=True)
class FetchEntries(VoterRequest[bytes]):
    """Some record batches from `offset` on; empty at the end of the log.

    Raises:
        FencedLeaderEpoch: the log is not promised to the asking controller (any more).
        OffsetOutOfRange: a snapshot stands for what is there.
    """

    asked: Promise
    offset: int


@dataclass(frozen=True, slots=True)
class FetchSnapshot(VoterRequest[bytes]):
    """Some of the snapshot's bytes from `position` on; empty at its end.

    Raises FencedLeaderEpoch as FetchEntries.
    """

    asked: Promise
    position: int


@dataclass(frozen=True, slots=True)
class InstallSnapshot(VoterRequest[InstallAnswer]):
    """Take a piece of the snapshot that stands for everything before `end`.

    The last piece brings it to the disk, and drops from the log what it stands for.

    asked: the controller that brings it.
    end: see cluster/quorum/metadata_snapshot.
    position: of the piece in the whole.
    size: of the whole.

    Raises:
        FencedLeaderEpoch: a newer controller holds the promise.
        CommittedEntryLost: it contradicts what is committed; nothing was changed.
        CorruptMessage: the pieces are not a snapshot; nothing was changed.
    """

    asked: Promise
    end: LogEnd
    position: int
    piece: bytes
    size: int


@dataclass(frozen=True, slots=True)
class AppendEntries(VoterRequest[AppendAnswer]):
    """Append stamped batches that follow `previous`; answered when they are on the disk.

    committed: everything before this offset is committed.

    Raises:
        FencedLeaderEpoch: a newer controller holds the promise.
        CommittedEntryLost: they contradict what is committed; nothing was changed.
    """

    asked: Promise
    previous: LogEnd
    batches: bytes
    committed: int
