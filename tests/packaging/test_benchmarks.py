"""Does every benchmark say how it is used, instead of running when it is asked? Do those that need no
client, no Ray and no peer run to their end?
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import bradbury

ROOT = Path(bradbury.__file__).resolve().parent
PROGRAMS = sorted(
    path.stem
    for path in (ROOT / "benchmarks").glob("*.py")
    if 'if __name__ == "__main__":' in path.read_text()
)
SMALL = [
    "access --rules 100 --rounds 1",
    "columns --records 100 --batch-bytes 16384",
    "compaction --megabytes 0.1",
    "controller_start --partitions 20 --rounds 1 --changes 1",
    "log_append --batches 1",
    "many_partitions --only storage --partitions 10",
]


def finished(*module: str) -> subprocess.CompletedProcess[str]:
    """A module that has run to its end, with its arguments."""
    return subprocess.run(
        [sys.executable, "-m", *module],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_there_are_benchmarks() -> None:
    assert "broker" in PROGRAMS
    assert "start_and_memory" in PROGRAMS


@pytest.mark.long  # a process for each program
@pytest.mark.slow
@pytest.mark.parametrize("package", ["bradbury.benchmarks", "benchmarks"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_help_is_shown_and_nothing_is_run(program: str, package: str) -> None:
    done = finished(f"{package}.{program}", "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: ")
    assert "--help" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", SMALL)
def test_one_of_rules_and_storage_alone_runs_to_its_end(command: str) -> None:
    done = finished(*f"bradbury.benchmarks.{command}".split())
    assert done.returncode == 0, done.stderr
    assert done.stdout
