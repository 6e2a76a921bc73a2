"""Directories of deleted partitions, which are removed after file.delete.delay.ms.

They get the suffix -delete before: no start opens them, and a start removes those left.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..disk.file_system import FileSystem
from ..disk.storage_failure import DirectoryHealth


class DirectoryDeletions:
    """Deletions in one data directory. Not thread-safe, but for delete()."""

    def __init__(self, file_system: FileSystem, path: str, health: DirectoryHealth) -> None:
        self._file_system = file_system
        self._path = path
        self._health = health
        self._scheduled: list[tuple[int, str]] = []

    def schedule(self, path: str, due_ms: int) -> None:
        """Schedule the deletion of `path` at `due_ms`."""
        self._scheduled.append((due_ms, path))

    def take_due(self, now_ms: int) -> list[str]:
        """Take the paths that are due, for delete."""
        due = [path for due_ms, path in self._scheduled if due_ms <= now_ms]
        if due:
            self._scheduled = [entry for entry in self._scheduled if entry[0] > now_ms]
        return due

    def delete(self, paths: Iterable[str]) -> None:
        """Remove directories with their files. In any thread. Raises StorageFailure."""
        try:
            for path in paths:
                remove_directory(self._file_system, path)
        except OSError as error:
            raise self._health.fail(f"deleting files of {self._path}", error) from error


def remove_directory(file_system: FileSystem, path: str) -> None:
    """Remove a partition's directory with its files. Raises OSError."""
    for name in file_system.list_directory(path):
        file_system.unlink(f"{path}/{name}")
    file_system.remove_directory(path)
