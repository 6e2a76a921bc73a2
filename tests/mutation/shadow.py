"""A copy of the checkout in which one module at a time is another one.

The checkout may be worked on meanwhile. A process sees the copy by its PYTHONPATH. Byte code is
cached by path, time and size of a file, and two mutants may have the same size and come in the same
second: so each gets a time of its own.
"""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

import bradbury

ROOT = Path(bradbury.__file__).resolve().parent

_times = itertools.count(1_000_000_000)


class ShadowTree:
    """A copy of the tree in a folder of its own, for one process after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = folder / "bradbury"
        ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "wheels")
        shutil.copytree(ROOT, self.package, ignore=ignored, symlinks=True)
        self._originals: dict[Path, str] = {}

    def put(self, path: str, source: str) -> None:
        """The module at `path` (from the package's root) has this source now, and all others their
        own.
        """
        self.clear()
        target = self.package / path
        self._originals[target] = target.read_text()
        _write(target, source)

    def clear(self) -> None:
        """All modules are what they were."""
        for target, source in self._originals.items():
            _write(target, source)
        self._originals.clear()

    def environment(self) -> dict[str, str]:
        """The environment of a process that imports the copy."""
        return {
            **os.environ,
            "PYTHONPATH": str(self.folder),
            "PYTHONPYCACHEPREFIX": str(self.folder / "pycache"),
            "NUMBA_CACHE_DIR": str(self.folder / "numba"),
            # What hypothesis learns from a mutant is not for other runs.
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self.folder / "hypothesis"),
        }

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _write(target: Path, source: str) -> None:
    target.write_text(source)
    time = next(_times)
    os.utime(target, (time, time))
