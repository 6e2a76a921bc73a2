"""The controller's copy of the metadata log, and the tasks that bring it to the voters' disks.

lead() takes the next controller epoch: a majority's promises, the best of their logs. append() adds
one batch and returns when a majority has it fsynced. One task per voter sends what that voter has
not: a slow, new or returning one is caught up beside the others and holds nobody up.

It ends for good when a voter has promised a newer epoch, or when no majority has answered for
COMMIT_SECONDS: then what was appended is in doubt, and only a new epoch can find out.

compact() puts a snapshot in the place of what is committed. It is brought to each voter, one after
the other, so that they drop what it stands for; and one that lacks what the snapshot stands for
gets it before anything else.

The rules are in cluster/metadata_quorum and cluster/voter. Snapshot and log are held in memory.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple

from ..cluster.metadata_image import MetadataImage
from ..cluster.metadata_quorum import MetadataQuorum
from ..cluster.metadata_records import MetadataRecord, decode_metadata_record
from ..cluster.metadata_snapshot import decode_snapshot
from ..cluster.voter import CommittedEntryLost, LogEnd, Promise
from ..controller.voter_requests import (
    AppendEntries,
    FetchEntries,
    FetchSnapshot,
    InstallSnapshot,
    Prepare,
    VoterState,
)
from ..protocol.errors import ConnectionFailed, FencedLeaderEpoch, KafkaError
from ..protocol.record_batch import read_header, read_size
from ..protocol.records import iterate_records
from .carry_through import within
from .voter_host import Voter

logger = logging.getLogger("bradbury.controller")

# A voter whose node is gone must not keep a controller from serving the others.
ANSWER_SECONDS = 3.0
COMMIT_SECONDS = 10.0
RETRY_SECONDS = 0.2
FIND_SECONDS = 1.0
MOST_RETRY_SECONDS = 1.0
MOST_BYTES = 1024**2
"""Of one append or piece of a snapshot; a larger batch goes alone."""


FindVoter = Callable[[str], Awaitable[Voter | None]]
"""By its directory id; None if it is not there now."""


class AdoptedLog(NamedTuple):
    """What a controller begins with: a snapshot (empty: none), and the batches behind it."""

    snapshot: bytes
    batches: list[bytes]

    def image(self) -> MetadataImage:
        """What both say together. Some 20 us for each record: for large clusters in a thread."""
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
    """A newer controller holds the voters' promise, or no majority answers: begin anew or end."""


class MetadataLog:
    """One attempt: lead() once, append() one at a time, close()."""

    def __init__(
        self,
        me: Promise,
        voters: tuple[str, ...],
        find_voter: FindVoter,
        *,
        on_ended: Callable[[str], None],
    ) -> None:
        self._me = me
        self._find_voter = find_voter
        self._on_ended = on_ended
        self._quorum = MetadataQuorum(me, voters)
        self._bases: list[int] = []
        self._batches: list[bytes] = []
        self._snapshot = b""
        self._installing = ""
        self._news = asyncio.Event()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._gone: list[asyncio.Task[None]] = []
        self._end_reason: str | None = None

    @property
    def committed(self) -> int:
        """Everything before this offset is on a majority's disks."""
        return self._quorum.committed

    @property
    def size_in_bytes(self) -> int:
        """Of the log behind the snapshot."""
        return sum(len(batch) for batch in self._batches)

    @property
    def acknowledged(self) -> Mapping[str, int]:
        """Up to where each voter is known to have this log."""
        return self._quorum.acknowledged

    # --- becoming the leader ---------------------------------------------------------------------

    async def lead(self, holders: Mapping[str, Voter]) -> AdoptedLog:
        """Take the epoch with these voters; returns the adopted log.

        Raises:
            Superseded: one of them has promised a newer epoch.
            ConnectionFailed: too few answered.
        """
        answers = await asyncio.gather(
            *(within(ANSWER_SECONDS, voter.ask(Prepare(self._me))) for voter in holders.values()),
            return_exceptions=True,
        )
        starts: dict[str, LogEnd] = {}
        for name, answer in zip(holders, answers, strict=True):
            if isinstance(answer, FencedLeaderEpoch):
                raise Superseded(str(answer))
            if isinstance(answer, VoterState):
                end = LogEnd(answer.last_epoch, answer.log_end_offset)
                self._quorum.on_promise(name, end, answer.voters)
                self._quorum.note_snapshot(name, answer.snapshot.offset)
                starts[name] = answer.snapshot
        if not self._quorum.has_promises:
            raise ConnectionFailed("too few voters have promised their log")
        best = self._quorum.best_log()
        try:
            await self._adopt(holders[best], starts[best])
        except FencedLeaderEpoch as error:
            raise Superseded(str(error)) from None
        for name in sorted(self._quorum.voters):
            self._serve(name, holders.get(name))
        return AdoptedLog(self._snapshot, list(self._batches))

    async def _adopt(self, voter: Voter, start: LogEnd) -> None:
        snapshot = bytearray()
        while start.offset and (piece := await voter.ask(FetchSnapshot(self._me, len(snapshot)))):
            snapshot += piece
        self._snapshot = bytes(snapshot)
        epochs: list[tuple[int, int]] = []
        end = start
        while piece := await voter.ask(FetchEntries(self._me, end.offset)):
            view, position = memoryview(piece), 0
            while position < len(view):
                _, size = read_size(view, position)
                batch = view[position : position + size]
                header = read_header(batch)
                position += size
                if header.base_offset < start.offset:
                    continue  # a part of a file is read whole
                if not epochs or header.leader_epoch != end.epoch:
                    epochs.append((header.leader_epoch, header.base_offset))
                end = LogEnd(header.leader_epoch, header.next_offset)
                self._bases.append(header.base_offset)
                self._batches.append(bytes(batch))
        self._quorum.adopt(epochs, end, start=start)

    # --- leading ---------------------------------------------------------------------------------

    async def append(
        self, batch: bytes, count: int, *, voters: Collection[str] | None = None
    ) -> None:
        """Add a batch of `count` records, stamped; returns when it is committed.

        `voters`: those that it names; they count from now on. One more or one less than before.

        Raises:
            Superseded: it is over; whether the batch is committed the next controller will see.
        """
        if self._end_reason is not None:
            raise Superseded(self._end_reason)
        before = self._quorum.voters
        if voters is not None:
            self._quorum.change_voters(voters)
            for name in self._quorum.voters - before:
                self.catch_up(name)
        self._bases.append(self._quorum.end.offset)
        self._batches.append(batch)
        end_offset = self._quorum.append(count)
        committed = asyncio.get_running_loop().create_future()
        self._waiting.append((end_offset, committed))
        self._tell_voters()
        try:
            await within(COMMIT_SECONDS, committed)
        except TimeoutError:
            self._end(f"no majority of the voters has answered for {COMMIT_SECONDS:g} s")
            raise Superseded(self._end_reason) from None
        # Until then a voter that goes is told of it, too.
        for name in before - self._quorum.voters:
            self.forget(name)

    def catch_up(self, name: str) -> None:
        """Bring the log to one that does not vote (yet), too."""
        if name not in self._tasks:
            self._serve(name, None)

    def forget(self, name: str) -> None:
        """Bring nothing more to one that does not vote."""
        task = self._tasks.pop(name, None)
        if task is not None and name not in self._quorum.voters:
            task.cancel()
            self._gone.append(task)

    def _serve(self, name: str, voter: Voter | None) -> None:
        self._tasks[name] = asyncio.create_task(self._replicate(name, voter))

    def compact(self, end: LogEnd, snapshot: bytes) -> None:
        """Let the snapshot stand for what is before `end`, all of which is committed."""
        self._quorum.compact(end)
        self._snapshot = snapshot
        count = bisect_left(self._bases, end.offset)
        del self._bases[:count], self._batches[:count]
        self._tell_voters()

    def _tell_voters(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _replicate(self, name: str, voter: Voter | None) -> None:
        """Bring the log to one voter, for ever."""
        quorum = self._quorum
        patience = RETRY_SECONDS
        while self._end_reason is None:
            news = self._news
            if not self._has_work_for(name):
                await news.wait()
                continue
            try:
                if voter is None:
                    voter = await self._find_voter(name)
                if voter is None:
                    await asyncio.sleep(FIND_SECONDS)
                    continue
                if quorum.needs_snapshot(name) or self._may_install(name):
                    await self._install(name, voter)
                    is_there = True
                else:
                    is_there = await self._send(name, voter)
                if is_there:
                    patience = RETRY_SECONDS
                    continue
                # A step back. Logs join after a few; one that never joins must not be asked hot.
                pause, patience = patience - RETRY_SECONDS, _longer(patience)
                await asyncio.sleep(pause)
            except FencedLeaderEpoch as error:
                self._end(f"a newer controller took over: {error}")
            except (KafkaError, ConnectionFailed, OSError, TimeoutError) as error:
                logger.debug("voter %s does not take the log: %s", name, error)
                voter = None  # its process may be another one now
                await asyncio.sleep(patience)
                patience = _longer(patience)
            except CommittedEntryLost as error:
                self._end(f"voter {name} has another log than was committed: {error}")
            except Exception as error:
                logger.exception("bringing the metadata log to voter %s", name)
                self._end(f"a fault in bringing the log to voter {name}: {error!r}")

    def _has_work_for(self, name: str) -> bool:
        quorum = self._quorum
        return quorum.acknowledged.get(name) != quorum.end.offset or self._may_install(name)

    def _may_install(self, name: str) -> bool:
        """One voter at a time: the others are needed for what is to be committed meanwhile."""
        return self._quorum.lacks_snapshot(name) and self._installing in ("", name)

    async def _install(self, name: str, voter: Voter) -> None:
        """Bring it the snapshot, piece by piece."""
        end, data = self._quorum.start, self._snapshot
        self._installing = name
        try:
            position = 0
            while True:
                piece = data[position : position + MOST_BYTES]
                answer = await within(
                    ANSWER_SECONDS,
                    voter.ask(InstallSnapshot(self._me, end, position, piece, len(data))),
                )
                if answer.is_there:
                    break
                if answer.position <= position:
                    raise ConnectionFailed("another controller brings it a snapshot, too")
                position = answer.position
        finally:
            if self._installing == name:
                self._installing = ""
                self._tell_voters()
        if self._quorum.on_snapshot(name, end.offset):
            self._release_committed()

    async def _send(self, name: str, voter: Voter) -> bool:
        """Some of what it has not; False if its log is another one, and we go back a step."""
        quorum = self._quorum
        start, first = quorum.next_offset(name), len(self._bases)
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
        answer = await within(
            ANSWER_SECONDS,
            voter.ask(
                AppendEntries(self._me, quorum.before(start), b"".join(batches), quorum.committed)
            ),
        )
        if not answer.is_there:
            quorum.on_mismatch(name, answer.offset)
            return False
        if quorum.on_acknowledged(name, answer.offset):
            self._release_committed()
        return True

    def _release_committed(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._quorum.committed:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)

    def _end(self, reason: str) -> None:
        if self._end_reason is not None:
            return
        self._fail_waiting(reason)
        self._on_ended(reason)

    def _fail_waiting(self, reason: str) -> None:
        self._end_reason = reason
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(Superseded(reason))
                future.exception()  # retrieved, in case nobody waits any more
        self._tell_voters()

    async def close(self) -> None:
        """Returns when nothing of it runs any more; what waits is refused."""
        self._fail_waiting(self._end_reason or "it is closed")
        tasks = [*self._tasks.values(), *self._gone]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _longer(seconds: float) -> float:
    return min(2 * seconds, MOST_RETRY_SECONDS)
