"""The files of one voter: its vote, who voted at first, and its copy of the log.

On disk, below `<data dir>/metadata`: a log directory like any other (lock, meta.properties) with
the log `__cluster_metadata-0`, whose leader epoch is the controller epoch, and next to its segments
`quorum-state` (JSON: epoch and owner that it voted for, the voters' directory ids), replaced
atomically.

All of it waits for the disk: call it in a thread, one call at a time. In which order things are
written is decided in metadata_voter.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict
from typing import NamedTuple

from ..cluster.quorum.voter import Candidate
from ..cluster.topic_name import METADATA_TOPIC
from ..storage.directories.log_directory import LogDirectory
from ..storage.disk.checkpoint_file import write_atomically
from ..storage.disk.file_system import FileSystem, read_file
from ..storage.disk.storage_failure import refused_or_failed
from ..storage.log_config import LogConfig
from .replicated_log import ReplicatedLog

METADATA_LOG_CONFIG = LogConfig(
    retention_ms=-1, flush_messages=1, max_message_bytes=64 * 1024**2, file_delete_delay_ms=0
)
METADATA_TOPIC_ID = uuid.UUID(int=1)


class StoredVoter(NamedTuple):
    """What a start finds on the disk. No log: the directory is no voter's (yet)."""

    vote: Candidate
    formatted_with: tuple[str, ...]
    """Who voted when this one joined the cluster."""
    log: ReplicatedLog | None


class VoterDirectory:
    """See `open`."""

    def __init__(self, data_dir: str, file_system: FileSystem) -> None:
        self.path = f"{data_dir.rstrip('/')}/metadata"
        self._file_system = file_system
        self._directory: LogDirectory | None = None

    def open(self, *, directory_id: str, now_ms: int) -> StoredVoter:
        """Lock the directory and recover the log. `directory_id`: its identity if it is new.

        Raises:
            DataDirectoryError: locked by a live broker, not writable, damaged, and so on.
        """
        directory = LogDirectory.open(self._file_system, self.path, directory_id=directory_id)
        self._directory = directory
        logs = directory.load_logs(lambda topic: METADATA_LOG_CONFIG, now_ms=now_ms)
        try:
            state = json.loads(read_file(self._file_system, self._quorum_state_path))
        except FileNotFoundError:
            state = {}
        formatted_with = tuple(state.pop("voters", ()))
        vote = Candidate(**state)
        log = logs.get((METADATA_TOPIC, 0))
        if log is None:
            return StoredVoter(vote, formatted_with, None)
        # Formatted before there could be several: it is the one voter.
        formatted_with = formatted_with or (directory.identity.directory_id,)
        opened = ReplicatedLog(self._file_system, directory, log)
        opened.open(formatted_with, now_ms=now_ms)
        return StoredVoter(vote, formatted_with, opened)

    @property
    def directory(self) -> LogDirectory:
        assert self._directory is not None, "open() comes first"
        return self._directory

    @property
    def _quorum_state_path(self) -> str:
        return f"{self.path}/quorum-state"

    def store(self, vote: Candidate, voters: tuple[str, ...]) -> None:
        """Bring them to the disk, both or neither.

        Raises:
            KafkaStorageError: the disk is full; nothing has changed.
            StorageFailure: the disk failed.
        """
        data = json.dumps({**asdict(vote), "voters": voters}).encode()
        path = self._quorum_state_path
        try:
            write_atomically(self._file_system, path, data)
        except OSError as error:
            raise refused_or_failed(self.directory.health, f"writing {path}", error) from error

    def assign_cluster(self, cluster_id: str) -> None:
        """Note on the disk whose directory it is. Repeating it changes nothing."""
        self.directory.assign_identity(cluster_id=cluster_id)

    def create_log(self, formatted_with: tuple[str, ...], *, now_ms: int) -> ReplicatedLog:
        """An empty one."""
        log = self.directory.create_log(METADATA_TOPIC, 0, METADATA_TOPIC_ID, METADATA_LOG_CONFIG)
        made = ReplicatedLog(self._file_system, self.directory, log)
        made.open(formatted_with, now_ms=now_ms)
        return made

    def close(self) -> None:
        """Flush everything, leave the clean mark, unlock. Raises KafkaStorageError."""
        self.directory.close(clean=True)
