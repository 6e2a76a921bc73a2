"""A disk in memory that a power loss leaves as disks are: with some of what was not synced."""

from random import Random

from ...support.storage.memory_file_system import Inode, MemoryFile, MemoryFileSystem


class SimulatedDisk(MemoryFileSystem):
    """See MemoryFileSystem; synced contents and names are safe, the rest is at chance's mercy."""

    def lose_power(self, random: Random) -> "SimulatedDisk":
        """The disk afterwards: of each file what was synced, or more: a prefix of its newest text.

        A prefix ends anywhere, also within a batch. Names that were not synced are gone, but for
        those that chance has kept.
        """
        after = SimulatedDisk()
        names = dict(self.synced_names)
        for path, inode in self.names.items():
            if path not in names and random.random() < 0.3 and _parent_is_in(names, path):
                names[path] = inode
        for path, inode in names.items():
            after.names[path] = None if inode is None else _torn(inode, random)
        after.synced_names = dict(after.names)
        return after

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
