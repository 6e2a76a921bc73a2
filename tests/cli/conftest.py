"""A home of its own for every test, and two ways to run a command: here, and as a process."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import bradbury
from bradbury.cli.main import run
from bradbury.discovery.ray_connection import RAY_TOO_SLOW
from bradbury.tests.support.command_line import UP_TRIES, Command, Outcome

HOME_OF_THE_RUN = os.environ["HOME"]
ROOT = Path(bradbury.__file__).resolve().parent


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing of the user's is read or written, and no cluster of his is found."""
    for name in (
        "BRADBURY_BOOTSTRAP",
        "BRADBURY_NAMESPACE",
        "RAY_ADDRESS",
        "RAY_AUTH_MODE",
        "XDG_DATA_HOME",
        "COLUMNS",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def command(capfdbinary: pytest.CaptureFixture[bytes]) -> Command:
    """Run a command line in this process."""

    def call(*arguments: str) -> Outcome:
        capfdbinary.readouterr()
        code = run(arguments)
        captured = capfdbinary.readouterr()
        return Outcome(code, captured.out.decode(), captured.err.decode())

    return call


@pytest.fixture
def environment(home: Path) -> Iterator[dict[str, str]]:
    """The environment of a process: this home, a short folder for Ray, no other Ray on the machine."""
    short = tempfile.mkdtemp(prefix="bc-", dir="/tmp")  # socket paths have at most 107 bytes
    inherited = ("PATH", "LANG", "LC_ALL", "JAVA_HOME", "LD_LIBRARY_PATH")
    yield {
        **{name: os.environ[name] for name in inherited if name in os.environ},
        "HOME": str(home),
        "TMPDIR": short,
        "RAY_TMPDIR": f"{short}/ray",
        "RAY_ENABLE_AUTO_CONNECT": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": str(ROOT / ".path"),
        "PYTHONPYCACHEPREFIX": str(ROOT / ".cache" / "pycache"),
    }
    shutil.rmtree(short, ignore_errors=True)


@pytest.fixture
def joined_ray(ray_cluster: str, home: Path) -> str:
    """The address of the test run's Ray, whose token is in this home, too."""
    token = Path(HOME_OF_THE_RUN) / ".ray" / "auth_token"
    (home / ".ray").mkdir()
    shutil.copy(token, home / ".ray" / "auth_token")
    return ray_cluster


@pytest.fixture
def process(environment: dict[str, str]) -> Command:
    """Run a command line as a process of its own, to its end. Where it says so, again."""

    def call(*arguments: str, stdin: bytes = b"", timeout: float = 300) -> Outcome:
        for _ in range(UP_TRIES):
            done = subprocess.run(
                [sys.executable, "-m", "bradbury.cli", *arguments],
                cwd=environment["HOME"],
                env=environment,
                input=stdin,
                capture_output=True,
                timeout=timeout,
                check=False,
            )
            outcome = Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())
            if RAY_TOO_SLOW not in outcome.err:
                break
        return outcome

    return call
