"""Metadata leader: the controller's side of the metadata log, which replicates its entries to
voters.

    lead     the votes of a majority make this the only controller that can commit; the best
             log of the voters is adopted: its snapshot, and the batches behind it
    append   one batch goes to all voters at once; it is committed when a majority has it fsynced
    compact  from now on a snapshot stands for what is before it; voters that have none are
             brought it, one after the other

Each voter is brought what it has not, one request at a time: a snapshot if what it lacks is no more
in the log. One that cannot be reached is tried again forever, and looked up again, as its process
may be another one by then. A node that is to vote next is sent the log before it counts, and who is
to be none until that is committed. A voter that refuses has voted in a newer epoch: then it is
over. An idle leader asks too, every confirm_ms, by an append without entries: it would not notice
otherwise that it was superseded, and nodes that do not know either would follow it forever. If no
majority confirms it, it ends, as Kafka's leader does (KIP-595, check quorum).

The rules are in cluster/quorum/metadata_quorum.py; the log is small, so all of it behind the
snapshot, and that, is held in memory.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from ..cluster.metadata.metadata_image import MetadataImage
from ..cluster.metadata.metadata_records import MetadataRecord, decode_metadata_record
from ..cluster.quorum.metadata_quorum import MetadataQuorum
from ..cluster.quorum.metadata_snapshot import decode_snapshot
from ..cluster.quorum.voter import Candidate, CommittedEntryLost, LogEnd
from ..protocol.errors import ConnectionFailed, FencedLeaderEpoch, KafkaError
from ..protocol.records.record_batch import walk_batches
from ..protocol.records.records import iterate_records
from .controller_effects import AskVoter, Instant
from .majority_deadlines import MajorityDeadlines
from .quorum_times import QuorumTimes
from .voter_requests import (
    AppendEntries,
    AppendResponse,
    FetchEntries,
    FetchSnapshot,
    InstallResponse,
    InstallSnapshot,
    VoteRequest,
    VoterState,
)
from .voter_survey import Survey, VoterSurvey

logger = logging.getLogger(__name__)

MOST_BYTES = 1024**2
"""Most bytes of one append, or of one piece of a snapshot; a larger batch is sent alone."""


class AdoptedLog(NamedTuple):
    """Log that a controller begins with: a snapshot (empty: none), and the batches behind it."""

    snapshot: bytes
    batches: list[bytes]

    def image(self) -> MetadataImage:
        """Image of the snapshot and the batches. Takes about 20 us per record: use a thread for
        large clusters.
        """
        image = decode_snapshot(self.snapshot) if self.snapshot else MetadataImage()
        records: list[MetadataRecord] = []
        offset = image.offset
        for batch in self.batches:
            for record in iterate_records(memoryview(batch)):
                assert record.value is not None
                records.append(decode_metadata_record(record.value))
                offset = record.offset + 1
        return image.apply(records, offset=offset)


class Superseded(Exception):
    """A newer controller has the votes, or no majority answers: start again or end."""


@dataclass(slots=True, eq=False)
class _Recipient:
    """A current or future voter, and the progress of replicating the log to it."""

    name: str
    voter: Any
    retry_ms: int
    confirmed_ms: int
    """Time at which it last answered as the voter of this leader."""
    is_asked: bool = False
    survey: VoterSurvey | None = None
    resume_ms: int | None = None
    """Time until which nothing is sent to it; None: no pause."""
    snapshot: tuple[LogEnd, bytes] | None = None
    """Snapshot that is being sent: its end and content."""
    position: int = 0
    silence: str = ""
    """Reason why it refused the log last, e.g. that its disk is full; "": it did not."""


class MetadataLeader:
    """A step object: one attempt of one controller. `lead` once, `append` one at a time, `close`.

    What has become of it is in `adopted`, `committed`, `failure` and `end_reason`.
    """

    def __init__(
        self, me: Candidate, voters: tuple[str, ...], effects: list[Any], times: QuorumTimes
    ) -> None:
        self._me = me
        self._effects = effects
        self._times = times
        self.quorum = MetadataQuorum(me, voters)
        self._holders: Mapping[str, Any] = {}
        self._votes: dict[str, VoterState | Exception] = {}
        self._adopting: LogEnd | None = None
        self._epochs: list[tuple[int, int]] = []
        self._bases: list[int] = []
        self._batches: list[bytes] = []
        self._snapshot = bytearray()
        self._recipients: dict[str, _Recipient] = {}
        self._installing = ""
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
        return self._batches[max(0, bisect_right(self._bases, offset) - 1) :]

    # --- becoming the leader ---------------------------------------------------------------------

    def lead(self, holders: Mapping[str, Any]) -> None:
        """Take the epoch with these voters' votes, and adopt the most advanced of their logs."""
        self._holders = holders
        for name, voter in holders.items():
            self._ask(voter, VoteRequest(self._me), self._times.answer_ms, self._on_vote, name)

    def _ask(self, voter: Any, request: Any, timeout_ms: int, then: Any, *about: Any) -> None:
        def answered(answer: Any, now: Instant) -> None:
            if not self._is_closed:
                then(*about, answer, now)

        self._effects.append(AskVoter(voter, request, timeout_ms, answered))

    def _on_vote(self, name: str, answer: VoterState | Exception, now: Instant) -> None:
        self._votes[name] = answer
        if len(self._votes) < len(self._holders):
            return
        for holder, state in self._votes.items():
            if isinstance(state, FencedLeaderEpoch):
                self.failure = Superseded(str(state))
                return
            if isinstance(state, VoterState):
                end = LogEnd(state.last_epoch, state.log_end_offset)
                self.quorum.on_vote(holder, end, state.voters)
                self.quorum.snapshots[holder] = state.snapshot.offset
        if not self.quorum.has_majority:
            why = {str(each) for each in self._votes.values() if isinstance(each, KafkaError)}
            said = f" ({'; '.join(sorted(why))})" if why else ""
            self.failure = ConnectionFailed(f"too few voters granted their vote{said}")
            return
        best = self._votes[self.quorum.best_log()]
        assert isinstance(best, VoterState)
        self._adopting = best.snapshot
        if best.snapshot.offset:
            self._fetch(FetchSnapshot(self._me, 0), self._on_snapshot_piece)
        else:
            self._fetch(FetchEntries(self._me, 0), self._on_entries, best.snapshot)

    def _fetch(self, request: Any, then: Any, *about: Any) -> None:
        def fetched(piece: bytes | Exception, now: Instant) -> None:
            if isinstance(piece, FencedLeaderEpoch):
                self.failure = Superseded(str(piece))
            elif isinstance(piece, KafkaError | ConnectionFailed | TimeoutError):
                self.failure = ConnectionFailed(f"the log to be adopted cannot be read: {piece}")
            elif isinstance(piece, Exception):
                raise piece
            else:
                then(*about, piece, now)

        holder = self._holders[self.quorum.best_log()]
        self._ask(holder, request, self._times.fetch_ms, fetched)

    def _on_snapshot_piece(self, piece: bytes, now: Instant) -> None:
        assert self._adopting is not None
        if piece:
            self._snapshot += piece
            self._fetch(FetchSnapshot(self._me, len(self._snapshot)), self._on_snapshot_piece)
        else:
            request = FetchEntries(self._me, self._adopting.offset)
            self._fetch(request, self._on_entries, self._adopting)

    def _on_entries(self, end: LogEnd, piece: bytes, now: Instant) -> None:
        start = self._adopting
        assert start is not None
        if not piece:
            self._adopt(start, end, now)
            return
        for position, header in walk_batches(piece):
            if header.base_offset < start.offset:
                continue  # a part of a file is read whole
            if not self._epochs or header.leader_epoch != end.epoch:
                self._epochs.append((header.leader_epoch, header.base_offset))
            end = LogEnd(header.leader_epoch, header.next_offset)
            self._bases.append(header.base_offset)
            self._batches.append(piece[position : position + header.size])
        self._fetch(FetchEntries(self._me, end.offset), self._on_entries, end)

    def _adopt(self, start: LogEnd, end: LogEnd, now: Instant) -> None:
        self.quorum.adopt(self._epochs, end, start=start)
        for name in sorted(self.quorum.voters):
            self._add_recipient(name, self._holders.get(name), now)
        self.adopted = AdoptedLog(bytes(self._snapshot), list(self._batches))

    # --- leading ---------------------------------------------------------------------------------

    def append(
        self, batch: bytes, count: int, now: Instant, *, voters: Collection[str] | None = None
    ) -> int:
        """Append a batch of `count` records, stamped. Returns its end offset: committed when that
        is.

        `voters`: those that it names; they count from now on. One more or one less than before.
        """
        assert self.end_reason is None
        assert not self.is_appending, "one at a time"
        before = self.quorum.voters
        if voters is not None:
            self.quorum.change_voters(voters)
            for name in sorted(self.quorum.voters - before):
                self.catch_up(name, now)
        self._bases.append(self.quorum.end.offset)
        self._batches.append(batch)
        end_offset = self.quorum.append(count)
        self.deadlines.on_appended(end_offset, now.now_ms)
        # Until it is committed a voter that goes gets it, too.
        self._leaving = before - self.quorum.voters
        self._drive_all(now)
        return end_offset

    def catch_up(self, name: str, now: Instant) -> None:
        """Replicate the log to a node that is not (yet) a voter."""
        if name not in self._recipients:
            self._add_recipient(name, None, now)

    def forget(self, name: str) -> None:
        """Stop replicating to a node that is not a voter."""
        if name in self._recipients and name not in self.quorum.voters:
            self._drop(self._recipients.pop(name))

    def compact(self, end: LogEnd, snapshot: bytes, now: Instant) -> None:
        """Let the snapshot replace everything before `end`, all of which is committed."""
        self.quorum.compact(end)
        self._snapshot = bytearray(snapshot)
        count = bisect_left(self._bases, end.offset)
        del self._bases[:count], self._batches[:count]
        self._drive_all(now)

    def close(self, reason: str = "it is closed") -> None:
        """Close: nothing more is sent, and answers are ignored."""
        self._is_closed = True
        self.end_reason = self.end_reason or reason
        self.deadlines.commits_at = None
        for recipient in self._recipients.values():
            self._drop(recipient)
        self._recipients.clear()

    def _drop(self, recipient: _Recipient) -> None:
        if recipient.survey is not None:
            recipient.survey.close()
        if self._installing == recipient.name:
            self._installing = ""

    # --- time ------------------------------------------------------------------------------------

    @property
    def next_deadline_ms(self) -> int | None:
        if self.end_reason is not None:
            return None
        deadlines = self.deadlines.next_ms(self._confirmed_ms())
        for each in self._recipients.values():
            if each.resume_ms is not None:
                deadlines.append(each.resume_ms)
            elif not each.is_asked and each.survey is None:
                deadlines.append(each.confirmed_ms + self._times.confirm_ms)
            if each.survey is not None and each.survey.next_deadline_ms is not None:
                deadlines.append(each.survey.next_deadline_ms)
        return min(deadlines, default=None)

    def on_tick(self, now: Instant) -> None:
        silence_ms = self.deadlines.silence_ms(self._confirmed_ms(), now.now_ms)
        if silence_ms is not None:
            self._end_without_majority(silence_ms)
        for each in list(self._recipients.values()):
            if each.survey is not None:
                each.survey.on_tick(now)
            if each.resume_ms is not None and now.now_ms >= each.resume_ms:
                each.resume_ms = None
            self._drive(each, now)

    def _confirmed_ms(self) -> list[int]:
        """When each voter confirmed this leader; none before it leads."""
        if not self._recipients:
            return []
        return [self._recipients[name].confirmed_ms for name in self.quorum.voters]

    def _end_without_majority(self, silence_ms: int) -> None:
        seconds = silence_ms / 1000
        why = [f"{each.name}: {each.silence}" for each in self._recipients.values() if each.silence]
        ending = f" ({'; '.join(why)})" if why else ""
        self._end(f"no majority of the voters answered for {seconds:g} s{ending}")

    # --- bringing the log to each voter ----------------------------------------------------------

    def _add_recipient(self, name: str, voter: Any, now: Instant) -> None:
        self._recipients[name] = _Recipient(name, voter, self._times.retry_ms, now.now_ms)
        self._drive(self._recipients[name], now)

    def _drive_all(self, now: Instant) -> None:
        for each in list(self._recipients.values()):
            self._drive(each, now)

    def _drive(self, to: _Recipient, now: Instant) -> None:
        """Send the missing entries, unless a request is under way or sending is paused."""
        if self.end_reason is not None or to.is_asked or to.survey or to.resume_ms is not None:
            return
        quorum, name = self.quorum, to.name
        has_all = quorum.acknowledged.get(name) == quorum.end.offset
        is_confirmed = now.now_ms < to.confirmed_ms + self._times.confirm_ms
        if has_all and is_confirmed and not self._may_install(name):
            return
        if to.voter is None:
            to.survey = VoterSurvey(self._effects, self._times, partial(self._on_survey, to))
        elif quorum.needs_snapshot(name) or self._may_install(name):
            self._begin_to_install(to)
        else:
            self._send(to)

    def _on_survey(self, to: _Recipient, survey: Survey, now: Instant) -> None:
        to.survey = None
        found = survey.find(to.name)
        if found is None:
            to.resume_ms = now.now_ms + self._times.find_ms
            return
        to.voter = found.voter
        self._drive(to, now)

    def _may_install(self, name: str) -> bool:
        """Whether a snapshot may be sent now. One voter at a time, as the others are needed for
        commits.
        """
        return self.quorum.lacks_snapshot(name) and self._installing in ("", name)

    def _begin_to_install(self, to: _Recipient) -> None:
        """Start sending the snapshot, piece by piece."""
        to.snapshot, to.position = (self.quorum.start, bytes(self._snapshot)), 0
        self._installing = to.name
        self._send_piece(to)

    def _send_piece(self, to: _Recipient) -> None:
        assert to.snapshot is not None
        end, data = to.snapshot
        piece = data[to.position : to.position + MOST_BYTES]
        request = InstallSnapshot(self._me, end, to.position, piece, len(data))
        self._send_request(to, request)

    def _send(self, to: _Recipient) -> None:
        """Send the next missing entries."""
        quorum = self.quorum
        start, first = quorum.next_offset(to.name), len(self._bases)
        if start < quorum.end.offset:
            # Where its log ends may be amid a batch of ours, if they differ before that.
            first = bisect_right(self._bases, start) - 1
            start = self._bases[first]
        batches: list[bytes] = []
        size = 0
        for batch in self._batches[first:]:
            if batches and size + len(batch) > MOST_BYTES:
                break
            batches.append(batch)
            size += len(batch)
        previous = quorum.before(start)
        self._send_request(
            to, AppendEntries(self._me, previous, b"".join(batches), quorum.committed)
        )

    def _send_request(self, to: _Recipient, request: Any) -> None:
        to.is_asked = True
        self._ask(to.voter, request, self._times.answer_ms, self._on_answer, to)

    def _on_answer(self, to: _Recipient, answer: Any, now: Instant) -> None:
        to.is_asked = False
        if self._recipients.get(to.name) is not to or self.end_reason is not None:
            return
        if isinstance(answer, AppendResponse | InstallResponse):
            to.confirmed_ms = now.now_ms
        match answer:
            case AppendResponse(is_there=True):
                self._on_progress(to, self.quorum.on_acknowledged(to.name, answer.offset), now)
            case AppendResponse():
                self.quorum.on_mismatch(to.name, answer.offset)
                # A step back. Logs join after a few; one that never joins must not be asked hot.
                self._pause(to, to.retry_ms - self._times.retry_ms, now)
            case InstallResponse(is_there=True):
                assert to.snapshot is not None
                is_more = self.quorum.on_snapshot(to.name, to.snapshot[0].offset)
                self._end_install(to, now)
                self._on_progress(to, is_more, now)
            case InstallResponse() if answer.position > to.position:
                to.position = answer.position
                self._send_piece(to)
            case InstallResponse():
                self._on_silence(to, "another controller is sending it a snapshot", now)
            case FencedLeaderEpoch():
                self._end(f"a newer controller took over: {answer}")
            case KafkaError() | ConnectionFailed() | OSError():  # TimeoutError, too
                self._on_silence(to, answer, now)
            case CommittedEntryLost():
                self._end(
                    f"voter {to.name} has a log that differs from the committed one: {answer}"
                )
            case _:
                logger.error("replicating the metadata log to voter %s failed: %r", to.name, answer)
                self._end(f"replicating the log to voter {to.name} failed: {answer!r}")

    def _on_progress(self, to: _Recipient, is_more_committed: bool, now: Instant) -> None:
        to.retry_ms = self._times.retry_ms
        to.silence = ""
        if is_more_committed and self.deadlines.on_committed(self.committed):
            for name in sorted(self._leaving):
                self.forget(name)
        self._drive(to, now)

    def _on_silence(self, to: _Recipient, why: object, now: Instant) -> None:
        logger.debug("voter %s refuses the metadata log: %s", to.name, why)
        to.silence = str(why) or type(why).__name__
        self._end_install(to, now)
        to.voter = None  # its process may be another one now
        self._pause(to, to.retry_ms, now)

    def _pause(self, to: _Recipient, pause_ms: int, now: Instant) -> None:
        to.retry_ms = min(2 * to.retry_ms, self._times.longest_retry_ms)
        to.resume_ms = now.now_ms + pause_ms
        if not pause_ms:
            to.resume_ms = None
            self._drive(to, now)

    def _end_install(self, to: _Recipient, now: Instant) -> None:
        to.snapshot = None
        if self._installing == to.name:
            self._installing = ""
            for each in list(self._recipients.values()):
                if each is not to:
                    self._drive(each, now)

    def _end(self, reason: str) -> None:
        self.end_reason = self.end_reason or reason
