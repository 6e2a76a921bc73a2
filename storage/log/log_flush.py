"""The part of a flush that waits for the disk: it can run in a thread beside the log.

Not here: which files, and what it means that they are synced (partition_log).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..disk.file_system import File
from ..disk.storage_failure import DirectoryHealth


class FlushWork:
    """Open files to fsync in this order: those with records, then the directory that names them.

    It holds the files itself, so rolls, deletions and truncations in the meantime do not matter.
    """

    __slots__ = ("_files", "_health", "truncations", "up_to")

    def __init__(
        self,
        files: Sequence[File],
        health: DirectoryHealth,
        *,
        up_to: int,
        truncations: int,
    ) -> None:
        self._files = files
        self._health = health
        self.up_to = up_to
        """Records below this offset are on the disk after run()."""
        self.truncations = truncations
        """How often the log had been truncated when this was begun."""

    def run(self) -> None:
        """Return when everything is on the disk. Safe in any thread; touches only its own files.

        Raises:
            StorageFailure: an fsync failed now or before. The directory is offline: another fsync
                could succeed although the pages are gone.
        """
        self._health.check()
        try:
            for file in self._files:
                file.sync()
        except OSError as error:
            raise self._health.fail("fsync", error) from error
