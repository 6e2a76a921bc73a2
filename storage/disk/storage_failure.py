"""Disk failures: the exception, and the health flag that all logs of a directory share.

After a failed fsync the kernel may have dropped the dirty pages and report success next time, so
nothing is retried: the first StorageFailure marks the whole log directory offline until restart,
and every later operation on any of its logs raises again.

Not here: what a broker does about it (leave the ISR, report the directory id to the controller).
"""

from __future__ import annotations

import errno
from typing import Any, Final

from ...protocol.errors import KafkaStorageError

UNLIMITED: Final = 2**62
SET_ASIDE_SUFFIX: Final = ".set-aside"
"""Suffix of a directory or file that is set aside because it stands where another file should be.
"""
NO_SPACE: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
SHORTAGES: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EINTR, errno.EAGAIN}
)
"""Error numbers of shortages of the machine, which say nothing about a file or a disk."""
REFUSALS: Final = NO_SPACE | SHORTAGES
"""Error numbers of an intact disk that refuses an operation."""


class StorageFailure(KafkaStorageError):
    """The disk refused a write, fsync, truncation or rename that the log cannot do without.

    A handler may answer it like any KafkaError (KAFKA_STORAGE_ERROR); the actor that owns the
    directory also takes the directory offline.
    """


class DataDirectoryError(Exception):
    """A data directory cannot be used. The message is one line with the cause and the remedy."""


class DirectoryUnusable(DataDirectoryError):
    """A directory's disk fails, or its content is damaged: the node's other directories can be
    used.

    Not for a directory that is in use or belongs to another node: then DataDirectoryError itself.
    """


class DirectoryHealth:
    """Whether a log directory is online; shared by its logs, and set from flush threads too.

    `failure` changes once, from None to the first failure, so no lock is needed.
    """

    __slots__ = ("damaged", "failure", "headroom")

    def __init__(self) -> None:
        self.failure: str | None = None
        self.damaged: dict[Any, None] = {}
        """LogDamage of logs here that are, or may be, partly damaged: see log_damage."""
        self.headroom = UNLIMITED
        """Bytes that clients may append before the free space is measured again; see disk_guard."""

    @property
    def is_online(self) -> bool:
        return self.failure is None

    def fail(self, doing: str, error: OSError) -> KafkaStorageError:
        """Take the directory offline because `doing` failed with `error`; returns the exception to
        raise.
        """
        text = f"{doing}: {error.strerror or error}"
        if self.failure is None:
            self.failure = text
        return StorageFailure(text)

    def check(self) -> None:
        """Raise StorageFailure if the directory is offline."""
        if self.failure is not None:
            raise StorageFailure(self.failure)


def refused_or_failed(health: DirectoryHealth, doing: str, error: OSError) -> KafkaStorageError:
    """Exception to raise when `doing` failed with `error` and changed nothing.

    A full disk, or a machine without descriptors, is not a failed disk: the operation is refused,
    and may be retried. Unlike Kafka, which takes the directory offline.
    """
    if error.errno in NO_SPACE:
        return KafkaStorageError(f"{doing}: no space left")
    if error.errno in SHORTAGES:
        return KafkaStorageError(f"{doing}: {error.strerror or error}")
    return health.fail(doing, error)


class ClosedLog(DirectoryHealth):
    """Health of a closed log, in place of its directory's health.

    Callers that still hold the log get KafkaStorageError, and its missing files do not count as a
    failure of the disk.
    """

    __slots__ = ()

    def __init__(self, directory: str) -> None:
        super().__init__()
        self.failure = f"the log {directory} is closed"

    def fail(self, doing: str, error: OSError) -> KafkaStorageError:
        return KafkaStorageError(f"{self.failure}; {doing}: {error.strerror or error}")

    def check(self) -> None:
        raise KafkaStorageError(self.failure)
