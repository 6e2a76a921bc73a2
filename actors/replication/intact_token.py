"""Tokens that show whether data that was written but not fsynced survived the last process.

When a process is killed, its writes stay in the page cache; when the machine goes down, they do
not, and acknowledged records may be lost. So while a node uses a directory there is a file

    /dev/shm/bradbury-<directory id>      the boot id of this machine, and which mount it lies on;
                                          the path of the directory

in memory, which is lost along with the page cache. A node that finds it has all its data, as after
a clean stop. It is removed when a disk fails, before the process ends. Without /dev/shm there are
no tokens: the node then catches up before it joins an ISR again (KIP-966's rule).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from ...storage.directories.log_directories import LogDirectories

MEMORY = Path("/dev/shm")  # noqa: S108 -- it has to be memory, and to outlive the process
PREFIX = "bradbury-"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class IntactToken:
    """Tokens in memory for one node's log directories; see replication/logs/directory_lifecycle."""

    @classmethod
    def of(cls, directories: LogDirectories) -> Self:
        return cls(
            {
                each.identity.directory_id: str(Path(each.path).absolute())
                for each in directories.all
            }
        )

    def __init__(self, directories: Mapping[str, str], *, memory: Path = MEMORY) -> None:
        """directories: the path of each directory, by its id."""
        self._directories = dict(directories)
        self._paths = {each: memory / f"{PREFIX}{each}" for each in directories}
        self._memory = memory

    def is_valid(self, directory_id: str) -> bool:
        """Whether the page cache from the time of the directory's last writes is still there."""
        identity = self._identity()
        try:
            known_id, _, _ = self._paths[directory_id].read_text().partition("\n")
            return identity is not None and known_id == identity
        except OSError:
            return False

    def put(self) -> None:
        """Write the tokens: after a kill they show that the page cache has all writes."""
        identity = self._identity()
        if identity is None:
            return
        for directory_id, path in self._paths.items():
            with contextlib.suppress(OSError):
                path.write_text(f"{identity}\n{self._directories[directory_id]}\n")
        self._remove_stale_tokens()

    def _remove_stale_tokens(self) -> None:
        """Remove the tokens of killed nodes whose directories do not exist any more."""
        for path in self._memory.glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError, IndexError):
                if not Path(path.read_text().splitlines()[1]).exists():
                    path.unlink()

    def remove(self) -> None:
        """Remove the tokens: data on the disk may be incomplete, or is already flushed."""
        for path in self._paths.values():
            with contextlib.suppress(OSError):
                path.unlink()

    def _identity(self) -> str | None:
        try:
            if not os.path.ismount(self._memory):
                return None
            return f"{BOOT_ID.read_text().strip()} {self._memory.stat().st_dev}"
        except OSError:
            return None
