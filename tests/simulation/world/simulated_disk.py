"""A disk in memory that a power loss leaves as disks are: with some of what was not synced."""

from errno import EIO, ENOSPC
from random import Random

from ...support.storage.memory_file_system import Inode, MemoryFile, MemoryFileSystem

BEFORE_LENGTH = 12
CHECKED_FROM = 21
"""Where in a record batch begins what its checksum is of."""


class SimulatedDisk(MemoryFileSystem):
    """See MemoryFileSystem; synced contents and names are safe, the rest is at chance's mercy."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: set[str] = set()
        """Directories in which nothing can be written any more, until they are repaired."""
        self.failed: set[str] = set()
        """Those of them in which something was refused: somebody has seen it."""

        self.full: set[str] = set()
        """Directories whose disks have no room left; what is in them stays as it is."""
        self.rotten: list[tuple[bytes, bytes]] = []
        """Batches as they are read now, with what they were."""
        self.is_as_written = False
        """Readers find what was written: for those who look at the simulation from outside."""

    def free_bytes(self, path: str) -> int:
        return 0 if path in self.full else super().free_bytes(path)

    def enter(self, operation: str, path: str) -> None:
        super().enter(operation, path)
        if operation == "read":
            return
        if self.full and operation == "write" and any(path.startswith(f"{d}/") for d in self.full):
            raise OSError(ENOSPC, "No space left on device", path)
        for directory in self.failing:
            if path == directory or path.startswith(f"{directory}/"):
                self.failed.add(directory)
                raise OSError(EIO, "Input/output error", path)

    def repaired(self, random: Random) -> "SimulatedDisk":
        """The disk when its failing directories work again: of what was refused there, and of what
        was not synced then, no more is left than after a power loss.
        """
        after = self.lose_power(random, under=self.failed)
        after.failing.clear()
        after.failed.clear()
        return after

    def read_content(self, inode: Inode) -> bytes | bytearray:
        content: bytes | bytearray = inode.content
        if self.is_as_written:
            for rotten, written in self.rotten:
                content = content.replace(rotten, written)
        return content

    def rot(self, random: Random, under: str) -> bool:
        """A byte of a log, in or of `under`, that is safe on the disk turns into another one;
        whether there was any.
        """
        found = [
            (inode, start, end)
            for path, inode in self.names.items()
            if path.startswith((f"{under}/", under)) and path.endswith(".log") and inode is not None
            for start, end in _batches(inode.content)
            if inode.content[start:end] == inode.synced[start:end]
        ]
        if not found:
            return False
        self._rot(*random.choice(found), random)
        return True

    def rotten_in(self, directory: str) -> list[tuple[str, bytes]]:
        """(path, what it was) of the rotten batches in a log's files."""
        return [
            (path, written)
            for rotten, written in self.rotten
            for path, inode in self.names.items()
            if path.startswith(f"{directory}/") and path.endswith(".log") and inode is not None
            if rotten in inode.content
        ]

    def damage(self, random: Random, under: str) -> bool:
        """Some bytes of a log that were not synced turn out to be others; whether there were any."""
        found = [
            (inode, start, end)
            for path, inode in self.names.items()
            if path.startswith(f"{under}/") and path.endswith(".log") and inode is not None
            for start, end in _batches(inode.content)
            if start >= len(inode.synced)
        ]
        if not found:
            return False
        self._rot(*random.choice(found), random)
        return True

    def _rot(self, inode: Inode, start: int, end: int, random: Random) -> None:
        written = bytes(inode.content[start:end])
        inode.content[random.randrange(start + CHECKED_FROM, end)] ^= 1 << random.randrange(8)
        rotten = bytes(inode.content[start:end])
        if inode.synced[start:end] == written:
            inode.synced = inode.synced[:start] + rotten + inode.synced[end:]
        # One that is rotten already was something else before.
        self.rotten = [(rotten, dict(self.rotten).get(written, written)), *self.rotten]

    def lose_power(self, random: Random, *, under: set[str] | None = None) -> "SimulatedDisk":
        """The disk afterwards: of each file what was synced, or more: a prefix of its newest text.

        A prefix ends anywhere, also within a batch. Names that were not synced are gone, but for
        those that chance has kept. `under`: only in these directories, the rest is as it was.
        """
        after = SimulatedDisk()
        after.failing, after.failed = set(self.failing), set(self.failed)
        after.full = set(self.full)
        after.rotten = list(self.rotten)
        names = dict(self.synced_names)

        def is_safe(path: str) -> bool:
            return under is not None and not any(
                path == each or path.startswith(f"{each}/") for each in under
            )

        if under is not None:
            names = {path: inode for path, inode in names.items() if not is_safe(path)}
            kept = {path: inode for path, inode in self.names.items() if is_safe(path)}
            after.names.update(kept)
            after._renamed = [each for each in self._renamed if is_safe(each[0])]
            after.synced_names.update(
                {path: inode for path, inode in self.synced_names.items() if is_safe(path)}
            )
            names = {path: inode for path, inode in names.items() if path != "/"}
        for path, inode in self.names.items():
            if is_safe(path):
                continue
            if path not in names and random.random() < 0.3 and _parent_is_in(names, path):
                names[path] = inode
        for path, inode in names.items():
            after.names[path] = None if inode is None else _torn(inode, random)
            after.synced_names[path] = after.names[path]
        for path, inode in self.names.items():
            # Those at the top are made, and synced, by whoever sets up the machine.
            if inode is None and path not in after.names and path.rpartition("/")[0]:
                after._drop(path)
        return after

    def _drop(self, directory: str) -> None:
        """What is in a directory whose own name was never synced cannot be reached any more."""
        for path in [path for path in self.names if path.startswith(f"{directory}/")]:
            del self.names[path]
            self.synced_names.pop(path, None)

    def after_death(self) -> "SimulatedDisk":
        """The same disk when the process that used it has died: its locks are free."""
        self.locks.clear()
        return self

    def list_directory(self, path: str) -> list[str]:
        start = path + "/"
        size = len(start)
        return [
            name[size:]
            for name in self.names
            if name.startswith(start) and "/" not in name[size:] and name != start
        ]

    def read(self, path: str) -> bytes:
        file = self.open(path)
        return MemoryFile.read_at(file, file.size(), 0)


def _batches(content: bytearray) -> list[tuple[int, int]]:
    """(start, end) of each batch of a log."""
    found, start = [], 0
    while start + CHECKED_FROM < len(content):
        end = start + BEFORE_LENGTH + int.from_bytes(content[start + 8 : start + 12])
        if end > len(content):
            break
        found.append((start, end))
        start = end
    return found


def _parent_is_in(names: dict[str, Inode | None], path: str) -> bool:
    return path.rpartition("/")[0] in names


def _torn(inode: Inode, random: Random) -> Inode:
    after = Inode()
    synced, newest = inode.synced, bytes(inode.content)
    kept = synced
    if newest.startswith(synced) and len(newest) > len(synced) and random.random() < 0.5:
        kept = newest[: len(synced) + random.randrange(len(newest) - len(synced) + 1)]
    after.content = bytearray(kept)
    after.synced = bytes(kept)
    return after
