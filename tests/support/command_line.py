"""What a command line gave back."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from .child_process import ChildProcess


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line of an error; there is nothing else on stderr, and nothing on stdout."""
        return self._line(1)

    @property
    def usage(self) -> str:
        """The same of a command line that makes no sense."""
        return self._line(2)

    def _line(self, code: int) -> str:
        assert self.code == code, (self.code, self.out, self.err)
        assert self.out == ""
        assert self.err.startswith("error: "), self.err
        assert self.err.count("\n") == 1, self.err
        return self.err.removeprefix("error: ").rstrip("\n")


Command = Callable[..., Outcome]

UP_TRIES = 3
"""A busy machine may need more than the 30 s that Ray gives its own start."""


@contextmanager
def command_under_way(
    line: list[str], environment: Mapping[str, str]
) -> Iterator[tuple["subprocess.Popen[str]", IO[str]]]:
    """`bradbury` in a process of its own, and what it says on stderr; waited for at the end."""
    with ChildProcess(
        [sys.executable, "-m", "bradbury.cli", *line],
        env=environment,
        cwd=environment["HOME"],
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stderr is not None
        yield running, running.stderr
