"""A broker's copy of the metadata log, and the promise that says which controller may write it.

On disk, below `<data dir>/metadata`: a log directory like any other (lock, meta.properties) with
the log `__cluster_metadata-0`, whose leader epoch is the controller epoch, and beside its segments
`quorum-state` (JSON: promised epoch and owner, the voters' directory ids), replaced atomically.

Order, and why:
    prepare   the promise is on the disk before it is answered: after a crash this voter still
              refuses the older controller it has promised to refuse
    append    the promise first, then what contradicts is cut, then the records, then fsync, then
              the answer: whatever a majority answered survives every process and machine
    format    the voters first, then the cluster id, then the log: who has a log knows the voters
The rules are in cluster/voter.py.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import uuid
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ..cluster.topic_name import METADATA_TOPIC
from ..cluster.voter import DoesNotJoin, Entry, LogEnd, Promise, on_append, on_prepare
from ..protocol.errors import FencedLeaderEpoch, InconsistentClusterId, KafkaStorageError
from ..protocol.record_batch import read_header, read_size
from ..storage.checkpoint_file import write_atomically
from ..storage.file_system import FileSystem
from ..storage.log_config import LogConfig
from ..storage.log_directory import LogDirectory
from ..storage.partition_log import PartitionLog
from .carry_through import carry_through

logger = logging.getLogger("bradbury.controller")

METADATA_LOG_CONFIG = LogConfig(retention_ms=-1, flush_messages=1, max_message_bytes=64 * 1024**2)
METADATA_TOPIC_ID = uuid.UUID(int=1)
FETCH_BYTES = 16 * 1024**2


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
    """Directory ids, as this one was formatted; none if it never was."""


class AppendAnswer(NamedTuple):
    """Of an append: the log has all of it, up to `offset`; or it differs, and try from `offset`."""

    is_there: bool
    offset: int


class _LogView:
    """A log as cluster/voter sees it."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    def epoch_at(self, offset: int) -> int:
        return self._log.epochs.epoch_at(offset)

    def epoch_start(self, offset: int) -> int:
        starts = [start for _, start in self._log.epochs.entries if start <= offset]
        return max(starts, default=0)


class VoterHost:
    """Not thread-safe; the methods run on the node's loop, what waits for the disk in threads.

    A call whose caller has gone away is carried through: the next one finds it done or not begun.
    """

    def __init__(
        self, name: str, data_dir: str, file_system: FileSystem, *, now_ms: Callable[[], int]
    ) -> None:
        self._name = name
        self._now_ms = now_ms
        self._path = str(Path(data_dir) / "metadata")
        self._file_system = file_system
        self._lock = asyncio.Lock()
        self._directory: LogDirectory | None = None
        self._log: PartitionLog | None = None
        self._promise = Promise()
        self._voters: tuple[str, ...] = ()
        self._committed = 0

    def open(self) -> None:
        """Lock the directory and recover the log. Blocking: call in a thread.

        Raises:
            DataDirectoryError: locked by a live broker, not writable, and so on.
        """
        self._directory = LogDirectory.open(
            self._file_system, self._path, directory_id=str(uuid.uuid4())
        )
        logs = self._directory.load_logs(lambda topic: METADATA_LOG_CONFIG, now_ms=self._now_ms())
        self._log = logs.get((METADATA_TOPIC, 0))
        try:
            state = json.loads(Path(self._quorum_state_path()).read_text())
        except FileNotFoundError:
            state = {}
        self._voters = tuple(state.pop("voters", ()))
        self._promise = Promise(**state)
        if self._log is not None and not self._voters:
            # Formatted before there could be several: it is the one voter.
            self._voters = (self._directory.directory_id,)

    @property
    def is_open(self) -> bool:
        return self._directory is not None

    @property
    def directory(self) -> LogDirectory:
        assert self._directory is not None, "open() comes first"
        return self._directory

    async def close(self) -> None:
        """Returns when nothing of it runs any more, and the directory is unlocked."""
        async with self._lock:
            directory, self._directory = self._directory, None
            if directory is not None:
                try:
                    await asyncio.to_thread(partial(directory.close, clean=True))
                except KafkaStorageError as error:
                    logger.error("not closed cleanly, so the next start recovers it: %s", error)  # noqa: TRY400

    def _quorum_state_path(self) -> str:
        return str(Path(self._path) / "quorum-state")

    async def state(self) -> VoterState:
        log = self._log
        return VoterState(
            self._name,
            self.directory.directory_id,
            self.directory.cluster_id,
            log is not None,
            self._promise,
            0 if log is None else log.log_end_offset,
            -1 if log is None else _last_epoch(log),
            self._voters,
        )

    async def format(self, cluster_id: str, voters: tuple[str, ...]) -> None:
        """Make this empty directory a voter of a new cluster. Repeating it changes nothing.

        Raises:
            InconsistentClusterId: it belongs to a cluster already.
        """
        await carry_through(self._format(cluster_id, voters))

    async def _format(self, cluster_id: str, voters: tuple[str, ...]) -> None:
        async with self._lock:
            if self.directory.cluster_id not in (None, cluster_id):
                raise InconsistentClusterId(
                    f"{self._path} belongs to cluster {self.directory.cluster_id}"
                )
            await self._store(self._promise, voters)
            await asyncio.to_thread(self.directory.assign_identity, cluster_id=cluster_id)
            if self._log is None:
                self._log = await asyncio.to_thread(
                    self.directory.create_log,
                    METADATA_TOPIC,
                    0,
                    METADATA_TOPIC_ID,
                    METADATA_LOG_CONFIG,
                )

    async def prepare(self, asked: Promise) -> VoterState:
        """Promise the log to the asking controller. Raises FencedLeaderEpoch."""
        return await carry_through(self._prepare(asked))

    async def _prepare(self, asked: Promise) -> VoterState:
        async with self._lock:
            await self._keep(on_prepare(self._promise, asked))
            return await self.state()

    async def _keep(self, promise: Promise) -> None:
        if promise != self._promise:
            await self._store(promise, self._voters)

    async def _store(self, promise: Promise, voters: tuple[str, ...]) -> None:
        data = json.dumps({**asdict(promise), "voters": voters}).encode()
        await asyncio.to_thread(
            write_atomically, self._file_system, self._quorum_state_path(), data
        )
        self._promise, self._voters = promise, voters

    async def fetch(self, asked: Promise, offset: int) -> bytes:
        """Record batches from `offset` on, FETCH_BYTES of them; empty at the end of the log.

        Raises:
            FencedLeaderEpoch: the log is not promised to the asking controller (any more).
        """
        async with self._lock:
            if self._promise != asked:
                raise FencedLeaderEpoch(f"epoch {self._promise.epoch} is promised")
            log = self._log
            if log is None or offset >= log.log_end_offset:
                return b""
            piece = log.read(
                offset, max_bytes=FETCH_BYTES, up_to=log.log_end_offset, min_one_batch=True
            )
            assert piece.file is not None
            return await asyncio.to_thread(
                os.pread, piece.file.fileno(), piece.size, piece.position
            )

    async def append(
        self, asked: Promise, previous: LogEnd, batches: bytes, committed: int
    ) -> AppendAnswer:
        """Append stamped batches that follow `previous`; answers when they are on the disk.

        Raises:
            FencedLeaderEpoch: a newer controller holds the promise.
            CommittedEntryLost: they contradict what is committed; nothing was changed.
        """
        return await carry_through(self._append(asked, previous, batches, committed))

    async def _append(
        self, asked: Promise, previous: LogEnd, batches: bytes, committed: int
    ) -> AppendAnswer:
        async with self._lock:
            log = self._log
            if log is None:
                raise InconsistentClusterId(f"{self._path} is not formatted as a voter")
            entries, positions = _entries(batches)
            plan = on_append(
                self._promise,
                asked,
                _LogView(log),
                previous=previous,
                entries=entries,
                committed=self._committed,
            )
            await self._keep(plan.promise)
            if isinstance(plan, DoesNotJoin):
                return AppendAnswer(is_there=False, offset=plan.try_offset)
            if plan.truncate_to is not None:
                await asyncio.to_thread(
                    self.directory.truncate_log, METADATA_TOPIC, 0, plan.truncate_to
                )
            if plan.first_missing < len(entries):
                missing = memoryview(batches)[positions[plan.first_missing] :]
                log.append_as_follower(missing, now_ms=self._now_ms())
            # Also if nothing was missing: what an earlier call has written may not be flushed.
            work = log.begin_flush()
            if work is not None:
                await asyncio.to_thread(work.run)
                log.complete_flush(work)
            end_offset = entries[-1].end_offset if entries else previous.offset
            self._committed = max(self._committed, min(committed, end_offset))
            return AppendAnswer(is_there=True, offset=end_offset)


def _last_epoch(log: PartitionLog) -> int:
    """Of the last entry: an epoch may have begun in a log that has no entry of it."""
    return log.epochs.epoch_at(log.log_end_offset - 1) if log.log_end_offset else -1


def _entries(batches: bytes) -> tuple[list[Entry], list[int]]:
    """The batches as the rules see them, and where each begins."""
    entries, positions, position = [], [], 0
    while position < len(batches):
        _, size = read_size(batches, position)
        header = read_header(memoryview(batches)[position : position + size])
        entries.append(Entry(header.base_offset, header.next_offset, header.leader_epoch))
        positions.append(position)
        position += size
    return entries, positions
