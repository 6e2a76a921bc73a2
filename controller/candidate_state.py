"""A controller before it leads: the votes of a majority, and the best log of its voters.

    vote     asked of each voter; all have to answer or fail, a majority has to grant it
    fetch    the most advanced of their logs, piece by piece: its snapshot, the batches behind it

Source: CandidateState.java in apache/kafka's raft; unlike there, the log is read before leading.
The rules are in cluster/quorum/metadata_quorum.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..cluster.metadata.metadata_image import MetadataImage
from ..cluster.metadata.metadata_records import MetadataRecord, decode_metadata_record
from ..cluster.quorum.metadata_quorum import MetadataQuorum
from ..cluster.quorum.metadata_snapshot import decode_snapshot
from ..cluster.quorum.voter import Candidate, LogEnd
from ..protocol.errors import ConnectionFailed, FencedLeaderEpoch, KafkaError
from ..protocol.records.record_batch import walk_batches
from ..protocol.records.records import iterate_records
from .controller_effects import Instant
from .quorum_times import QuorumTimes
from .voter_requests import FetchEntries, FetchSnapshot, VoteRequest, VoterState


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


class CandidateState:
    """A step object: one candidacy. `begin` it once.

    ask: sends a request to a voter: (voter, request, timeout_ms, then, *about); `then` is called
        with `about`, the answer or its exception, and the time.
    then: called once, with the adopted log, and with the base offsets of its batches, or with
        Superseded, or ConnectionFailed if it may be tried again.
    """

    def __init__(
        self,
        me: Candidate,
        quorum: MetadataQuorum,
        times: QuorumTimes,
        ask: Callable[..., None],
        then: Callable[[AdoptedLog | Exception, list[int], Instant], None],
    ) -> None:
        self._me = me
        self._quorum = quorum
        self._times = times
        self._ask = ask
        self._then = then
        self.holders: Mapping[str, Any] = {}
        """Handles of the voters that are asked, by name."""
        self._votes: dict[str, VoterState | Exception] = {}
        self._adopting: LogEnd | None = None
        self._snapshot = bytearray()
        self._epochs: list[tuple[int, int]] = []
        self._bases: list[int] = []
        self._batches: list[bytes] = []

    def begin(self, holders: Mapping[str, Any]) -> None:
        """Ask these voters for their votes."""
        self.holders = holders
        for name, voter in holders.items():
            self._ask(voter, VoteRequest(self._me), self._times.answer_ms, self._on_vote, name)

    def _on_vote(self, name: str, answer: VoterState | Exception, now: Instant) -> None:
        self._votes[name] = answer
        if len(self._votes) < len(self.holders):
            return
        for holder, state in self._votes.items():
            if isinstance(state, FencedLeaderEpoch):
                self._fail(Superseded(str(state)), now)
                return
            if isinstance(state, VoterState):
                end = LogEnd(state.last_epoch, state.log_end_offset)
                self._quorum.on_vote(holder, end, state.voters)
                self._quorum.snapshots[holder] = state.snapshot.offset
        if not self._quorum.has_majority:
            why = {str(each) for each in self._votes.values() if isinstance(each, KafkaError)}
            said = f" ({'; '.join(sorted(why))})" if why else ""
            self._fail(ConnectionFailed(f"too few voters granted their vote{said}"), now)
            return
        best = self._votes[self._quorum.best_log()]
        assert isinstance(best, VoterState)
        self._adopting = best.snapshot
        if best.snapshot.offset:
            self._fetch(FetchSnapshot(self._me, 0), self._on_snapshot_piece)
        else:
            self._fetch(FetchEntries(self._me, 0), self._on_entries, best.snapshot)

    def _fail(self, failure: Exception, now: Instant) -> None:
        self._then(failure, [], now)

    def _fetch(self, request: Any, then: Any, *about: Any) -> None:
        def fetched(piece: bytes | Exception, now: Instant) -> None:
            if isinstance(piece, FencedLeaderEpoch):
                self._fail(Superseded(str(piece)), now)
            elif isinstance(piece, KafkaError | ConnectionFailed | TimeoutError):
                why = f"the log to be adopted cannot be read: {piece}"
                self._fail(ConnectionFailed(why), now)
            elif isinstance(piece, Exception):
                raise piece
            else:
                then(*about, piece, now)

        holder = self.holders[self._quorum.best_log()]
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
            self._quorum.adopt(self._epochs, end, start=start)
            self._then(AdoptedLog(bytes(self._snapshot), self._batches), self._bases, now)
            return
        for position, header in walk_batches(piece):
            if header.base_offset < start.offset:
                continue  # a read returns whole batches: the first may begin below the offset
            if not self._epochs or header.leader_epoch != end.epoch:
                self._epochs.append((header.leader_epoch, header.base_offset))
            end = LogEnd(header.leader_epoch, header.next_offset)
            self._bases.append(header.base_offset)
            self._batches.append(piece[position : position + header.size])
        self._fetch(FetchEntries(self._me, end.offset), self._on_entries, end)
