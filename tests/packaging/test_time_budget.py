"""Does a run that has to end say which tests it has left out?"""

import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("left", "processes", "outcome"), [(-1, "2", "skipped"), (3600, "0", "passed")]
)
def test_what_would_begin_too_late_is_skipped_and_said(
    left: int, processes: str, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESTS_END_AT", str(time.time() + left))
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", processes, "tests/protocol/test_errors.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    summary = run.stdout.splitlines()[-1]
    assert summary.split()[2 if summary.startswith("=") else 1].rstrip(",") == outcome, summary
    assert ("no time is left" in run.stdout) == (left < 0)
