"""What is run against a mutant, the cheapest first, until something notices it.

simulation   some seeds of the simulated cluster
histories    known histories, and the small world of the metadata quorum
recovery     damaged voters, and their recovery: of what reads and makes voters' files, and first
own tests    those of the mutant's folder, and of what drives its steps
test-fast    the rest of make test-fast
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .shadow import ROOT, ShadowTree

FAST = ("storage", "groups", "cluster", "handlers")
OWN: Mapping[str, tuple[str, ...]] = {
    "groups": (
        "tests/groups",
        "tests/**/test_group_host.py",
        "tests/**/test_group_handlers.py",
    ),
    "coordinators": (
        "tests/coordinators",
        "tests/groups",
        "tests/transactions",
        "tests/**/test_group_host.py",
    ),
    "transactions": (
        "tests/transactions",
        "tests/**/test_transaction_handlers.py",
        "tests/**/test_transaction_senders.py",
        "tests/**/test_transactions_of_groups.py",
        "tests/**/test_write_txn_markers.py",
    ),
    "replication": (
        "tests/replication",
        "tests/**/test_log_maintenance_driver.py",
        "tests/**/test_intact_token.py",
    ),
    "controller": (
        "tests/cluster",
        "tests/controller",
    ),
}
"""Patterns of what runs the modules of a folder; tests/<folder> where nothing is said."""
IN_SEEDS: Mapping[str, tuple[str, ...]] = {
    "groups": ("--groups",),
    "coordinators": ("--groups", "--transactions"),
    "transactions": ("--transactions",),
    "replication": ("--disks",),
    "storage": ("--disks",),
}
"""What the seeds of the simulation have in them, so that a folder's modules run in each."""
HISTORIES = ("tests/simulation/histories", "tests/simulation/test_metadata_quorum.py")
RECOVERY = ("tests/simulation/test_recovery.py::test_a_recovery_makes_what_was_committed",)
RECOVERED = ("controller/voter_files/*", "cluster/metadata/metadata_recovery.py")
"""Patterns of the modules that only that world runs as a whole."""
IS_FAST = "not slow and not ray and not spark and not java"
JUDGES = ("recovery", "simulation", "histories", "own tests", "test-fast")
PATIENCE = 10
"""Times what the unchanged tree takes; a mutant that takes longer is stuck."""
LEAST_SECONDS = 120.0

_running: set[subprocess.Popen[str]] = set()


@dataclass(frozen=True, slots=True)
class Judge:
    name: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`by`: the judge that noticed; None: nobody did."""

    by: str | None
    says: str
    seconds: float


def judges_of(path: str, seeds: int) -> list[Judge]:
    """The judges of a mutant of this module."""
    folder = path.partition("/")[0]
    own = tuple(
        path.relative_to(ROOT).as_posix()
        for pattern in OWN.get(folder, (f"tests/{folder}",))
        for path in sorted(ROOT.glob(pattern))
    )
    rest = tuple(f"tests/{each}" for each in FAST if f"tests/{each}" not in own)
    contents = IN_SEEDS.get(folder, ())
    simulation = ("-m", "bradbury.tests.mutation.seeds", "--count", str(seeds), *contents)
    judges = [
        Judge("simulation", (sys.executable, *simulation)),
        Judge("histories", _pytest(HISTORIES)),
        Judge("own tests", _pytest(own)),
        Judge("test-fast", _pytest(rest)),
    ]
    if any(fnmatch.fnmatch(path, pattern) for pattern in RECOVERED):
        return [Judge("recovery", _pytest(RECOVERY, "slow")), *judges]
    has_coordinators = {"--groups", "--transactions"}.intersection(contents)
    # The histories have none.
    return [each for each in judges if not has_coordinators or each.name != "histories"]


def _pytest(paths: tuple[str, ...], marked: str = IS_FAST) -> tuple[str, ...]:
    options = ("-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-m", marked)
    return (sys.executable, "-m", "pytest", *options, *paths)


def judge(tree: ShadowTree, judges: list[Judge], patience: Mapping[str, float]) -> Verdict:
    """What becomes of the mutant in `tree`. `patience`: seconds by judge."""
    began = time.monotonic()
    for each in judges:
        noticed = run(tree, each, patience.get(each.name, LEAST_SECONDS))
        if noticed is not None:
            return Verdict(each.name, noticed, time.monotonic() - began)
    return Verdict(None, "", time.monotonic() - began)


def run(tree: ShadowTree, one: Judge, seconds: float) -> str | None:
    """What it says against the mutant; None: nothing."""
    command = list(one.command)
    if "pytest" in command:
        command += ["-o", f"pythonpath={tree.folder}", f"--basetemp={tree.folder / 'tmp'}"]
    process = subprocess.Popen(
        command,
        cwd=tree.package,
        env=tree.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    _running.add(process)
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _end(process)
        process.communicate()
        return f"not done after {seconds:.0f} s"
    finally:
        _running.discard(process)
    return None if process.returncode == 0 else _last_words(output)


def end_all() -> None:
    """Whatever runs now: its verdict says nothing."""
    for process in list(_running):
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """End the process and its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _last_words(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    named = [line for line in lines if line.startswith(("FAILED", "ERROR", "seed"))]
    return (named or lines or ["it ended without a word"])[-1][:200]


def patience_of(tree: ShadowTree, paths: set[str], seeds: int) -> dict[str, float]:
    """The time limit of each judge of these modules, from its time for the unchanged tree.

    Raises RuntimeError: something is wrong without any mutant.
    """
    found: dict[str, float] = {}
    done: set[tuple[str, ...]] = set()
    for path in sorted(paths):
        for each in judges_of(path, seeds):
            if each.command in done:
                continue
            done.add(each.command)
            began = time.monotonic()
            wrong = run(tree, each, 3_600)
            if wrong is not None:
                raise RuntimeError(f"without a mutant {each.name} fails: {wrong}")
            needs = PATIENCE * (time.monotonic() - began)
            found[each.name] = max(needs, LEAST_SECONDS, found.get(each.name, 0))
    return found


def tree_for(folder: Path) -> ShadowTree:
    """Its package is the one that a process sees: asserted once, for everything rests on it."""
    tree = ShadowTree(folder)
    tree.put("groups/__init__.py", '"""A mutant."""\n')
    seen = subprocess.run(
        [sys.executable, "-c", "import bradbury.groups as it; print(it.__doc__)"],
        cwd=ROOT,
        env=tree.environment(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    tree.clear()
    if seen != "A mutant.\n":
        raise RuntimeError(f"the package is not imported from {folder}")
    return tree
