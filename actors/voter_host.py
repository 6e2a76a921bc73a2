"""A broker's copy of the metadata log, and the promise that says which controller may write it.

On disk, below `<data dir>/metadata`: a log directory like any other (lock, meta.properties) with
the log `__cluster_metadata-0`, whose leader epoch is the controller epoch, and beside its segments
`quorum-state` (JSON: promised epoch and owner), replaced atomically.

Order, and why:
    prepare   the promise is on the disk before it is answered: after a crash this voter still
              refuses the older controller it has promised to refuse
    append    the promise first, then the records, then fsync, then the answer: whatever a majority
              answered survives the death of every process and machine
The rules are in cluster/voter.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from ..cluster.topic_name import METADATA_TOPIC
from ..cluster.voter import Promise, on_append, on_prepare
from ..protocol.errors import InconsistentClusterId
from ..storage.checkpoint_file import write_atomically
from ..storage.file_system import FileSystem
from ..storage.log_config import LogConfig
from ..storage.log_directory import LogDirectory
from ..storage.partition_log import PartitionLog

METADATA_LOG_CONFIG = LogConfig(retention_ms=-1, flush_messages=1, max_message_bytes=64 * 1024**2)
METADATA_TOPIC_ID = uuid.UUID(int=1)


class VoterState(NamedTuple):
    """What a voter tells a starting controller. cluster_id None: an unformatted directory."""

    name: str
    directory_id: str
    cluster_id: str | None
    is_voter: bool
    promise: Promise
    log_end_offset: int
    last_epoch: int


class VoterHost:
    """Not thread-safe; the methods run on the node's loop, fsync in threads."""

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
            text = Path(self._quorum_state_path()).read_text()
            self._promise = Promise(**json.loads(text))
        except FileNotFoundError:
            self._promise = Promise()

    @property
    def is_open(self) -> bool:
        return self._directory is not None

    @property
    def directory(self) -> LogDirectory:
        assert self._directory is not None, "open() comes first"
        return self._directory

    def close(self) -> None:
        if self._directory is not None:
            self._directory.close(clean=True)
            self._directory = None

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
            -1 if log is None else log.epochs.latest_epoch,
        )

    async def format(self, cluster_id: str) -> None:
        """Make this empty directory a voter of a new cluster. Repeating it changes nothing.

        Raises:
            InconsistentClusterId: it belongs to a cluster already.
        """
        async with self._lock:
            if self.directory.cluster_id not in (None, cluster_id):
                raise InconsistentClusterId(
                    f"{self._path} belongs to cluster {self.directory.cluster_id}"
                )
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
        async with self._lock:
            await self._keep(on_prepare(self._promise, asked))
            return await self.state()

    async def _keep(self, promise: Promise) -> None:
        if promise != self._promise:
            data = json.dumps(asdict(promise)).encode()
            await asyncio.to_thread(
                write_atomically, self._file_system, self._quorum_state_path(), data
            )
            self._promise = promise

    async def fetch(self) -> bytes:
        """The whole log, as record batches."""
        log = self._log
        if log is None:
            return b""
        parts = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            piece = log.read(
                offset, max_bytes=16 * 1024**2, up_to=log.log_end_offset, min_one_batch=True
            )
            assert piece.file is not None
            parts.append(
                await asyncio.to_thread(os.pread, piece.file.fileno(), piece.size, piece.position)
            )
            offset = piece.next_offset
        return b"".join(parts)

    async def append(self, asked: Promise, previous_end_offset: int, batch: bytes) -> int:
        """Append one stamped batch; returns the log end offset, when it is on the disk.

        Raises:
            FencedLeaderEpoch: a newer controller holds the promise.
            InvalidRequest: the batch does not join on.
        """
        async with self._lock:
            log = self._log
            if log is None:
                raise InconsistentClusterId(f"{self._path} is not formatted as a voter")
            promise = on_append(
                self._promise,
                asked,
                log_end_offset=log.log_end_offset,
                previous_end_offset=previous_end_offset,
            )
            await self._keep(promise)
            log.append_as_follower(memoryview(batch), now_ms=self._now_ms())
            work = log.begin_flush()
            if work is not None:
                await asyncio.to_thread(work.run)
                log.complete_flush(work)
            return log.log_end_offset
