"""Byte code files for started processes, even if the user's environment turns them off.

Images and test runs often set PYTHONDONTWRITEBYTECODE. Without the files each process of Ray and
each Python that Spark starts would compile some hundreds of modules again, so that setting is
suspended for them, and the files are kept in a cache of our own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from .state_file import cache_directory

_NONE: Final = "PYTHONDONTWRITEBYTECODE"
_FOLDER: Final = "PYTHONPYCACHEPREFIX"


@contextmanager
def byte_code_kept() -> Iterator[None]:
    """Let processes started in the `with` block write byte code, in the user's folder if set."""
    refused = os.environ.pop(_NONE, None)
    is_ours = bool(refused) and _FOLDER not in os.environ
    if is_ours:
        os.environ[_FOLDER] = str(cache_directory() / "pycache")
    try:
        yield
    finally:
        if is_ours:
            os.environ.pop(_FOLDER, None)
        if refused is not None:
            os.environ[_NONE] = refused
