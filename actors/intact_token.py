"""Whether what was written to a directory is still there, although nothing says it was fsynced.

A killed process leaves its page cache behind, a machine that went down does not; only the second
may have lost records that were acknowledged. So while a node uses a directory there is a file

    /dev/shm/bradbury-<directory id>      the boot id of this machine, and which mount it lies on

in memory, which goes with the page cache. A node that finds it has all its data, as after a clean
stop. It is removed before the process ends because of a disk. Where there is no /dev/shm nobody is
believed: the node then catches up before it counts as in sync again (KIP-966's rule).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108 -- it has to be memory, and to outlive the process
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class IntactToken:
    """Of the directories of one node."""

    def __init__(self, directory_ids: Iterable[str], *, memory: Path = MEMORY) -> None:
        self._paths = {each: memory / f"bradbury-{each}" for each in directory_ids}
        self._memory = memory

    def is_valid(self, directory_id: str) -> bool:
        """Whether the page cache of what this directory was written with is still there."""
        identity = self._identity()
        try:
            return identity is not None and self._paths[directory_id].read_text() == identity
        except OSError:
            return False

    def put(self) -> None:
        """From now on the death of this process loses nothing."""
        identity = self._identity()
        if identity is None:
            return
        for path in self._paths.values():
            with contextlib.suppress(OSError):
                path.write_text(identity)

    def remove(self) -> None:
        """What is on the disk may be less than what was written, or is safe by itself."""
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
