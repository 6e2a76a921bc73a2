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
    install   a snapshot is there, whole and fsynced, before anything it stands for is dropped
The rules are in cluster/voter.py, the files in voter_log.py.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ..cluster.topic_name import METADATA_TOPIC
from ..cluster.voter import (
    NO_SNAPSHOT,
    DoesNotJoin,
    Entry,
    Install,
    LogEnd,
    Promise,
    on_append,
    on_prepare,
    on_snapshot,
)
from ..protocol.errors import FencedLeaderEpoch, InconsistentClusterId, KafkaStorageError
from ..protocol.record_batch import read_header, read_size
from ..storage.checkpoint_file import write_atomically
from ..storage.file_system import FileSystem, read_file
from ..storage.log_config import LogConfig
from ..storage.log_directory import LogDirectory
from ..storage.partition_log import PartitionLog
from ..storage.storage_failure import refused_or_failed
from .carry_through import carry_through
from .voter_log import VoterLog

logger = logging.getLogger("bradbury.controller")

METADATA_LOG_CONFIG = LogConfig(
    retention_ms=-1, flush_messages=1, max_message_bytes=64 * 1024**2, file_delete_delay_ms=0
)
METADATA_TOPIC_ID = uuid.UUID(int=1)
SNAPSHOT_BYTES = 4 * 1024**2
"""Of a snapshot in one call."""


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
        self._log: VoterLog | None = None
        self._incoming: tuple[LogEnd, bytearray] = (NO_SNAPSHOT, bytearray())
        self._promise = Promise()
        self._formatted_with: tuple[str, ...] = ()
        self._committed = 0

    def open(self) -> None:
        """Lock the directory and recover the log. Blocking: call in a thread.

        Raises:
            DataDirectoryError: locked by a live broker, not writable, damaged, and so on.
        """
        self._directory = LogDirectory.open(
            self._file_system, self._path, directory_id=str(uuid.uuid4())
        )
        logs = self._directory.load_logs(lambda topic: METADATA_LOG_CONFIG, now_ms=self._now_ms())
        try:
            state = json.loads(read_file(self._file_system, self._quorum_state_path()))
        except FileNotFoundError:
            state = {}
        self._formatted_with = tuple(state.pop("voters", ()))
        self._promise = Promise(**state)
        log = logs.get((METADATA_TOPIC, 0))
        if log is not None:
            if not self._formatted_with:
                # Formatted before there could be several: it is the one voter.
                self._formatted_with = (self._directory.directory_id,)
            self._log = self._open_log(log)
            self._committed = self._log.snapshot.offset

    def _open_log(self, log: PartitionLog) -> VoterLog:
        opened = VoterLog(self._file_system, self.directory, log, now_ms=self._now_ms)
        opened.open(self._formatted_with)
        return opened

    @property
    def promise(self) -> Promise:
        """Who may write to this log."""
        return self._promise

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
            -1 if log is None else log.last_epoch,
            self._formatted_with if log is None else log.voters,
            NO_SNAPSHOT if log is None else log.snapshot,
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
                log = await asyncio.to_thread(
                    self.directory.create_log,
                    METADATA_TOPIC,
                    0,
                    METADATA_TOPIC_ID,
                    METADATA_LOG_CONFIG,
                )
                self._log = await asyncio.to_thread(self._open_log, log)

    async def prepare(self, asked: Promise) -> VoterState:
        """Promise the log to the asking controller. Raises FencedLeaderEpoch."""
        return await carry_through(self._prepare(asked))

    async def _prepare(self, asked: Promise) -> VoterState:
        async with self._lock:
            await self._keep(on_prepare(self._promise, asked))
            return await self.state()

    async def _keep(self, promise: Promise) -> None:
        if promise != self._promise:
            await self._store(promise, self._formatted_with)

    async def _store(self, promise: Promise, voters: tuple[str, ...]) -> None:
        data = json.dumps({**asdict(promise), "voters": voters}).encode()
        path = self._quorum_state_path()
        try:
            await asyncio.to_thread(write_atomically, self._file_system, path, data)
        except OSError as error:
            raise refused_or_failed(self.directory.health, f"writing {path}", error) from error
        self._promise, self._formatted_with = promise, voters

    async def fetch(self, asked: Promise, offset: int) -> bytes:
        """Some record batches from `offset` on; empty at the end of the log.

        Raises:
            FencedLeaderEpoch: the log is not promised to the asking controller (any more).
            OffsetOutOfRange: a snapshot stands for what is there.
        """
        async with self._lock:
            self._check_promised(asked)
            log = self._log
            return b"" if log is None else await asyncio.to_thread(log.read, offset)

    async def fetch_snapshot(self, asked: Promise, position: int) -> bytes:
        """The snapshot's bytes from `position` on, SNAPSHOT_BYTES at most; empty at its end.

        Raises FencedLeaderEpoch as `fetch`; StorageFailure.
        """
        async with self._lock:
            self._check_promised(asked)
            log = self._log
            data = b"" if log is None else await asyncio.to_thread(log.read_snapshot)
            return data[position : position + SNAPSHOT_BYTES]

    def _check_promised(self, asked: Promise) -> None:
        if self._promise != asked:
            raise FencedLeaderEpoch(f"epoch {self._promise.epoch} is promised")

    async def install(
        self, asked: Promise, end: LogEnd, position: int, piece: bytes, size: int
    ) -> InstallAnswer:
        """Take a piece of the snapshot that stands for everything before `end`.

        The last piece brings it to the disk, and drops from the log what it stands for.

        Args:
            asked: the controller that brings it.
            end: see cluster/metadata_snapshot.
            position: of the piece in the whole.
            piece: its bytes.
            size: of the whole.

        Raises:
            FencedLeaderEpoch: a newer controller holds the promise.
            CommittedEntryLost: it contradicts what is committed; nothing was changed.
            CorruptMessage: the pieces are not a snapshot; nothing was changed.
            KafkaStorageError: the disk.
        """
        return await carry_through(self._install(asked, end, position, piece, size))

    async def _install(
        self, asked: Promise, end: LogEnd, position: int, piece: bytes, size: int
    ) -> InstallAnswer:
        async with self._lock:
            log = self._formatted()
            plan = on_snapshot(self._promise, asked, log, end=end, committed=self._committed)
            await self._keep(plan.promise)
            if not plan.is_newer:
                return InstallAnswer(is_there=True, position=size)
            data = self._take_piece(end, position, piece)
            if len(data) < size:
                return InstallAnswer(is_there=False, position=len(data))
            self._incoming = (NO_SNAPSHOT, bytearray())
            await self._carry_out(plan, log, end, bytes(data))
            return InstallAnswer(is_there=True, position=size)

    def _take_piece(self, end: LogEnd, position: int, piece: bytes) -> bytearray:
        """What has come of the snapshot so far; a piece out of its turn counts nothing."""
        incoming, data = self._incoming
        if incoming != end or position == 0:
            data = bytearray()
        if position == len(data):
            data += piece
        self._incoming = (end, data)
        return data

    async def _carry_out(self, plan: Install, log: VoterLog, end: LogEnd, data: bytes) -> None:
        await asyncio.to_thread(partial(log.install, end, data, keeps_log=plan.keeps_log))
        self._committed = max(self._committed, end.offset)

    def _formatted(self) -> VoterLog:
        if self._log is None:
            raise InconsistentClusterId(f"{self._path} is not formatted as a voter")
        return self._log

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
            log = self._formatted()
            entries, positions = _entries(batches)
            plan = on_append(
                self._promise,
                asked,
                log,
                previous=previous,
                entries=entries,
                committed=self._committed,
            )
            await self._keep(plan.promise)
            if isinstance(plan, DoesNotJoin):
                return AppendAnswer(is_there=False, offset=plan.try_offset)
            missing = b""
            if plan.first_missing < len(entries):
                missing = batches[positions[plan.first_missing] :]
            await asyncio.to_thread(_append_to, log, plan.truncate_to, missing)
            end_offset = entries[-1].end_offset if entries else previous.offset
            self._committed = max(self._committed, min(committed, end_offset))
            return AppendAnswer(is_there=True, offset=end_offset)


def _append_to(log: VoterLog, truncate_to: int | None, missing: bytes) -> None:
    if truncate_to is not None:
        log.truncate(truncate_to)
    if missing:
        log.append(memoryview(missing))
    # Also if nothing was missing: what an earlier call has written may not be flushed.
    log.flush()


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
