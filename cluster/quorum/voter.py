"""Rules of one metadata voter: which controller may write to its copy of the metadata log.

A controller is the candidate with the votes of a majority of voters for its epoch; it writes only
with that epoch, and a voter that voted in a newer one refuses. So two live controllers are safe:
entries that the older one can still write never reach a majority.

    hard state   vote (epoch, owner), kept in the `quorum-state` file; the log itself, whose
                 beginning a snapshot replaces: everything before the snapshot's end is committed
    invariants   a vote's epoch never decreases; a committed entry is never truncated; two logs
                 that have an entry of the same epoch at the same offset are equal up to it;
                 everything that is no longer in the log is in the snapshot

The log's leader epoch is the controller epoch, its offset the index: an entry is one record batch.
Rules: Raft (Ongaro and Ousterhout, 2014) with the epoch's owner chosen outside (by Ray), without
Raft's election timers. The controller's side is metadata_quorum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ...protocol.errors import FencedLeaderEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A controller or candidate: an epoch, and the random name of the process that owns it.

    A voter's vote is the candidate that it voted for, which alone may write to the voter's log.
    """

    epoch: int = -1
    owner: str = ""


class LogEnd(NamedTuple):
    """End of a log. Of two logs the greater one, by epoch first, has all committed entries."""

    epoch: int
    """Epoch of the last entry; -1 if the log is empty."""
    offset: int
    """Offset behind the last entry."""


class MetadataEntry(NamedTuple):
    """One record batch of the metadata log: [base_offset, end_offset) of `epoch`."""

    base_offset: int
    end_offset: int
    epoch: int


NO_SNAPSHOT = LogEnd(-1, 0)


class VoterLog(Protocol):
    """Log as the rules need it; implemented by storage/log/partition_log with its epochs."""

    @property
    def snapshot(self) -> LogEnd:
        """End of the log that the snapshot covers; NO_SNAPSHOT if there is none."""
        ...

    @property
    def log_end_offset(self) -> int: ...
    def epoch_at(self, offset: int) -> int:
        """Epoch of the entry at `offset`, not before the snapshot's last; -1 if there is none."""
        ...

    def epoch_start(self, offset: int) -> int:
        """First offset of the epoch that `offset` belongs to."""
        ...


class AppendPlan(NamedTuple):
    """Steps of an append, in order: store the vote, truncate the log, append, fsync, answer."""

    vote: Candidate
    truncate_to: int | None
    first_missing: int
    """Index of the first entry that the log does not have."""


class LogMismatch(NamedTuple):
    """Refusal of an append, as the log differs before the entries; continue from `try_offset`."""

    vote: Candidate
    try_offset: int


class InstallPlan(NamedTuple):
    """Steps of a snapshot installation: store the vote, then the snapshot, then drop the log's
    beginning.
    """

    vote: Candidate
    is_newer: bool
    """Whether the snapshot is newer than the voter's own."""
    keeps_log: bool
    """Whether the log continues behind the snapshot; otherwise it restarts there, empty."""


class CommittedEntryLost(Exception):
    """An append would truncate a committed entry: a bug, which must not be hidden."""


def grant_vote(vote: Candidate, candidate: Candidate) -> Candidate:
    """Vote after a request, to be made durable before it is answered.

    Raises:
        FencedLeaderEpoch: another candidate has the vote, in an equal or newer epoch.
    """
    if candidate.epoch > vote.epoch or candidate == vote:
        return candidate
    raise FencedLeaderEpoch(f"voted in epoch {vote.epoch}, and {candidate.epoch} was asked for")


def on_append(
    vote: Candidate,
    candidate: Candidate,
    log: VoterLog,
    *,
    previous: LogEnd,
    entries: Sequence[MetadataEntry],
    committed: int,
) -> AppendPlan | LogMismatch:
    """Plan for an append by `candidate`, whose log has `previous` right before `entries`.

    Repeated or late appends do no harm: an entry that the log has already is skipped, and the
    entries behind it are kept.

    Args:
        vote: this voter's.
        candidate: the controller that appends.
        log: this voter's log.
        previous: the end of the controller's log before the entries.
        entries: contiguous, ascending; empty: only checks whether the log has `previous`.
        committed: everything before this offset is known here to be committed.

    Raises:
        FencedLeaderEpoch: a newer controller has the vote.
        CommittedEntryLost: the append contradicts committed entries.
    """
    vote = grant_vote(vote, candidate)
    end, start = log.log_end_offset, log.snapshot.offset
    if previous.offset > end:
        return LogMismatch(vote, end)
    # The snapshot has committed entries only, so the log of the candidate with the vote has them.
    if previous.offset == start > 0 and previous != log.snapshot:
        raise CommittedEntryLost(
            f"epoch {candidate.epoch} has epoch {previous.epoch} before offset {start}, but "
            f"a snapshot says that epoch {log.snapshot.epoch} is committed there"
        )
    if previous.offset > start and log.epoch_at(previous.offset - 1) != previous.epoch:
        # Nothing of that epoch can be trusted, so a step goes back a whole epoch (as in KIP-101).
        return LogMismatch(vote, max(start, log.epoch_start(previous.offset - 1)))
    for number, entry in enumerate(entries):
        if entry.base_offset < start:
            continue
        if entry.base_offset >= end:
            return AppendPlan(vote, None, number)
        if log.epoch_at(entry.base_offset) != entry.epoch:
            if entry.base_offset < committed:
                raise CommittedEntryLost(
                    f"epoch {candidate.epoch} would cut offset {entry.base_offset}, "
                    f"but everything before {committed} is committed"
                )
            return AppendPlan(vote, entry.base_offset, number)
    return AppendPlan(vote, None, len(entries))


def on_snapshot(
    vote: Candidate, candidate: Candidate, log: VoterLog, *, end: LogEnd, committed: int
) -> InstallPlan:
    """Plan for a snapshot of everything committed before `end`, sent by `candidate`.

    Args:
        vote: this voter's.
        candidate: the controller that sends it.
        log: this voter's log.
        end: the epoch of the last entry that the snapshot covers, and the offset behind it.
        committed: everything before this offset is known here to be committed.

    Raises:
        FencedLeaderEpoch: a newer controller has the vote.
        CommittedEntryLost: the log does not match the snapshot, and is committed beyond its end.
    """
    vote = grant_vote(vote, candidate)
    if end.offset <= log.snapshot.offset:
        return InstallPlan(vote, is_newer=False, keeps_log=True)
    keeps_log = joins(log, end)
    if not keeps_log and committed > end.offset:
        raise CommittedEntryLost(
            f"epoch {candidate.epoch} has a snapshot up to {end.offset} of another log, but "
            f"everything before {committed} is committed"
        )
    return InstallPlan(vote, is_newer=True, keeps_log=keeps_log)


def joins(log: VoterLog, end: LogEnd) -> bool:
    """Whether the log contains the end that a snapshot covers, so that it continues behind it."""
    return end.offset <= log.log_end_offset and log.epoch_at(end.offset - 1) == end.epoch
