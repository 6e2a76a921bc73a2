"""A FileSystem in memory whose disk can fail, fill up, and lose what was not fsynced."""

import errno
from collections.abc import Callable
from functools import cache
from os import path as os_path

dirname = cache(os_path.dirname)
"""Asked for every file with every sync of a directory."""


class Inode:
    def __init__(self) -> None:
        self.content = bytearray()
        self.synced = b""


class MemoryFile:
    def __init__(self, disk: "MemoryFileSystem", path: str, inode: Inode) -> None:
        self._disk, self._path, self._inode = disk, path, inode

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a file in memory has no descriptor")

    def size(self) -> int:
        return len(self._inode.content)

    def read_at(self, size: int, position: int) -> bytes:
        self._disk.enter("read", self._path)
        return bytes(self._disk.read_content(self._inode)[position : position + size])

    def write_at(self, data: bytes, position: int) -> None:
        self._disk.enter("write", self._path)
        content = self._inode.content
        taken = data[: self._disk.take_space(max(0, position + len(data) - len(content)), data)]
        content.extend(bytes(max(0, position - len(content))))
        content[position : position + len(taken)] = taken
        if len(taken) < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")

    def truncate(self, size: int) -> None:
        self._disk.enter("truncate", self._path)
        content = self._inode.content
        del content[size:]
        content.extend(bytes(size - len(content)))

    def sync(self) -> None:
        self._disk.enter("sync", self._path)
        self._inode.synced = bytes(self._inode.content)

    def close(self) -> None:
        if self._disk.locks.get(self._path) is self:
            del self._disk.locks[self._path]


class MemoryDirectory(MemoryFile):
    def sync(self) -> None:
        self._disk.enter("sync", self._path)
        self._disk.sync_names(self._path)


class MemoryFileSystem:
    """Names and contents are volatile until synced; crash() forgets the volatile ones."""

    def __init__(self) -> None:
        self.names: dict[str, Inode | None] = {"/": None}  # None: a directory
        self.synced_names: dict[str, Inode | None] = {"/": None}
        self.locks: dict[str, MemoryFile] = {}
        self._renamed: list[tuple[str, str]] = []
        self.space: int | None = None
        self.before: Callable[[str, str], None] = lambda operation, path: None
        """Called before each operation on the disk; may raise."""

    def enter(self, operation: str, path: str) -> None:
        self.before(operation, path)

    def read_content(self, inode: Inode) -> bytes | bytearray:
        """What a reader finds in a file."""
        return inode.content

    def take_space(self, more: int, data: bytes) -> int:
        """How many bytes of `data` fit on the disk."""
        if self.space is None:
            return len(data)
        granted = min(more, self.space)
        self.space -= granted
        return len(data) - more + granted

    def sync_names(self, directory: str) -> None:
        """A directory that was renamed, and whose parent was not synced since, has its old name
        on the disk; what is in it moves with it.
        """
        for source, target in list(self._renamed):
            if dirname(target) == directory:
                self._renamed.remove((source, target))
                self.synced_names = {
                    _moved(path, source, target): inode for path, inode in self.synced_names.items()
                }
        names = {path: inode for path, inode in self.names.items() if dirname(path) == directory}
        on_disk = directory
        for source, target in reversed(self._renamed):
            on_disk = _moved(on_disk, target, source)
        self.synced_names = {
            path: inode for path, inode in self.synced_names.items() if dirname(path) != on_disk
        } | {on_disk + path[len(directory) :]: inode for path, inode in names.items()}

    def crash(self, *, keep_contents: bool = False) -> "MemoryFileSystem":
        """The disk after a power loss (keep_contents: with all data, but not all names)."""
        after = MemoryFileSystem()
        for path, inode in self.synced_names.items():
            copy = None
            if inode is not None:
                copy = Inode()
                copy.synced = bytes(inode.content) if keep_contents else inode.synced
                copy.content = bytearray(copy.synced)
            after.names[path] = copy
        after.synced_names = dict(after.names)
        return after

    def _inode(self, path: str) -> Inode:
        inode = self.names.get(path)
        if self.is_directory(path):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return inode

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        self.enter("open", path)
        if create and path not in self.names:
            self.names[path] = Inode()
        return MemoryFile(self, path, self._inode(path))

    def open_directory(self, path: str) -> MemoryDirectory:
        return MemoryDirectory(self, path, Inode())

    def exists(self, path: str) -> bool:
        return path in self.names

    def is_directory(self, path: str) -> bool:
        return path in self.names and self.names[path] is None

    def size(self, path: str) -> int:
        return len(self._inode(path).content)

    def modified_ms(self, path: str) -> int:
        return 0

    def rename(self, source: str, target: str) -> None:
        self.enter("rename", source)
        if self.names[source] is None:
            self._renamed.append((source, target))
        for path in list(self.names):
            if (moved := _moved(path, source, target)) != path:
                self.names[moved] = self.names.pop(path)

    def unlink(self, path: str) -> None:
        self.enter("unlink", path)
        self._inode(path)
        del self.names[path]

    def make_directory(self, path: str) -> None:
        self.enter("mkdir", path)
        while path not in self.names:
            self.names[path] = None
            path = dirname(path)

    def make_private(self, path: str) -> None:
        """There are no users here."""

    def remove_directory(self, path: str) -> None:
        self.enter("rmdir", path)
        del self.names[path]

    def list_directory(self, path: str) -> list[str]:
        return [name[len(path) + 1 :] for name in self.names if dirname(name) == path != name]

    def lock(self, path: str) -> MemoryFile:
        if path in self.locks:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        self.locks[path] = self.open(path, create=True)
        return self.locks[path]

    def free_bytes(self, path: str) -> int:
        return 1 << 40 if self.space is None else self.space

    def total_bytes(self, path: str) -> int:
        return 1 << 41


def _moved(path: str, source: str, target: str) -> str:
    """What `path` is called when `source` is renamed to `target`."""
    inside = path == source or path.startswith(source + "/")
    return target + path[len(source) :] if inside else path
