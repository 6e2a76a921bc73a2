"""Runs the snippets of a page as somebody who reads it would: as printed, one after the other.

    ```sh, ```console     a shell of its own; in `console` the lines that begin with "$ "
    ```python             typed into a Python process: a fresh one where the block imports something,
                          else the one of the block before
    <!-- not run: why --> before a block leaves it out

Processes get a home of their own and nothing else that a person would have to set.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

SECONDS = 300
SHELL = ("sh", "console")

# Stands in for the prompt: takes a block, runs it in the same names, says how it ended.
_INTERPRETER = """
import sys, traceback
names = {"__name__": "__main__"}
while header := sys.stdin.buffer.readline():
    source = sys.stdin.buffer.read(int(header)).decode()
    try:
        exec(compile(source, "<page>", "exec"), names)
        ended = "done"
    except BaseException:
        traceback.print_exc()
        ended = "failed"
    sys.stdout.flush(); sys.stderr.flush()
    print("\\n--- " + ended, flush=True)
"""


@dataclass(frozen=True)
class Block:
    language: str
    source: str
    line: int
    is_left_out: bool

    @property
    def begins_a_process(self) -> bool:
        return re.search(r"^(import|from) ", self.source, re.MULTILINE) is not None


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of `page` in their order."""
    fence = re.compile(
        r"(?P<skip><!-- not run: [^\n]+ -->\n)?^(?P<indent> *)```(?P<language>\w*)\n"
        r"(?P<source>.*?)^ *```$",
        re.DOTALL | re.MULTILINE,
    )
    text = page.read_text()
    for found in fence.finditer(text):
        lines = found["source"].splitlines()
        indent = len(found["indent"])
        yield Block(
            found["language"],
            "".join(line[indent:] + "\n" for line in lines),
            text.count("\n", 0, found.start("source")) + 1,
            found["skip"] is not None,
        )


class Interpreter:
    """A Python process that is given block after block."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self._log = folder / "python.err"
        with self._log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-c", _INTERPRETER],
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def run(self, source: str) -> str:
        """What the block printed. Raises AssertionError with the traceback if it failed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        content = source.encode()
        self._process.stdin.write(b"%d\n" % len(content) + content)
        self._process.stdin.flush()
        printed = []
        for line in self._process.stdout:
            if line.startswith(b"--- "):
                assert line == b"--- done\n", self._log.read_text(errors="replace")
                return b"".join(printed).decode()
            printed.append(line)
        raise AssertionError(f"the process ended: {self._log.read_text(errors='replace')}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def run_shell(block: Block, environment: Mapping[str, str], folder: Path) -> str:
    """What the commands printed. Raises AssertionError if one failed."""
    source = block.source
    if block.language == "console":
        lines = [line for line in source.splitlines() if line.startswith("$ ")]
        source = "".join(line.removeprefix("$ ") + "\n" for line in lines)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", source],
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{source}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_page(page: Path, environment: Mapping[str, str], folder: Path) -> int:
    """Run every block; returns how many were run. An AssertionError names page and line."""
    interpreter: Interpreter | None = None
    count = 0
    try:
        for block in blocks(page):
            if block.is_left_out or block.language not in (*SHELL, "python"):
                continue
            count += 1
            try:
                if block.language in SHELL:
                    run_shell(block, environment, folder)
                    continue
                if interpreter is None or block.begins_a_process:
                    if interpreter is not None:
                        interpreter.__exit__()
                    interpreter = Interpreter(environment, folder)
                interpreter.run(block.source)
            except AssertionError as error:
                raise AssertionError(f"{page.name}:{block.line}: {error}") from None
    finally:
        if interpreter is not None:
            interpreter.__exit__()
    return count
