"""Port of handlers to a node's log directories. See actors/replication/hosted_log_dirs."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class LogInDir(NamedTuple):
    """A log in a log directory; offset_lag: offsets that a future log has yet to copy."""

    topic: str
    partition: int
    size: int
    offset_lag: int
    is_future: bool
    """Whether the log is to replace the partition's log in another directory."""


class LogDirState(NamedTuple):
    """State of one log directory; an offline one has no logs, and sizes of -1."""

    path: str
    is_online: bool
    logs: tuple[LogInDir, ...]
    total_bytes: int
    usable_bytes: int


class LogDirs(Protocol):
    """The log directories of this node."""

    async def describe(self) -> list[LogDirState]: ...

    async def move(self, topic: str, partition: int, path: str) -> None:
        """Begin to move a replica to the directory `path`; it is served during the move.

        A move to its current directory cancels a move in progress.

        Raises:
            LogDirNotFound, KafkaStorageError: there is no such directory; it is offline.
            ReplicaNotAvailable: there is no such replica here.
            InvalidTopicException: the name is too long for the copy's directory.
        """
        ...
