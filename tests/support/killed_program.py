"""A program that is killed again and again, and run to its end the last time."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence

from .child_process import ChildProcess


def kill_at(program: str, arguments: Sequence[str], lines: Iterable[int]) -> int:
    """Run it once for each of `lines`, and kill it when it has printed so many and one more.

    Returns how many runs were killed. One that prints "done" has come to its end.
    """
    kills = 0
    for killed_at in lines:
        with ChildProcess(
            [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True
        ) as running:
            assert running.stdout is not None
            for number, line in enumerate(running.stdout):
                if line == "done\n":
                    break
                if number == killed_at:
                    running.send_signal(signal.SIGKILL)
                    kills += 1
    return kills
