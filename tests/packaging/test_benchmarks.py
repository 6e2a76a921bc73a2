"""Does every benchmark say how it is used, instead of running when it is asked?"""

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


def test_there_are_benchmarks() -> None:
    assert "broker" in PROGRAMS
    assert "start_and_memory" in PROGRAMS


@pytest.mark.long  # a process for each program
@pytest.mark.slow
@pytest.mark.parametrize("package", ["bradbury.benchmarks", "benchmarks"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_help_is_shown_and_nothing_is_run(program: str, package: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"{package}.{program}", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: ")
    assert "--help" in done.stdout
