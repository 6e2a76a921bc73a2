"""A process of a test's own, which is not waited for when the test has failed already."""

from __future__ import annotations

import subprocess
from types import TracebackType
from typing import Any


class ChildProcess(subprocess.Popen[Any]):
    """Popen, whose `with` would wait for a process that nobody tells to end any more."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, error, traceback)
