"""What a command line gave back."""

from collections.abc import Callable
from dataclasses import dataclass


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
