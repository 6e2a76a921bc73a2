"""Deaths of a process at one of its calls to a disk in memory, and what of the disk is left."""

from .memory_file_system import MemoryFileSystem


class Died(BaseException):
    """The process is gone: nothing of it runs any more."""


class Death:
    """Kills at call number `at`, and refuses every call after it."""

    def __init__(self, disk: MemoryFileSystem, at: int) -> None:
        self.calls: list[tuple[str, str]] = []
        self._at = at
        disk.before = self._before

    def _before(self, operation: str, path: str) -> None:
        if len(self.calls) >= self._at:
            raise Died
        self.calls.append((operation, path))


def killed(disk: MemoryFileSystem) -> MemoryFileSystem:
    """The process died; the kernel went on."""
    after = MemoryFileSystem()
    after.names = dict(disk.names)
    after.synced_names = dict(disk.names)
    return after
