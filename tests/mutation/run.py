"""make mutants: does anything notice when a line of the core is wrong?

    python -m bradbury.tests.mutation.run --mutants 150 [--seed 1] [--jobs 2] [--seeds 40]
    python -m bradbury.tests.mutation.run --only "groups/*" --mutants 20
    python -m bradbury.tests.mutation.run --at coordinators/coordinator_loader.py:77    all of one line

A sample of the mutants of the pure core, half of them in step objects; the same for the same seed
and source. Each runs against the simulation and the fast tests (judges.py). What became of a mutant
is kept in .cache/mutants.jsonl and not run again, so an interrupted run goes on where it was; it is
run again when its function has changed, and with --again. With --record those that were noticed are written
to noticed.jsonl, beside this file, so that a checkout need not begin anew. Survivors are shown with their
differences; those in explained.toml change nothing that anybody could notice, and why.
Exit code 1: less than nine of ten were noticed, or an unexplained mutant survived.
"""

from __future__ import annotations

import argparse
import difflib
import fnmatch
import hashlib
import json
import os
import queue
import signal
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from .judges import JUDGES, Verdict, end_all, judge, judges_of, patience_of, tree_for
from .mutations import Mutation, mutations_of
from .shadow import ROOT, ShadowTree

KEPT = ROOT / ".cache" / "mutants.jsonl"
NOTICED = Path(__file__).with_name("noticed.jsonl")
EXPLAINED = Path(__file__).with_name("explained.toml")
CORE = (
    "cluster/**/*.py",
    "storage/**/*.py",
    "coordinators/**/*.py",
    "groups/**/*.py",
    "transactions/**/*.py",
    "replication/**/*.py",
    "controller/**/*.py",
)
STEPS = (
    "replication/*",
    "controller/*",
    "coordinators/*",
    "groups/coordinator/*",
    "transactions/*",
)
"""Where the order of things is decided."""
ENOUGH = 0.9


def all_mutations(only: Iterable[str] = ("*",)) -> list[Mutation]:
    """The mutations of modules whose path matches one of `only`."""
    paths = sorted({path for pattern in CORE for path in ROOT.glob(pattern)})
    found: list[Mutation] = []
    for path in paths:
        name = path.relative_to(ROOT).as_posix()
        if any(fnmatch.fnmatch(name, pattern) for pattern in only):
            found += mutations_of(name, path.read_text())
    return found


def sample(mutations: list[Mutation], count: int, seed: int) -> list[Mutation]:
    """Half of them in steps, as far as there are any.

    Each mutant has its own lot, so most of a sample stays the same while the source changes. The
    order is that of the lots: the first few of a long run already say something.
    """

    def rank(mutation: Mutation) -> bytes:
        return hashlib.sha256(f"{seed} {mutation.mutation_id}".encode()).digest()

    steps = sorted((each for each in mutations if _is_step(each.path)), key=rank)
    rules = sorted((each for each in mutations if not _is_step(each.path)), key=rank)
    of_steps = max(min(len(steps), count // 2), count - len(rules))
    return sorted(steps[:of_steps] + rules[: count - of_steps], key=rank)


def _is_step(path: str) -> bool:
    return any(fnmatch.fnmatch(path, pattern) for pattern in STEPS)


def read_kept() -> dict[str, dict[str, Any]]:
    """The results of earlier runs, by mutation id."""
    found: dict[str, dict[str, Any]] = {}
    for file in (NOTICED, KEPT):
        if file.exists():
            found |= {kept["id"]: kept for kept in map(json.loads, file.read_text().splitlines())}
    return found


def record(kept: Mapping[str, Mapping[str, Any]], current: Iterable[Mutation]) -> None:
    """Write down those of `current` that were noticed; an id is void when its function changes."""
    lines = [
        json.dumps({name: kept[one][name] for name in ("id", "path", "line", "kind", "by")})
        for one in sorted(
            {each.mutation_id for each in current} & kept.keys(),
            key=lambda one: (kept[one]["path"], kept[one]["line"], one),
        )
        if kept[one]["by"] is not None
    ]
    NOTICED.write_text("".join(f"{line}\n" for line in lines))


def keep(mutation: Mutation, verdict: Verdict, patch: str) -> dict[str, Any]:
    kept = {
        "id": mutation.mutation_id,
        "path": mutation.path,
        "line": mutation.line,
        "function": mutation.function,
        "kind": mutation.kind,
        "by": verdict.by,
        "says": verdict.says,
        "seconds": round(verdict.seconds, 1),
        "patch": patch,
    }
    KEPT.parent.mkdir(exist_ok=True)
    with KEPT.open("a") as file:
        file.write(json.dumps(kept) + "\n")
    return kept


def read_explained() -> dict[str, str]:
    """Why a mutant that survives is no loss, by mutation id."""
    return dict(tomllib.loads(EXPLAINED.read_text()))


def run_all(
    console: Console, mutations: list[Mutation], jobs: int, seeds: int
) -> dict[str, dict[str, Any]]:
    """What became of each, by id."""
    done: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, progress(console) as shown:
        trees: queue.SimpleQueue[ShadowTree] = queue.SimpleQueue()
        for number in range(jobs):
            trees.put(tree_for(Path(folder) / str(number)))
        task = shown.add_task("the tree as it is", total=len(mutations))
        first = trees.get()
        patience = patience_of(first, {each.path for each in mutations}, seeds)
        trees.put(first)

        def try_one(mutation: Mutation) -> tuple[Mutation, Verdict, str]:
            tree = trees.get()
            try:
                source = (tree.package / mutation.path).read_text()
                tree.put(mutation.path, mutation.apply(source))
                verdict = judge(tree, judges_of(mutation.path, seeds), patience)
                return mutation, verdict, patch_of(mutation, source)
            finally:
                tree.clear()
                trees.put(tree)

        pool = ThreadPoolExecutor(jobs)
        try:
            survived = 0
            for future in as_completed([pool.submit(try_one, each) for each in mutations]):
                mutation, verdict, patch = future.result()
                done[mutation.mutation_id] = keep(mutation, verdict, patch)
                survived += verdict.by is None
                shown.update(task, advance=1, description=f"mutants, {survived} survived")
        finally:
            # After Ctrl-C: what runs is ended without being kept, and the rest is for the next run.
            pool.shutdown(wait=False, cancel_futures=True)
            end_all()
            pool.shutdown()
    return done


def progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
    )


def table_of(
    mutations: list[Mutation], kept: dict[str, dict[str, Any]], explained: dict[str, str]
) -> Table:
    """The table of which judge noticed, by folder and by kind."""
    table = Table(
        "mutants", "made", *JUDGES, "explained", "survived",
        title="what notices a wrong line", title_justify="left",
    )  # fmt: skip
    rows: dict[str, Counter[str]] = {}
    for mutation in mutations:
        by = kept[mutation.mutation_id]["by"]
        if by is None:
            by = "explained" if mutation.mutation_id in explained else "survived"
        for row in (f"{mutation.path.partition('/')[0]}/", mutation.kind, "all"):
            rows.setdefault(row, Counter())[by] += 1
    for row in sorted(rows, key=lambda row: (row == "all", not row.endswith("/"), row)):
        names = (*JUDGES, "explained", "survived")
        counts = rows[row]
        table.add_row(row, str(counts.total()), *(str(counts[name]) for name in names))
    return table


def patch_of(mutation: Mutation, source: str) -> str:
    """What the mutation changes in its module, with two lines around."""
    lines = difflib.unified_diff(
        source.splitlines(), mutation.apply(source).splitlines(), lineterm="", n=2
    )
    return "\n".join(list(lines)[2:])


def show(
    console: Console,
    mutations: list[Mutation],
    kept: dict[str, dict[str, Any]],
    explained: dict[str, str],
) -> int:
    console.print(table_of(mutations, kept, explained))
    survivors = [each for each in mutations if kept[each.mutation_id]["by"] is None]
    for mutation in sorted(survivors, key=lambda each: (each.path, each.line)):
        console.rule(f"{mutation.path}:{mutation.line} {mutation.kind} in {mutation.function}")
        console.print(
            kept[mutation.mutation_id]["patch"], markup=False, highlight=False, soft_wrap=True
        )
        reason = explained.get(mutation.mutation_id, "not explained")
        console.print(f"{mutation.mutation_id}: {reason}", markup=False, highlight=False)
    noticed = len(mutations) - len(survivors)
    unexplained = [each for each in survivors if each.mutation_id not in explained]
    console.print(f"{noticed} of {len(mutations)} noticed, {len(unexplained)} not explained")
    return 1 if unexplained or noticed < ENOUGH * len(mutations) else 0


def arguments() -> Iterator[tuple[str, dict[str, object]]]:
    yield "--mutants", {"type": int, "default": 150}
    yield "--seed", {"type": int, "default": 1, "help": "which sample"}
    yield "--seeds", {"type": int, "default": 40, "help": "of the simulation, for each mutant"}
    yield "--jobs", {"type": int, "default": os.cpu_count() or 1}
    yield "--only", {"action": "append", "help": "modules, as a pattern of their path"}
    yield "--at", {"help": "all mutants of one line: path:line"}
    yield "--record", {"action": "store_true", "help": "what is known, in noticed.jsonl; no run"}
    yield "--again", {"action": "store_true", "help": "also those that were run before"}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, rest in arguments():
        parser.add_argument(name, **rest)  # type: ignore[arg-type]  # as argparse has it
    given = parser.parse_args()
    console = Console()
    if given.record:
        record(read_kept(), all_mutations())
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if given.at:
        path, _, line = given.at.partition(":")
        mutations = [each for each in all_mutations((path,)) if str(each.line) == line]
    else:
        mutations = sample(all_mutations(given.only or ("*",)), given.mutants, given.seed)
    if not mutations:
        parser.error(
            "no mutants there; give paths from the package's root, e.g. groups/classic/join.py"
        )
    kept = {} if given.again else read_kept()
    left = [each for each in mutations if each.mutation_id not in kept]
    if left:
        kept |= run_all(console, left, given.jobs, given.seeds)
    return show(console, mutations, kept, read_explained())


if __name__ == "__main__":
    raise SystemExit(main())
