"""Small programs that use other people's clients, in their own languages: made ready, run, listened to.

They stand in tests/compatibility: folders with a Go module or an npm package, Java files. What such
a program is told and says:

    arguments   a command, and its settings as a JSON object
    stdout      JSON objects, one on a line; the last one ends what was asked
    stdin       where a command goes on until it is told to stop, the end of stdin tells it
    exit code   0, or the reason is on stderr

Their libraries come through npm, Go and Maven into .cache, and stay there. Without the language, or
with its registry out of reach, the test is skipped with the reason.
"""

import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any

import pytest

from .kafka_jars import CACHE, QUICK_OPTIONS, Jars, java_command, require

PROGRAMS = CACHE.parent / "tests" / "compatibility"
FETCH_SECONDS = 240
# No bound on how fast something is: only so that a program that hangs ends as a failure.
RUN_SECONDS = 600

Line = dict[str, Any]


class Running:
    """A program that was started, and what it has said so far."""

    def __init__(self, process: subprocess.Popen[str], errors: IO[str]) -> None:
        self._process = process
        self._errors = errors
        self._changed = threading.Condition()
        self._ended = False
        self.lines: list[Line] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            with self._changed:
                self.lines.append(json.loads(text))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def pid(self) -> int:
        return self._process.pid

    def said(self, name: str) -> list[Any]:
        """The contents of all lines with this name."""
        with self._changed:
            return [line[name] for line in self.lines if name in line]

    def wait_for(self, condition: Callable[["Running"], bool]) -> None:
        """Until it holds for what was said. The program's end before that is a failure."""
        deadline = time.monotonic() + RUN_SECONDS
        with self._changed:
            while not condition(self):
                left = deadline - time.monotonic()
                assert not self._ended, f"it has ended: {self._report()}"
                assert left > 0, f"it never came: {self._report()}"
                self._changed.wait(left)

    def stop(self) -> None:
        """Tell it to stop; it ends well."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self.finish()

    def finish(self) -> None:
        """It ends by itself, and well."""
        try:
            code = self._process.wait(RUN_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it hangs: {self._report()}") from None
        self._listener.join()
        assert code == 0, f"it ended with {code}: {self._report()}"

    def kill(self) -> None:
        """SIGKILL; nothing is left of it afterwards."""
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    def _report(self) -> str:
        return f"its last lines {self.lines[-5:]}\n{self.errors()[-4000:]}"


class Program:
    """A program that can be started."""

    def __init__(self, command: list[str], environment: Mapping[str, str] | None = None) -> None:
        self._command = command
        self._environment = {**os.environ, "LC_ALL": "C.UTF-8", **(environment or {})}

    @contextmanager
    def start(self, command: str, **settings: Any) -> Iterator[Running]:
        """While the block runs. What is left of the program at its end is killed."""
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(
                [*self._command, command, json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=self._environment,
            )
            running = Running(process, errors)
            try:
                yield running
            finally:
                running.kill()

    def run(self, command: str, **settings: Any) -> list[Line]:
        """Run it to its end; returns its output."""
        with self.start(command, **settings) as running:
            running.finish()
            return running.lines

    def fails(self, command: str, **settings: Any) -> str:
        """It must end with an error. What stands on stderr."""
        with self.start(command, **settings) as running:
            with pytest.raises(AssertionError, match="it ended with [1-9]"):
                running.finish()
            return running.errors()


def _prepare(command: list[str], environment: Mapping[str, str], folder: Path) -> str:
    """Run what fetches libraries; why it could not, or ""."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=FETCH_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{command[0]} could not get the libraries in {FETCH_SECONDS} s"
    if done.returncode == 0:
        return ""
    said = done.stderr.strip().splitlines()
    return f"{command[0]} could not get the libraries: {said[-1] if said else done.returncode}"


@cache
def _go(name: str) -> Program | str:
    if shutil.which("go") is None:
        return "go is not installed"
    environment = {
        "GOPATH": str(CACHE / "go"),
        "GOMODCACHE": str(CACHE / "go" / "modules"),
        "GOCACHE": str(CACHE / "go" / "build"),
        "GOFLAGS": "-mod=readonly -modcacherw",  # or `rm -r .cache` could not remove them
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "CGO_ENABLED": "0",
    }
    folder = PROGRAMS / name
    if reason := _prepare(["go", "list", "-deps", "."], environment, folder):
        return reason
    program = CACHE / "go" / f"{name}-{os.getpid()}"
    subprocess.run(
        ["go", "build", "-o", str(program), "."],
        cwd=folder,
        env={**os.environ, **environment},
        check=True,
        timeout=2 * FETCH_SECONDS,
    )
    built = CACHE / "go" / name
    program.replace(built)  # two runs at once each see a whole one
    return Program([str(built)])


@cache
def _node(name: str) -> Program | str:
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    folder = PROGRAMS / name
    installed = CACHE / "npm" / name
    wanted = (folder / "package-lock.json").read_text()
    lock = installed / "package-lock.json"
    if not (lock.is_file() and lock.read_text() == wanted):
        installed.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=installed.parent) as temporary:
            new = Path(temporary) / name
            new.mkdir()
            for file in ("package.json", "package-lock.json"):
                shutil.copy(folder / file, new)
            command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
            command += ["--cache", str(CACHE / "npm" / "cache")]
            if reason := _prepare(command, {}, new):
                return reason
            shutil.rmtree(installed, ignore_errors=True)
            new.rename(installed)
    modules = {"NODE_PATH": str(installed / "node_modules")}
    return Program(["node", str(folder / "main.js")], modules)


def go_program(name: str) -> Program:
    """The program of the Go module tests/compatibility/`name`."""
    return _or_skip(_go(name))


def node_program(name: str) -> Program:
    """The program of the npm package tests/compatibility/`name`."""
    return _or_skip(_node(name))


def java_program(file: str, jars: Jars, options: tuple[str, ...] = QUICK_OPTIONS) -> Program:
    """The program of the source file tests/compatibility/`file`, with these jars."""
    require(jars)
    return Program(java_command(str(PROGRAMS / file), options=options, jars=jars))


def _or_skip(program: Program | str) -> Program:
    if isinstance(program, str):
        pytest.skip(program)
    return program


def version_of(name: str) -> str:
    """The library's version, as the program's module or package asks for it."""
    folder = PROGRAMS / name
    if (folder / "go.mod").is_file():
        [line] = [
            line
            for line in (folder / "go.mod").read_text().splitlines()
            if line.startswith("require ") and not line.endswith("(")
        ]
        return line.split()[-1].removeprefix("v")
    [version] = json.loads((folder / "package.json").read_text())["dependencies"].values()
    return str(version)
