"""Metadata voter: its log, and its vote for the controller that may write it.

Requests are carried out one after the other, each to its end, whether its caller waits or not.

Order, and why:
    vote      it is on the disk before it is answered: after a crash this voter still
              refuses the older controllers
    append    the vote first, then conflicting entries are truncated, then the records, then fsync,
              then the answer: entries that a majority acknowledged survive the death of processes
              and machines
    format    the voters first, then the cluster id, then the log: where there is a log, the
              voters are stored
    install   a snapshot is complete and fsynced before the entries that it replaces are dropped
The rules are in cluster/quorum/voter.py, the files in voter_directory and replicated_log.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from ..cluster.quorum.voter import (
    NO_SNAPSHOT,
    Candidate,
    LogEnd,
    LogMismatch,
    MetadataEntry,
    grant_vote,
    on_append,
    on_snapshot,
)
from ..protocol.errors import (
    ConnectionFailed,
    FencedLeaderEpoch,
    InconsistentClusterId,
    KafkaStorageError,
)
from ..protocol.records.record_batch import walk_batches
from ..steps.replies import Refuse, Reply
from .controller_effects import Instant, RunInThread
from .voter_files.replicated_log import ReplicatedLog
from .voter_files.voter_directory import VoterDirectory
from .voter_requests import (
    AppendEntries,
    AppendResponse,
    DescribeVoter,
    FetchEntries,
    FetchSnapshot,
    FormatVoter,
    InstallResponse,
    InstallSnapshot,
    QuorumRequest,
    VoteRequest,
    VoterState,
)

logger = logging.getLogger(__name__)

SNAPSHOT_BYTES = 4 * 1024**2
"""Bytes of a snapshot in one answer."""

Job = Generator[Callable[[], Any], Any, Any]
"""A request under way: a generator that yields disk work, and returns the answer."""


class MetadataVoter:
    """A step object over one VoterDirectory. At most one RunInThread is under way."""

    def __init__(self, name: str, directory: VoterDirectory, effects: list[Any]) -> None:
        """`name`: name of the process it runs in. `effects`: list that takes Reply, Refuse and
        RunInThread.
        """
        self._name = name
        self._directory = directory
        self._effects = effects
        self._log: ReplicatedLog | None = None
        self._vote = Candidate()
        self._formatted_with: tuple[str, ...] = ()
        self._catches_up = False
        self._committed = 0
        self._incoming: tuple[LogEnd, bytearray] = (NO_SNAPSHOT, bytearray())
        self._waiting: deque[tuple[Any, Job]] = deque()
        self._job: tuple[Any, Job] | None = None
        self._is_open = False

    def open(self, *, directory_id: str, now_ms: int) -> None:
        """Open before any request. Blocking: call in a thread. Raises what VoterDirectory.open
        raises.
        """
        stored = self._directory.open(directory_id=directory_id, now_ms=now_ms)
        self._vote, self._formatted_with, self._log, self._catches_up = stored
        if self._log is not None:
            self._committed = self._log.snapshot.offset
        self._is_open = True

    @property
    def is_open(self) -> bool:
        return self._is_open

    @property
    def vote(self) -> Candidate:
        """Candidate that may write to this log."""
        return self._vote

    @property
    def state(self) -> VoterState:
        """Current state, regardless of requests under way."""
        log = self._log
        return VoterState(
            self._name,
            self._directory.directory.identity.directory_id,
            self._directory.directory.identity.cluster_id,
            log is not None,
            self._vote,
            0 if log is None else log.log_end_offset,
            -1 if log is None else log.last_epoch,
            self._formatted_with if log is None else log.voters,
            NO_SNAPSHOT if log is None else log.snapshot,
        )

    # --- inputs ----------------------------------------------------------------------------------

    def handle(self, ticket: Any, request: QuorumRequest[Any], *, now_ms: int) -> None:
        """Handle a request. `now_ms`: wall clock, used as the time of log segments."""
        if isinstance(request, DescribeVoter) and self._is_open:
            self._effects.append(Reply(ticket, self.state))
            return
        self._waiting.append((ticket, self._carry_out(request, now_ms)))
        self._begin_next()

    def close(self, ticket: Any) -> None:
        """Close the directory after the request under way. Answered when nothing runs any more."""
        self._waiting.append((ticket, self._close()))
        self._begin_next()

    @property
    def next_deadline_ms(self) -> None:
        """None: it waits for the disk, never for a time."""
        return None

    def on_tick(self, now: Instant) -> None:
        """Do nothing: no deadline is used."""

    def on_done(self, effect: RunInThread, result: Any, now: Instant) -> None:
        """Called with the result, or the exception, of work on the disk."""
        effect.then(result, now)

    def _on_disk(self, result: Any, now: Instant) -> None:
        del now
        assert self._job is not None
        if isinstance(result, Exception):
            self._go_on(lambda job: job.throw(result))
        else:
            self._go_on(lambda job: job.send(result))

    # --- one after the other ---------------------------------------------------------------------

    def _begin_next(self) -> None:
        if self._job is None and self._waiting:
            self._job = self._waiting.popleft()
            self._go_on(next)

    def _go_on(self, advance: Callable[[Job], Callable[[], Any]]) -> None:
        while self._job is not None:
            ticket, job = self._job
            try:
                self._effects.append(RunInThread(advance(job), self._on_disk))
                return
            except StopIteration as end:
                self._effects.append(Reply(ticket, end.value))
            except Exception as error:  # noqa: BLE001 -- it is the answer
                self._effects.append(Refuse(ticket, error))
            self._job = self._waiting.popleft() if self._waiting else None
            advance = next

    def _carry_out(self, request: QuorumRequest[Any], now_ms: int) -> Job:
        if not self._is_open:
            raise ConnectionFailed("the voter is closed")
        match request:
            case DescribeVoter():
                return self.state
            case FormatVoter():
                return (yield from self._format(request, now_ms))
            case VoteRequest() if self._catches_up:
                # Entries that it has acknowledged are gone; with its vote an older log could win.
                raise KafkaStorageError(
                    f"the metadata log of {self._name} was damaged; it does not vote until the log "
                    "is restored from the other voters (if no majority of them can vote, run "
                    "`bradbury metadata recover` with the data directories of all)"
                )
            case VoteRequest():
                yield from self._keep(grant_vote(self._vote, request.candidate))
                return self.state
            case FetchEntries():
                return (yield from self._fetch(request))
            case FetchSnapshot():
                return (yield from self._fetch_snapshot(request))
            case InstallSnapshot():
                return (yield from self._install(request, now_ms))
            case AppendEntries():
                return (yield from self._append(request, now_ms))
        raise TypeError(f"{request!r} is not a request to a voter")

    def _close(self) -> Job:
        if self._is_open:
            self._is_open = False
            try:
                yield self._directory.close
            except KafkaStorageError as error:
                logger.error("not closed cleanly, the next start recovers the log: %s", error)  # noqa: TRY400

    # --- the vote --------------------------------------------------------------------------------

    def _format(self, request: FormatVoter, now_ms: int) -> Job:
        directory, cluster_id = self._directory, request.cluster_id
        if directory.directory.identity.cluster_id not in (None, cluster_id):
            raise InconsistentClusterId(
                f"{directory.path} belongs to cluster {directory.directory.identity.cluster_id}, "
                f"not {cluster_id}"
            )
        yield from self._store(self._vote, request.voters)
        yield partial(directory.assign_cluster, cluster_id)
        if self._log is None:
            self._log = yield partial(directory.create_log, request.voters, now_ms=now_ms)

    def _keep(self, vote: Candidate) -> Job:
        if vote != self._vote:
            yield from self._store(vote, self._formatted_with)

    def _store(self, vote: Candidate, voters: tuple[str, ...]) -> Job:
        """Store the vote durably before it takes effect."""
        yield partial(self._directory.store, vote, voters)
        self._vote, self._formatted_with = vote, voters

    def _check_vote(self, candidate: Candidate) -> None:
        if self._vote != candidate:
            raise FencedLeaderEpoch(f"this voter has voted in epoch {self._vote.epoch}")

    def _formatted(self) -> ReplicatedLog:
        if self._log is None:
            raise InconsistentClusterId(f"{self._directory.path} is not formatted as a voter")
        return self._log

    # --- the log ---------------------------------------------------------------------------------

    def _fetch(self, request: FetchEntries) -> Job:
        self._check_vote(request.candidate)
        if self._log is None:
            return b""
        return (yield partial(self._log.read, request.offset))

    def _fetch_snapshot(self, request: FetchSnapshot) -> Job:
        self._check_vote(request.candidate)
        if self._log is None:
            return b""
        data = yield self._log.read_snapshot
        return data[request.position : request.position + SNAPSHOT_BYTES]

    def _append(self, request: AppendEntries, now_ms: int) -> Job:
        log = self._formatted()
        entries, positions = _entries(request.batches)
        plan = on_append(
            self._vote,
            request.candidate,
            log,
            previous=request.previous,
            entries=entries,
            committed=self._committed,
        )
        yield from self._keep(plan.vote)
        if isinstance(plan, LogMismatch):
            return AppendResponse(is_there=False, offset=plan.try_offset)
        if plan.truncate_to is not None:
            yield partial(log.truncate, plan.truncate_to)
        if plan.first_missing < len(entries):
            missing = memoryview(request.batches)[positions[plan.first_missing] :]
            yield partial(log.append, missing, now_ms=now_ms)
        # Also if nothing was missing: what an earlier request has written may not be flushed.
        yield log.flush
        end_offset = entries[-1].end_offset if entries else request.previous.offset
        self._committed = max(self._committed, min(request.committed, end_offset))
        if self._catches_up and 0 < request.committed <= end_offset:
            # The others have elected this controller without us: all that was ever committed is
            # below the offset that it has committed since.
            yield partial(self._directory.store, self._vote, self._formatted_with, catches_up=False)
            self._catches_up = False
            logger.warning("%s: metadata log restored from the other voters", self._name)
        return AppendResponse(is_there=True, offset=end_offset)

    # --- snapshots -------------------------------------------------------------------------------

    def _install(self, request: InstallSnapshot, now_ms: int) -> Job:
        log, end = self._formatted(), request.end
        plan = on_snapshot(self._vote, request.candidate, log, end=end, committed=self._committed)
        yield from self._keep(plan.vote)
        if not plan.is_newer:
            return InstallResponse(is_there=True, position=request.size)
        data = self._take_piece(end, request.position, request.piece)
        if len(data) < request.size:
            return InstallResponse(is_there=False, position=len(data))
        self._incoming = (NO_SNAPSHOT, bytearray())
        yield partial(log.install, end, bytes(data), keeps_log=plan.keeps_log, now_ms=now_ms)
        self._committed = max(self._committed, end.offset)
        return InstallResponse(is_there=True, position=request.size)

    def _take_piece(self, end: LogEnd, position: int, piece: bytes) -> bytearray:
        """Snapshot received so far, with a piece added; a piece out of order is ignored."""
        incoming, data = self._incoming
        if incoming != end or position == 0:
            data = bytearray()
        if position == len(data):
            data += piece
        self._incoming = (end, data)
        return data


def _entries(batches: bytes) -> tuple[list[MetadataEntry], list[int]]:
    """Batches as entries for the rules, and the start position of each."""
    entries, positions = [], []
    for position, header in walk_batches(batches):
        entries.append(MetadataEntry(header.base_offset, header.next_offset, header.leader_epoch))
        positions.append(position)
    return entries, positions
