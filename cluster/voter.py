"""The rules of one metadata voter: which controller may write to its copy of the metadata log.

A controller is whoever holds promises from a majority of voters for its epoch; it writes only with
that epoch, and a voter that promised a newer one refuses. So two live controllers are safe: what
the older one can still write never reaches a majority.

    hard state   promise (epoch, owner), kept in the `quorum-state` file; the log itself
    what always holds   a promise never falls; a committed record is never cut

The log's leader epoch is the controller epoch, its offset the index: an entry is one record batch.
For now a cluster has one voter, so a majority is one. Rules: Raft with the epoch's owner chosen
outside (by Ray), without Raft's election timers.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..protocol.errors import FencedLeaderEpoch, InvalidRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """Who may write: a controller epoch and the random name of the process that owns it."""

    epoch: int = -1
    owner: str = ""


def on_prepare(promised: Promise, asked: Promise) -> Promise:
    """The new promise, to be made durable before it is answered.

    Raises:
        FencedLeaderEpoch: an equal or newer epoch is promised to somebody else.
    """
    if asked.epoch > promised.epoch or asked == promised:
        return asked
    raise FencedLeaderEpoch(f"epoch {promised.epoch} is promised, {asked.epoch} was asked for")


def on_append(
    promised: Promise, asked: Promise, *, log_end_offset: int, previous_end_offset: int
) -> Promise:
    """The promise after accepting an append that continues the log at `previous_end_offset`.

    Raises:
        FencedLeaderEpoch: a newer controller was promised the log.
        InvalidRequest: the append does not join on; the controller must fetch this log again.
    """
    promise = on_prepare(promised, asked)
    if previous_end_offset != log_end_offset:
        raise InvalidRequest(
            f"append at offset {previous_end_offset}, but the log ends at {log_end_offset}"
        )
    return promise
