"""Log of the active controller, and its replication to each voter.

Each voter is sent the entries it lacks, one request at a time, or a snapshot if they are no longer
in the log. A voter that cannot be reached is retried forever, and looked up again, as its process
may be a new one by then. A node that is to become a voter is sent the log before it counts as one.
A voter that has voted in a newer epoch refuses: then this leader has to end. An idle leader sends
an append without entries every confirm_ms.

The log is small, so the snapshot and all batches behind it are held in memory.

Source: LeaderState.ReplicaState, and KafkaRaftClient's Fetch requests in apache/kafka, where the
voters fetch from the leader.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..cluster.quorum.metadata_quorum import MetadataQuorum
from ..cluster.quorum.voter import Candidate, CommittedEntryLost, LogEnd
from ..protocol.errors import ConnectionFailed, FencedLeaderEpoch, KafkaError
from .candidate_state import AdoptedLog
from .controller_effects import Instant
from .quorum_times import QuorumTimes
from .voter_requests import AppendEntries, AppendResponse, InstallResponse, InstallSnapshot
from .voter_survey import Survey, VoterSurvey

logger = logging.getLogger(__name__)

MOST_BYTES = 1024**2
"""Most bytes of one append, or of one piece of a snapshot; a larger batch is sent alone."""


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
    """Why its last request failed, e.g. that its disk is full; "": it did not fail."""


class LogReplication:
    """A step object: the log of one leader, from its snapshot on, and the nodes it is sent to.

    ask: sends a request to a voter; see CandidateState.
    on_committed: called when more is committed than before.
    end: called with the reason why this leader is over; it is to call `stop`.
    """

    def __init__(
        self,
        me: Candidate,
        quorum: MetadataQuorum,
        effects: list[Any],
        times: QuorumTimes,
        ask: Callable[..., None],
        *,
        on_committed: Callable[[], None],
        end: Callable[[str], None],
    ) -> None:
        self._me = me
        self._quorum = quorum
        self._effects = effects
        self._times = times
        self._ask = ask
        self._on_committed = on_committed
        self._end = end
        self._bases: list[int] = []
        """Base offset of each batch."""
        self.batches: list[bytes] = []
        self.snapshot = b""
        """Replaces the entries before the batches; empty: there are none before them."""
        self._recipients: dict[str, _Recipient] = {}
        self._installing = ""
        """Name of the node that a snapshot is being sent to; "": none."""
        self._is_over = False

    # --- the log ---------------------------------------------------------------------------------

    def begin(self, log: AdoptedLog, bases: list[int]) -> None:
        """Begin with an adopted log, whose batches have these base offsets."""
        self.snapshot, self.batches, self._bases = log.snapshot, list(log.batches), list(bases)

    def append(self, base_offset: int, batch: bytes) -> None:
        """Append a batch; `drive` sends it."""
        self._bases.append(base_offset)
        self.batches.append(batch)

    def compact(self, end: LogEnd, snapshot: bytes) -> None:
        """Let the snapshot replace everything before `end`; `drive` sends it."""
        self.snapshot = snapshot
        count = bisect_left(self._bases, end.offset)
        del self._bases[:count], self.batches[:count]

    def batches_from(self, offset: int) -> list[bytes]:
        """Batches of the log behind the snapshot, from the one that holds `offset`."""
        return self.batches[max(0, bisect_right(self._bases, offset) - 1) :]

    # --- recipients ------------------------------------------------------------------------------

    def add(self, name: str, voter: Any, now: Instant) -> None:
        """Replicate the log to one more node. `voter`: its handle; None: it is looked up."""
        if name not in self._recipients:
            recipient = _Recipient(name, voter, self._times.retry_ms, now.now_ms)
            self._recipients[name] = recipient
            self._drive(recipient, now)

    def remove(self, name: str) -> None:
        """Stop replicating to a node that is not a voter."""
        if name in self._recipients and name not in self._quorum.voters:
            self._drop(self._recipients.pop(name))

    def stop(self) -> None:
        """Send nothing more."""
        self._is_over = True

    def close(self) -> None:
        """Stop, and forget all recipients."""
        self.stop()
        for recipient in self._recipients.values():
            self._drop(recipient)
        self._recipients.clear()

    def _drop(self, recipient: _Recipient) -> None:
        if recipient.survey is not None:
            recipient.survey.close()
        if self._installing == recipient.name:
            self._installing = ""

    def silences(self) -> list[str]:
        """Recipients whose last request failed, with the reason."""
        return [
            f"{each.name}: {each.silence}" for each in self._recipients.values() if each.silence
        ]

    def confirmed_ms(self) -> list[int]:
        """Times at which voters confirmed this leader; none before it has begun, or once closed."""
        if not self._recipients:
            return []
        return [self._recipients[name].confirmed_ms for name in self._quorum.voters]

    # --- time ------------------------------------------------------------------------------------

    @property
    def next_deadline_ms(self) -> int | None:
        deadlines = []
        for each in self._recipients.values():
            if each.resume_ms is not None:
                deadlines.append(each.resume_ms)
            elif not each.is_asked and each.survey is None:
                deadlines.append(each.confirmed_ms + self._times.confirm_ms)
            if each.survey is not None and each.survey.next_deadline_ms is not None:
                deadlines.append(each.survey.next_deadline_ms)
        return min(deadlines, default=None)

    def on_tick(self, now: Instant) -> None:
        for each in list(self._recipients.values()):
            if each.survey is not None:
                each.survey.on_tick(now)
            if each.resume_ms is not None and now.now_ms >= each.resume_ms:
                each.resume_ms = None
            self._drive(each, now)

    # --- sending ---------------------------------------------------------------------------------

    def drive(self, now: Instant) -> None:
        """Send each what it lacks, unless a request to it is under way or sending is paused."""
        for each in list(self._recipients.values()):
            self._drive(each, now)

    def _drive(self, to: _Recipient, now: Instant) -> None:
        if self._is_over or to.is_asked or to.survey or to.resume_ms is not None:
            return
        quorum, name = self._quorum, to.name
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
        return self._quorum.lacks_snapshot(name) and self._installing in ("", name)

    def _begin_to_install(self, to: _Recipient) -> None:
        """Start sending the snapshot, piece by piece."""
        to.snapshot, to.position = (self._quorum.start, self.snapshot), 0
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
        quorum = self._quorum
        start, first = quorum.next_offset(to.name), len(self._bases)
        if start < quorum.end.offset:
            # Its log may end within a batch of ours, if the two logs differ before that.
            first = bisect_right(self._bases, start) - 1
            start = self._bases[first]
        batches: list[bytes] = []
        size = 0
        for batch in self.batches[first:]:
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
        if self._recipients.get(to.name) is not to or self._is_over:
            return
        if isinstance(answer, AppendResponse | InstallResponse):
            to.confirmed_ms = now.now_ms
        match answer:
            case AppendResponse(is_there=True):
                self._on_progress(to, self._quorum.on_acknowledged(to.name, answer.offset), now)
            case AppendResponse():
                self._quorum.on_mismatch(to.name, answer.offset)
                # One step back. Logs match after a few; one that never does must not be retried in
                # a busy loop.
                self._pause(to, to.retry_ms - self._times.retry_ms, now)
            case InstallResponse(is_there=True):
                assert to.snapshot is not None
                is_more = self._quorum.on_snapshot(to.name, to.snapshot[0].offset)
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
        if is_more_committed:
            self._on_committed()
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
