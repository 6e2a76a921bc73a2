"""Environments with nothing in them but what pip installs from the wheel."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VERSIONS = ("3.11", "3.12", "3.13")
"""The versions that pyproject.toml's requires-python and the README promise."""
COMMAND_SECONDS = 300
PIP_SECONDS = 1800
REPEATS = 5


class Failed(Exception):
    """A step has not come to what it should. In words."""


def find_interpreters(named: list[Path]) -> dict[str, Path]:
    """{"3.11": path, ...}: those that are named, or one of each version that is found here."""
    places = [Path(place) for place in os.environ.get("PATH", "").split(os.pathsep) if place]
    folders = (*places, *Path.home().glob(".pyenv/versions/*/bin"))
    candidates = named or [
        folder / f"python{version}" for version in VERSIONS for folder in folders
    ]
    found: dict[str, Path] = {}
    for candidate in candidates:
        version = _version_of(candidate)
        if named and version is None:
            raise Failed(f"{candidate} is no Python")
        if version is not None and (named or version in VERSIONS):
            found.setdefault(version, candidate)
    return dict(sorted(found.items(), key=lambda one: [int(part) for part in one[0].split(".")]))


def _version_of(python: Path) -> str | None:
    """As "3.11"; None for what cannot be run, as a shim of pyenv for a version that is not set."""
    if not os.access(python, os.X_OK):
        return None
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run(
        [python, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else None


class Environment:
    """A virtual environment, a home and a folder for Ray, which nobody has used before."""

    def __init__(self, python: Path, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "venv" / "bin"
        self.home = folder / "home"
        self.home.mkdir()
        self._run([str(python), "-m", "venv", str(folder / "venv")])
        self.pip("install", "--upgrade", "pip")

    def environment(self) -> dict[str, str]:
        """The environment of a user who has just logged in, without any setting of Ray's."""
        kept = {name: os.environ[name] for name in ("LANG", "LC_ALL") if name in os.environ}
        # pip's configuration says where packages come from here.
        kept |= {name: text for name, text in os.environ.items() if name.startswith("PIP_")}
        return {
            **kept,
            "PATH": f"{self.bin}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.home),
            "TMPDIR": str(self.folder),
            "RAY_TMPDIR": f"{self.folder}/r",
        }

    def pip(self, *words: str) -> None:
        environment = self.environment() | {"HOME": str(Path.home())}  # for pip's cache
        self._run([f"{self.bin}/pip", "--quiet", *words], PIP_SECONDS, environment)

    def bradbury(self, *words: str, stdin: str = "") -> str:
        """What a command says on stdout; it must end with 0."""
        return self._run([f"{self.bin}/bradbury", *words], stdin=stdin)

    def python(self, code: str) -> str:
        return self._run([f"{self.bin}/python", "-c", code])

    def refused(self, *words: str) -> str:
        """The one line of a command of this environment that must not succeed."""
        done = self._start([f"{self.bin}/{words[0]}", *words[1:]])
        lines = done.stderr.strip().splitlines()
        if done.returncode != 1 or not lines:
            raise Failed(f"{' '.join(words)}: exit code {done.returncode}, {done.stderr.strip()}")
        return lines[-1]

    def size_megabytes(self) -> float:
        """The size of all that is installed, as `du` counts it, byte code included."""
        packages = next((self.folder / "venv" / "lib").glob("python*")) / "site-packages"
        done = self._run(["du", "--summarize", "--block-size=1", str(packages)])
        return int(done.split()[0]) / 1e6

    def import_seconds(self, statement: str) -> float:
        """How much longer a process with `statement` takes than an empty one; the best of some."""
        return self._best("-c", statement) - self._best("-c", "pass")

    def _best(self, *words: str) -> float:
        seconds = []
        for _ in range(REPEATS + 1):  # the first one fills caches
            began = time.perf_counter()
            self._run([f"{self.bin}/python", *words])
            seconds.append(time.perf_counter() - began)
        return min(seconds)

    def _start(
        self,
        words: list[str],
        timeout: float = COMMAND_SECONDS,
        environment: dict[str, str] | None = None,
        stdin: str = "",
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=self.home,
            env=environment or self.environment(),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def _run(
        self,
        words: list[str],
        timeout: float = COMMAND_SECONDS,
        environment: dict[str, str] | None = None,
        stdin: str = "",
    ) -> str:
        done = self._start(words, timeout, environment, stdin)
        if done.returncode:
            said = (done.stderr + done.stdout).strip()
            raise Failed(f"{' '.join(words)}: exit code {done.returncode}: {said[-2000:]}")
        return done.stdout


@contextmanager
def environment_of(python: Path) -> Iterator[Environment]:
    folder = Path(tempfile.mkdtemp(prefix="bw-", dir="/tmp"))  # paths of sockets have to be short
    try:
        yield Environment(python, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def build_wheel(root: Path, folder: Path) -> Path:
    """Build a wheel from an empty build folder: setuptools packs whatever it finds there."""
    shutil.rmtree(root / "build", ignore_errors=True)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, root],
        check=True,
    )
    shutil.rmtree(root / "build", ignore_errors=True)
    (wheel,) = folder.glob("bradbury-*.whl")
    return wheel


def names_installation(line: str, wheel: Path, extra: str) -> bool:
    """Whether a line says how to install an extra of this very wheel."""
    return bool(re.search(rf"pip install '?{re.escape(f'{wheel}[{extra}]')}'?", line))
