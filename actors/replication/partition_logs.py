"""The log directories of one node: opened and recovered at the start, closed at the end.

What is made and deleted between the two is decided in replication/log_manager.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import uuid4

from ...cluster.broker_config import BrokerConfig
from ...storage.directories.log_directories import LogDirectories
from ...storage.disk.file_system import FileSystem
from ...storage.disk.storage_failure import (
    DataDirectoryError,
    DirectoryUnusable,
    StorageFailure,
)
from ...storage.log_config import LogConfig
from .intact_token import IntactToken

logger = logging.getLogger("bradbury.partitions")


class PartitionLogs:
    """`open` first, `begin` when it is known whose they are, `end` before they are closed."""

    def __init__(
        self,
        paths: Sequence[str],
        file_system: FileSystem,
        config: BrokerConfig,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._paths = tuple(paths)
        self._file_system = file_system
        self._config = config
        self._now_ms = now_ms
        self._directories: LogDirectories | None = None
        self._token: IntactToken | None = None
        self.has_all_data = True
        """Whether all that this node ever acknowledged is here: see intact_token."""

    # --- life ------------------------------------------------------------------------------------

    def open(self) -> None:
        """Lock the directories and recover their logs. Blocking: in a thread, before the loop's.

        Raises:
            DataDirectoryError: one line with cause and remedy.
        """
        directories = LogDirectories.open(
            self._file_system,
            self._paths,
            directory_ids=[str(uuid4()) for _ in self._paths],
            producer_id_expiration_ms=self._config.producer_id_expiration_ms,
            make_lock=threading.Lock,
        )
        self._directories = directories
        for path, reason in directories.unusable.items():
            logger.error("%s is offline until restart: %s", path, reason)
        try:
            said = directories.load_logs(lambda topic: LogConfig(), now_ms=self._now_ms())
        except (StorageFailure, DataDirectoryError) as error:
            self._directories = None
            directories.close(clean=False)
            if isinstance(error, DataDirectoryError):
                raise
            raise DirectoryUnusable(f"no data directory can be read: {error}") from error
        self._token = IntactToken(
            {each.directory_id: str(Path(each.path).absolute()) for each in directories.all}
        )
        self.has_all_data = directories.has_all_data(self._token.is_valid)
        if not self.has_all_data:
            logger.warning(
                "the last stop was neither clean nor the death of a process alone: what this node "
                "leads is given to others that are in sync"
            )
        else:
            self._token.put()  # the clean marks are taken: from here on it says the same
        for sentence in said:
            logger.warning("%s", sentence)
        for directory in directories.online:
            for (topic, partition), log in directory.logs.items():
                if log.recovery.bytes_truncated:
                    logger.warning("%s-%d recovered: %s", topic, partition, log.recovery)

    @property
    def is_open(self) -> bool:
        return self._directories is not None

    @property
    def directories(self) -> LogDirectories:
        assert self._directories is not None, "open() comes first"
        return self._directories

    def end(self) -> LogDirectories | None:
        """The directories, if open, to be closed: from here on their clean marks say it."""
        directories, self._directories = self._directories, None
        if directories is not None and self._token is not None:
            self._token.remove()
        return directories

    def begin(self) -> None:
        """The directories are this node's from now on; the death of its process loses nothing."""
        if self._token is not None:
            self._token.put()

    def on_failure_of_disk(self) -> None:
        """What a disk that failed still has is not known: the next life catches up first."""
        if self._token is not None:
            self._token.remove()
