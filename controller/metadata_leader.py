"""Metadata leader: the controller's side of the metadata log, which replicates its entries to
voters.

    lead     the votes of a majority make this the only controller that can commit; the best
             log of the voters is adopted (candidate_state)
    append   one batch goes to all voters at once; it is committed when a majority has it fsynced
    compact  from now on a snapshot replaces the entries before its end; it is sent to voters that
             lack it, one after the other

How each voter is sent the entries it lacks: log_replication. A voter that is being removed is sent
the log until the removal is committed. A superseded leader does not always notice that, and nodes
that have not noticed either would follow it forever. So it ends if no majority confirms it, as
Kafka's leader does (KIP-595, check quorum).

The rules are in cluster/quorum/metadata_quorum.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ..cluster.quorum.metadata_quorum import MetadataQuorum
from ..cluster.quorum.voter import Candidate, LogEnd
from .candidate_state import AdoptedLog, CandidateState
from .controller_effects import AskVoter, Instant
from .log_replication import LogReplication
from .majority_deadlines import MajorityDeadlines
from .quorum_times import QuorumTimes


class MetadataLeader:
    """A step object: one attempt of one controller. `lead` once, `append` one at a time, `close`.

    Its progress and its end: `adopted`, `committed`, `failure` and `end_reason`.
    """

    def __init__(
        self, me: Candidate, voters: tuple[str, ...], effects: list[Any], times: QuorumTimes
    ) -> None:
        self._effects = effects
        self._times = times
        self.quorum = MetadataQuorum(me, voters)
        self._candidate = CandidateState(me, self.quorum, times, self._ask, self._on_adopted)
        self._replication = LogReplication(
            me,
            self.quorum,
            effects,
            times,
            self._ask,
            on_committed=self._on_committed,
            end=self._end,
        )
        self.deadlines = MajorityDeadlines(times)
        self._leaving: frozenset[str] = frozenset()
        self._is_closed = False
        self.adopted: AdoptedLog | None = None
        self.failure: Exception | None = None
        """Reason of a failed start: Superseded, or ConnectionFailed if it may be retried."""
        self.end_reason: str | None = None

    @property
    def committed(self) -> int:
        """Committed offset: everything before it is on the disks of a majority."""
        return self.quorum.committed

    @property
    def is_appending(self) -> bool:
        """Whether the last batch is not yet known to be committed."""
        return self.deadlines.commits_at is not None

    @property
    def acknowledged(self) -> Mapping[str, int]:
        """Offset up to which each voter is known to have this log."""
        return self.quorum.acknowledged

    def batches_from(self, offset: int) -> list[bytes]:
        """Batches of the log behind the snapshot, from the one that holds `offset`."""
        return self._replication.batches_from(offset)

    def _ask(self, voter: Any, request: Any, timeout_ms: int, then: Any, *about: Any) -> None:
        def answered(answer: Any, now: Instant) -> None:
            if not self._is_closed:
                then(*about, answer, now)

        self._effects.append(AskVoter(voter, request, timeout_ms, answered))

    # --- becoming the leader ---------------------------------------------------------------------

    def lead(self, holders: Mapping[str, Any]) -> None:
        """Take the epoch with these voters' votes, and adopt the most advanced of their logs."""
        self._candidate.begin(holders)

    def _on_adopted(self, log: AdoptedLog | Exception, bases: list[int], now: Instant) -> None:
        if isinstance(log, Exception):
            self.failure = log
            return
        self._replication.begin(log, bases)
        for name in sorted(self.quorum.voters):
            self._replication.add(name, self._candidate.holders.get(name), now)
        self.adopted = log

    # --- leading ---------------------------------------------------------------------------------

    def append(
        self, batch: bytes, count: int, now: Instant, *, voters: Collection[str] | None = None
    ) -> int:
        """Append a batch of `count` records, stamped. Returns its end offset; the batch is
        committed when `committed` has reached that.

        `voters`: the voters that it names, in force from now on; one more or one less than before.
        """
        assert self.end_reason is None
        assert not self.is_appending, "one at a time"
        before = self.quorum.voters
        if voters is not None:
            self.quorum.change_voters(voters)
            for name in sorted(self.quorum.voters - before):
                self.catch_up(name, now)
        self._replication.append(self.quorum.end.offset, batch)
        end_offset = self.quorum.append(count)
        self.deadlines.on_appended(end_offset, now.now_ms)
        # A removed voter is sent the batch, too, until it is committed.
        self._leaving = before - self.quorum.voters
        self._replication.drive(now)
        return end_offset

    def _on_committed(self) -> None:
        if self.deadlines.on_committed(self.committed):
            for name in sorted(self._leaving):
                self.forget(name)

    def catch_up(self, name: str, now: Instant) -> None:
        """Replicate the log to a node that is not (yet) a voter."""
        self._replication.add(name, None, now)

    def forget(self, name: str) -> None:
        """Stop replicating to a node that is not a voter."""
        self._replication.remove(name)

    def compact(self, end: LogEnd, snapshot: bytes, now: Instant) -> None:
        """Let the snapshot replace everything before `end`, all of which is committed."""
        self.quorum.compact(end)
        self._replication.compact(end, snapshot)
        self._replication.drive(now)

    def close(self, reason: str = "it is closed") -> None:
        """Close: nothing more is sent, and answers are ignored."""
        self._is_closed = True
        self._end(reason)
        self.deadlines.commits_at = None
        self._replication.close()

    def _end(self, reason: str) -> None:
        self.end_reason = self.end_reason or reason
        self._replication.stop()

    # --- time ------------------------------------------------------------------------------------

    @property
    def next_deadline_ms(self) -> int | None:
        if self.end_reason is not None:
            return None
        deadlines = self.deadlines.next_ms(self._replication.confirmed_ms())
        resumes_ms = self._replication.next_deadline_ms
        if resumes_ms is not None:
            deadlines.append(resumes_ms)
        return min(deadlines, default=None)

    def on_tick(self, now: Instant) -> None:
        silence_ms = self.deadlines.silence_ms(self._replication.confirmed_ms(), now.now_ms)
        if silence_ms is not None:
            self._end_without_majority(silence_ms)
        self._replication.on_tick(now)

    def _end_without_majority(self, silence_ms: int) -> None:
        seconds = silence_ms / 1000
        why = self._replication.silences()
        ending = f" ({'; '.join(why)})" if why else ""
        self._end(f"no majority of the voters answered for {seconds:g} s{ending}")
