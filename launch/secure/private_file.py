"""Files that only their user can read, written atomically."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def make_private_folder(path: Path) -> None:
    """Make a folder with mode 0700; an existing one is changed to it."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.chmod(0o700)


def write_private(path: Path, text: str) -> None:
    """Replace the file, atomically; 0600 from its first byte on. Raises OSError."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
