"""Life cycle of one node's log directories, from opening to closing.

It decides whether they hold all that the node has ever acknowledged (has_all_data, which a node
reports to the controller). They do after a clean stop, and after the death of only the process, as
the page cache survives that. A token in memory proves that the machine has not gone down since: see
actors/replication/intact_token. The order in which it is put and removed keeps records safe:

    put       when the logs are loaded, if nothing is missing: the clean marks are removed by then
    put       else only when the node is registered: until the controller knows of the loss, each
              process has to report it
    removed   as soon as a log is found damaged: it is truncated to its intact part, and if the
              process died before it has reported the loss to the controller, the next one would
              find nothing wrong
    removed   when a disk fails: its remaining records are unknown. This process does not put it
              again.
    removed   after a clean stop, as its marks suffice from then on; not before they are written, as
              a process may be killed while it stops
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from ...storage.directories.directory_checkpoints import MakeLock
from ...storage.directories.log_directories import LogDirectories
from ...storage.disk.file_system import FileSystem
from ...storage.disk.storage_failure import DataDirectoryError, DirectoryUnusable, StorageFailure
from ...storage.log_config import LogConfig

logger = logging.getLogger(__name__)


class IntactToken(Protocol):
    """Token that proves that the page cache of the last process still exists."""

    def is_valid(self, directory_id: str) -> bool: ...
    def put(self) -> None: ...
    def remove(self) -> None: ...


class DirectoryLifecycle:
    """Life cycle: `open`, `begin` when the node is registered, `end` before they are closed,
    `on_closed`.
    """

    def __init__(
        self,
        paths: Sequence[str],
        file_system: FileSystem,
        *,
        token_of: Callable[[LogDirectories], IntactToken],
        new_directory_id: Callable[[], str],
        producer_id_expiration_ms: int,
        make_lock: MakeLock,
    ) -> None:
        """`new_directory_id`, `make_lock`: see LogDirectories.open."""
        self._paths = tuple(paths)
        self._file_system = file_system
        self._token_of = token_of
        self._new_directory_id = new_directory_id
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._make_lock = make_lock
        self._directories: LogDirectories | None = None
        self._ended: LogDirectories | None = None
        self._token: IntactToken | None = None
        self.has_all_data = True
        """Whether everything that this node ever acknowledged was there when the directories were
        opened.
        """

    def open(self, wall_ms: int) -> None:
        """Lock the directories and recover their logs. Blocking: in a thread, before anything else.

        Raises:
            DataDirectoryError: one line with cause and remedy.
        """
        directories = LogDirectories.open(
            self._file_system,
            self._paths,
            directory_ids=[self._new_directory_id() for _ in self._paths],
            producer_id_expiration_ms=self._producer_id_expiration_ms,
            make_lock=self._make_lock,
        )
        self._directories = directories
        for path, reason in directories.unusable.items():
            logger.error("%s is offline until restart: %s", path, reason)
        self._token = token = self._token_of(directories)
        ids = [each.identity.directory_id for each in directories.all]
        is_intact = {directory_id: token.is_valid(directory_id) for directory_id in ids}
        try:
            said = directories.load_logs(
                lambda topic: LogConfig(), now_ms=wall_ms, on_damaged=token.remove
            )
        except (StorageFailure, DataDirectoryError) as error:
            self._directories = None
            directories.close(clean=False)
            if isinstance(error, DataDirectoryError):
                raise
            raise DirectoryUnusable(f"no data directory can be read: {error}") from error
        self.has_all_data = directories.has_all_data(is_intact.__getitem__)
        if self.has_all_data:
            token.put()
        else:
            token.remove()
            logger.warning(
                "unclean shutdown of the machine, records may be missing: other in-sync replicas "
                "lead the partitions of this node"
            )
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

    def begin(self) -> None:
        """Begin: the node is registered, and the controller knows of a loss."""
        if self._token is not None and all(
            each.health.is_online and not each.unopened for each in self.directories.all
        ):
            self._token.put()

    def on_directory_failed(self) -> None:
        """Note that a disk failed; its remaining records are unknown, so after the next start the
        node catches up first.
        """
        if self._token is not None:
            self._token.remove()

    def end(self) -> LogDirectories | None:
        """End: the directories to close, None if not open. on_closed() comes next."""
        directories, self._directories = self._directories, None
        self._ended = directories
        return directories

    def on_closed(self) -> None:
        """Note that the directories are closed, with their clean shutdown marks as far as they
        could be written.

        If a full disk has refused a mark, no written record is lost: as after a kill, the token
        proves that. The records of a disk that has failed meanwhile are unknown.
        """
        if self._token is None or self._ended is None:
            return
        ended = self._ended.all
        has_failed = any(not each.health.is_online for each in ended)
        if has_failed or all(each.is_closed_cleanly for each in ended):
            self._token.remove()
