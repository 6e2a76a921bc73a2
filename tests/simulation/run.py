"""make simulate SEEDS=20000: many seeds of the simulated cluster, on all cores.

    python -m bradbury.tests.simulation.run --seeds 20000 [--first 600] [--jobs 2]
    python -m bradbury.tests.simulation.run --disks --seeds 2000    seeds that are mostly about disks
    python -m bradbury.tests.simulation.run --damage --seeds 2000   or about damage and its repair
    python -m bradbury.tests.simulation.run --seed 17        one seed, with its transcript
    python -m bradbury.tests.simulation.run --faults 400     planted faults: which are found

The totals of all runs so far are kept in .cache/simulation.json, and the next run begins where the
last one ended. Each seed is run twice: both runs must be the same. Exit code 1: something is wrong;
the transcripts of the first few failing seeds are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from bradbury.tests.simulation.planted.planted_faults import FAULTS, planted, swarm_for
from bradbury.tests.simulation.world.simulated_runs import Outcome, Totals, run_seed
from bradbury.tests.simulation.world.simulated_swarm import damage_seed, disk_seed

TOTALS = Path(__file__).parents[2] / ".cache" / "simulation.json"
SEEDS_OF: dict[str, Callable[[int], object]] = {
    "": lambda number: number,
    "disks": disk_seed,
    "damage": damage_seed,
}
AT_A_TIME = 8
SHOWN = 3


def run_some(first: int, count: int, family: str) -> tuple[list[Outcome], int]:
    """Outcomes, and how many seeds gave another run the second time."""
    outcomes, mismatches = [], 0
    for number in range(first, first + count):
        seed = SEEDS_OF[family](number)
        outcome = run_seed(seed)
        mismatches += run_seed(seed).digest != outcome.digest
        outcomes.append(outcome)
    return outcomes, mismatches


def read_totals() -> Totals:
    try:
        return Totals(**json.loads(TOTALS.read_text()))
    except (OSError, ValueError, TypeError):
        return Totals()


def write_totals(totals: Totals) -> None:
    TOTALS.parent.mkdir(exist_ok=True)
    TOTALS.write_text(json.dumps(totals.to_json(), indent=1))


def progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
    )


def run_many(console: Console, first: int, count: int, jobs: int, *, family: str) -> int:
    totals, failed = Totals(), []
    kept = Totals() if family else read_totals()
    started = time.monotonic()
    starts = list(range(first, first + count, AT_A_TIME))
    sizes = [min(AT_A_TIME, first + count - start) for start in starts]
    with progress(console) as shown, ProcessPoolExecutor(jobs) as pool:
        task = shown.add_task("seeds", total=count)
        for outcomes, mismatches in pool.map(run_some, starts, sizes, repeat(family)):
            for outcome in outcomes:
                for each in (totals, kept):
                    each.add(outcome)
                if outcome.failure is not None:
                    failed.append(outcome)
            for each in (totals, kept):
                each.mismatches += mismatches
            shown.update(
                task, advance=len(outcomes), description=f"seeds, {len(failed)} violations"
            )
            if not family:
                write_totals(kept)
    seconds = time.monotonic() - started
    console.print(table_of(totals, kept, seconds))
    for outcome in failed[:SHOWN]:
        console.rule(f"seed {outcome.seed}: {outcome.failure}")
        for line in outcome.transcript:
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    return 1 if failed or totals.mismatches else 0


def table_of(totals: Totals, kept: Totals, seconds: float) -> Table:
    table = Table(
        "what", "this run", "all runs", title_justify="left", title="the simulated cluster"
    )
    rows = [(name.replace("_", " "), name) for name in Totals.__dataclass_fields__]
    for title, name in rows:
        now, ever = getattr(totals, name), getattr(kept, name)
        if name == "failed":
            table.add_row("violations", f"{len(now):,}", f"{len(ever):,}")
        elif name == "virtual_ms":
            hours = 3_600_000
            table.add_row("virtual hours", f"{now / hours:,.2f}", f"{ever / hours:,.2f}")
        else:
            table.add_row(title, f"{now:,}", f"{ever:,}")
    table.add_row("steps per second", f"{totals.steps / max(seconds, 0.001):,.0f}", "")
    return table


def find(name: str, most: int) -> tuple[str, int | None, str, float]:
    """The first seed that finds a planted fault, and what it says."""
    began = time.process_time()
    with planted(name):
        for seed in range(most):
            outcome = run_seed(seed, swarm_for(name, seed))
            if outcome.failure is not None:
                return name, seed, outcome.failure, time.process_time() - began
    return name, None, "", time.process_time() - began


def score(console: Console, most: int, jobs: int) -> int:
    """How many of the planted faults the simulation finds."""
    table = Table("planted fault", "seeds", "by", "CPU s", title_justify="left")
    found = 0
    with progress(console) as shown, ProcessPoolExecutor(jobs) as pool:
        task = shown.add_task("planted faults", total=len(FAULTS))
        for name, seed, by, seconds in pool.map(find, FAULTS, repeat(most)):
            found += seed is not None
            table.add_row(name, "-" if seed is None else str(seed + 1), by, f"{seconds:.1f}")
            shown.update(task, advance=1)
    console.print(table)
    console.print(f"{found} of {len(FAULTS)} found")
    return 0


def show(console: Console, seed: object, lines: int) -> int:
    outcome = run_seed(seed, lines=lines)
    for line in outcome.transcript or [f"seed {seed}: nothing wrong", f"{outcome}"]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return 1 if outcome.failure is not None else 0


def arguments() -> Iterator[tuple[str, dict[str, object]]]:
    yield "--seeds", {"type": int, "default": 1000}
    yield "--first", {"type": int, "default": None, "help": "default: where the last run ended"}
    yield "--jobs", {"type": int, "default": os.cpu_count() or 1}
    for family in filter(None, SEEDS_OF):
        about = f"seeds mostly about {family}; totals are not kept"
        yield (
            f"--{family}",
            {"dest": "family", "action": "store_const", "const": family, "help": about},
        )
    yield "--seed", {"default": None, "help": "only this one, with its transcript"}
    yield "--lines", {"type": int, "default": 60, "help": "of a transcript"}
    yield "--faults", {"type": int, "default": None, "help": "most seeds for each planted fault"}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, rest in arguments():
        parser.add_argument(name, **rest)  # type: ignore[arg-type]  # as argparse has it
    given = parser.parse_args()
    console = Console()
    if given.seed is not None:
        seed = int(given.seed) if given.seed.isdecimal() else given.seed
        return show(console, seed, given.lines)
    if given.faults is not None:
        return score(console, given.faults, given.jobs)
    first = given.first
    if first is None:
        first = 0 if given.family else read_totals().seeds
    return run_many(console, first, given.seeds, given.jobs, family=given.family or "")


if __name__ == "__main__":
    raise SystemExit(main())
