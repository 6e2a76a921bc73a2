"""A program that `ray submit` runs on the head, while something is done to it or to its cluster.

with Submitted(journey, "stream_driver.py", "--folder", folder) as driver:
    ...                                 # meanwhile
    driver.kill()                       # kill -9, of what it has started, too
with Submitted(...) as driver:
    driver.wait(600)                    # it ends well, or Failed has what it said
"""

import subprocess
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

import psutil

from bradbury.tests.deploy.journey import JOBS_SECONDS, Failed, Journey
from bradbury.tests.support.ray.ray_nodes import wait_for

START_SECONDS = 60
END_SECONDS = 60
LINES = 40


class Submitted:
    """One run of a program. Killed at the end of the context, if it still runs."""

    def __init__(self, journey: Journey, program: str, *words: str) -> None:
        self._journey = journey
        self._program = program
        self._words = words
        self._done: subprocess.CompletedProcess[str] | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=program, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        wait_for(
            lambda: self.processes() or not self.is_running,
            START_SECONDS,
            f"{self._program} does not start",
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.is_running:
            self.kill()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def check(self) -> None:
        """Raises Failed: it has ended."""
        if not self.is_running:
            raise Failed(f"{self._program} has ended: {self._said()}")

    def processes(self) -> list[psutil.Process]:
        """The program's own process on the head, and all that it has started."""
        for process in self._journey.machines["n1"].tree():
            with suppress(psutil.NoSuchProcess):
                line = process.cmdline()
                is_python = process.name().startswith("python")
                if is_python and line[1:2] and line[1].endswith(f"/{self._program}"):
                    return [process, *process.children(recursive=True)]
        return []

    def kill(self) -> int:
        """kill -9 of all of it at once; how many processes."""
        found = self.processes()
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._thread.join(END_SECONDS)
        if self.is_running:
            raise Failed(f"`ray submit` of {self._program} goes on after its program was killed")
        return len(found)

    def wait(self, seconds: float) -> None:
        """Wait for its end. Raises Failed: it goes on, or has not ended well."""
        self._thread.join(seconds)
        if self.is_running:
            raise Failed(f"{self._program} goes on for longer than {seconds:.0f} s")
        if self._done is None or self._done.returncode:
            raise Failed(f"{self._program} failed: {self._said()}")

    def _said(self) -> str:
        if self._done is None:
            return str(self._error)
        return "\n".join(self._done.stdout.splitlines()[-LINES:])

    def _run(self) -> None:
        command = self._journey.submission(self._program, *self._words)
        try:
            self._done = self._journey.lab.laptop.run(command, timeout=JOBS_SECONDS, check=False)
        except BaseException as error:  # told by `wait`
            self._error = error
