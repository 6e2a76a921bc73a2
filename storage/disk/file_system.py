"""File system port of the storage, and its implementation by the operating system.

Everything storage does to files goes through a FileSystem, so that a simulated disk (torn writes,
lost pages, failing fsync) can replace the real one. Paths are plain strings.

Invariants:
    write_at writes all of its bytes or raises OSError; after an error the file may hold a part of
    them beyond its old end, and the caller cuts it back.
    A File stays readable as long as the object is referenced, even after unlink or rename: its
    descriptor is closed with the last reference. So a reader's slice needs no lock and no count.

Errors are OSError, as the system raised them; their meaning is decided by the caller.

Not here: atomic replacement of small files (checkpoint_file), when to sync (partition_log).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import Protocol

from ...protocol.buffer import Buffer


class File(Protocol):
    """One open file, read and written at positions: there is no cursor."""

    def fileno(self) -> int:
        """The descriptor, for os.sendfile. Valid while this object lives."""
        ...

    def size(self) -> int: ...

    def read_at(self, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        ...

    def write_at(self, data: Buffer, position: int) -> None: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Return when all data, and the length, are on the disk (fdatasync)."""
        ...

    def close(self) -> None: ...


class FileSystem(Protocol):
    """Operations on names. All raise OSError."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; with `create`, an absent file is made."""
        ...

    def open_directory(self, path: str) -> File:
        """Open a directory: sync() of the File makes creations, renames and removals in it durable.

        It stays valid when the directory is renamed.
        """
        ...

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def rename(self, source: str, target: str) -> None:
        """Rename atomically; replaces `target` if it is a file."""
        ...

    def unlink(self, path: str) -> None: ...

    def make_directory(self, path: str) -> None:
        """Create a directory with its parents; no error if it exists."""
        ...

    def make_private(self, path: str) -> None:
        """Let only this user read a directory, unless it is another user's."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove a directory, which must be empty."""
        ...

    def list_directory(self, path: str) -> list[str]: ...

    def lock(self, path: str) -> File:
        """Take an exclusive lock on `path` (created if absent) until the File is closed.

        Raises:
            BlockingIOError: another process holds it.
        """
        ...

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int: ...


class OsFile:
    """A File of the operating system."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __del__(self) -> None:
        self.close()

    def fileno(self) -> int:
        return self._descriptor

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read_at(self, size: int, position: int) -> bytes:
        return os.pread(self._descriptor, size, position)

    def write_at(self, data: Buffer, position: int) -> None:
        written = os.pwrite(self._descriptor, data, position)
        if written != len(data):
            self._write_rest(memoryview(data), position, written)

    def _write_rest(self, data: memoryview, position: int, written: int) -> None:
        # A nearly full disk writes a part, and reports ENOSPC only at the next write.
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], position + written)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class OsDirectory(OsFile):
    """A directory, opened to be synced: with fsync, as fdatasync need not sync its entries."""

    __slots__ = ()

    def sync(self) -> None:
        os.fsync(self.fileno())


class OsFileSystem:
    """The FileSystem of the operating system. Linux only: fdatasync, flock."""

    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return OsFile(os.open(path, flags, 0o644))

    def open_directory(self, path: str) -> OsDirectory:
        return OsDirectory(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def make_private(self, path: str) -> None:
        with contextlib.suppress(PermissionError):  # of another user, as Kubernetes' volumes are
            os.chmod(path, 0o700)  # noqa: PTH101 - storage speaks to the OS through os

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)  # noqa: PTH106 - storage speaks to the OS through os

    def list_directory(self, path: str) -> list[str]:
        return os.listdir(path)

    def lock(self, path: str) -> OsFile:
        file = self.open(path, create=True)
        try:
            # The kernel releases the lock with the open file, so even if the process is killed.
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise
        return file

    def free_bytes(self, path: str) -> int:
        facts = os.statvfs(path)
        return facts.f_bavail * facts.f_frsize

    def total_bytes(self, path: str) -> int:
        facts = os.statvfs(path)
        return facts.f_blocks * facts.f_frsize


def sync_directory(file_system: FileSystem, path: str) -> None:
    """Return when creations, renames and removals in `path` are on the disk. Raises OSError."""
    directory = file_system.open_directory(path)
    try:
        directory.sync()
    finally:
        directory.close()


def read_file(file_system: FileSystem, path: str) -> bytes:
    """Content of a small file.

    Raises:
        FileNotFoundError: there is none.
    """
    file = file_system.open(path)
    try:
        return file.read_at(file.size(), 0)
    finally:
        file.close()
