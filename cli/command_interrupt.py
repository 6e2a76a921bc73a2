"""The exit codes of Ctrl-C and SIGTERM, and the detection of Ctrl-C.

Imports nothing, as Ctrl-C may arrive during imports.
"""

from __future__ import annotations

INTERRUPTED = 130
TERMINATED = 143
DEBUG = "--debug"


def was_interrupted(error: BaseException | None) -> bool:
    """Whether an error is Ctrl-C, or was caused by it.

    If Ctrl-C comes during a wait for a condition, Python has released the lock, and raises a
    RuntimeError when the lock is released again. If it comes during an import, that may fail with
    an error of its own.
    """
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False
