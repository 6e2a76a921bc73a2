"""python -m bradbury.tests.crash.run --seconds 60 --nemeses B1,B6: crashes on a Ray of its own.

A cluster for each nemesis, one after the other, on three Ray nodes. Prints a table of what was found;
another one of those called T, which have transactions (see chains).
Exit code 0: nothing wrong; 1: something is, and its history is kept, with the actors' logs.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bradbury.cli.terminal.output import table_console
from bradbury.tests.compatibility.support.kafka_jars import unavailable_reason
from bradbury.tests.groups_soak import checker as group_checker
from bradbury.tests.groups_soak.history import read_history as read_group_history
from bradbury.tests.support.ray.ray_nodes import RayNode

from .chains.chain_evidence import evidence
from .chains.chain_nemesis import CHAIN_NEMESES, ChainNemesis
from .chains.chain_run import ChainFigures, run_chain
from .checker import check, excerpt, report
from .cluster import NODES, CrashCluster, crash_nodes, keep_logs, ray_of_its_own
from .faults.nemesis import NEMESES
from .faults.networks import NotHere, own_networks
from .figures import Figures, measure
from .harness import GROUP_FOLDER, RATE, REPLICATION_FACTOR, TOPIC, CrashRun
from .history import read_history, write_json
from .replicas import compare, read_replicas
from .scene import Nemesis

COLUMNS = {
    "nemesis": "nemesis",
    "faults": "injected",
    "acknowledged": "acknowledged",
    "lost": "lost",
    "duplicated": "duplicated",
    "reordered": "reordered",
    "divergent": "divergent",
    "other": "other",
    "group_faults": "of groups",
    "produce_gap": "longest produce gap, s",
    "produce_gap_confluent": "of librdkafka, s",
    "gap_per_fault": "median per fault, s",
    "consume_gap": "longest consume gap, s",
    "under_replicated": "longest under-replicated, s",
    "elections": "elections",
}
CHAIN_COLUMNS = {
    "nemesis": "nemesis",
    "faults": "injected",
    "transactions": "committed transactions",
    "records": "records",
    "aborted_records": "aborted records and markers",
    "violations": "violations",
    "longest_open": "longest wait of a stable offset, s",
    "successions": "processes that were fenced or gave up",
    "heal_seconds": "until whole again, s",
}
ALL = (*NEMESES, *CHAIN_NEMESES)
CHAIN_CONFIG = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}


def run_one(
    nodes: list[RayNode],
    folder: Path,
    nemesis: Nemesis,
    seconds: float,
    *,
    config: Mapping[str, Any] | None = None,
    on_progress: Callable[[float, str], None] = lambda seconds, text: None,
    **options: Any,
) -> tuple[Figures, list[str]]:
    """A cluster, a run on it, the cluster's end, and what is wrong: figures and lines for people."""
    began = time.time()
    on_progress(-1, "the cluster starts")
    try:
        settings = {**nemesis.config, **(config or {})} or None
        with nemesis.cluster(nodes, folder / "data", settings) as cluster:
            run = CrashRun(cluster, folder, nemesis, on_progress=on_progress, **options)
            outcome = run.run(seconds)
    finally:
        keep_logs(folder, began)
    on_progress(-1, "checking")
    history = read_history(folder)
    faults = check(history)
    group_faults = group_checker.check(read_group_history(folder / GROUP_FOLDER))
    comparison = compare(read_replicas(folder / "data", TOPIC), history, REPLICATION_FACTOR)
    figures = measure(
        nemesis.name, seconds, history, faults, len(group_faults), comparison, outcome
    )
    lines = [*report(faults), *group_checker.report(group_faults), *outcome.problems]
    for what in ("divergent", "misplaced", "missing", "behind"):
        found = getattr(comparison, what)
        lines += [f"{what}: {len(found)}", *(f"    {one}" for one in found[:5])] if found else []
    for fault in faults[:3]:
        lines += [f"around {fault.where}:", *(f"    {one}" for one in excerpt(history, fault))]
    write_json(folder / "figures.json", figures.to_json())
    if lines:
        (folder / "found.txt").write_text("\n".join(lines) + "\n")
    return figures, lines


def run_transactions(
    nodes: list[RayNode],
    folder: Path,
    nemesis: ChainNemesis,
    seconds: float,
    *,
    on_progress: Callable[[float, str], None] = lambda seconds, text: None,
    **options: Any,
) -> tuple[ChainFigures, list[str]]:
    """The same of a chain of transactions."""
    began = time.time()
    on_progress(-1, "the cluster starts")
    try:
        with CrashCluster(nodes, folder / "data", CHAIN_CONFIG) as cluster:
            figures, lines = run_chain(
                cluster, folder, nemesis, seconds, on_progress=on_progress, **options
            )
    finally:
        keep_logs(folder, began)
    return figures, [*lines, *evidence(folder)] if lines else []


def columns_of(all_figures: Sequence[Figures | ChainFigures]) -> dict[str, str]:
    return COLUMNS if isinstance(all_figures[0], Figures) else CHAIN_COLUMNS


def show(all_figures: Sequence[Figures | ChainFigures]) -> Table:
    columns = columns_of(all_figures)
    table = Table(*columns.values(), title="crashes", title_justify="left")
    for one in all_figures:
        values = one.to_json()
        table.add_row(*(f"{values[name]}" for name in columns))
    return table


def as_markdown(all_figures: Sequence[Figures | ChainFigures]) -> str:
    """The table as it stands in docs/reliability.md."""
    columns = columns_of(all_figures)
    rows = [list(columns.values()), ["---"] * len(columns)]
    rows += [[str(one.to_json()[name]) for name in columns] for one in all_figures]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="of faults, for each nemesis")
    parser.add_argument("--nemeses", default=",".join(ALL), help="of them: %(default)s")
    parser.add_argument("--seed", type=int, default=random.randrange(100_000))
    parser.add_argument("--rate", type=int, default=RATE, help="records a second, of each writer")
    parser.add_argument("--keep", type=Path, default=None, help="keep the histories here, always")
    parser.add_argument("--json", action="store_true", help="figures as JSON, one run a line")
    parser.add_argument("--markdown", action="store_true", help="the table for the docs")
    options = parser.parse_args()
    names = [name for name in options.nemeses.split(",") if name]
    if unknown := sorted(set(names) - set(ALL)):
        parser.error(f"no nemesis is called {', '.join(unknown)}; there are {', '.join(ALL)}")
    base = options.keep or Path(tempfile.mkdtemp(prefix="crash-"))
    console = Console(stderr=True)
    console.print(f"seed {options.seed}; histories are written to {base}", highlight=False)
    done: list[Figures | ChainFigures] = []
    broken: list[str] = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[text]}"),
    )
    with ExitStack() as stack:
        nodes: list[RayNode] = []
        of_records = [NEMESES[name] for name in names if name in NEMESES]
        if len(of_records) < len(names) or any(one.cluster is CrashCluster for one in of_records):
            networks = None
            if any(one.needs_networks for one in of_records):
                try:
                    networks = stack.enter_context(own_networks(NODES))
                except NotHere as error:
                    parser.error(str(error))
            here, others = networks or (None, ())
            address = stack.enter_context(ray_of_its_own(here))
            nodes = stack.enter_context(crash_nodes(address, others))
        with Progress(*columns, console=console) as progress:
            for number, name in enumerate(names):
                task = progress.add_task(name, total=options.seconds, text="")

                def on_progress(seconds: float, text: str, task=task) -> None:
                    known = {} if seconds < 0 else {"completed": seconds}
                    progress.update(task, text=text, **known)

                folder = base / f"{number}-{name}-{options.seed}"
                folder.mkdir(parents=True)
                given = (nodes, folder)
                settings = {"seed": options.seed, "on_progress": on_progress}
                figures: Figures | ChainFigures
                try:
                    if name in CHAIN_NEMESES:
                        nemesis = CHAIN_NEMESES[name]
                        settings["java"] = not unavailable_reason()
                        figures, lines = run_transactions(
                            *given, nemesis, options.seconds, **settings
                        )
                    else:
                        figures, lines = run_one(
                            *given, NEMESES[name], options.seconds, rate=options.rate, **settings
                        )
                except Exception:  # the other nemeses are worth their time
                    console.print_exception()
                    broken.append(name)
                    continue
                done.append(figures)
                text = "nothing wrong" if figures.is_good else "SOMETHING IS WRONG"
                progress.update(task, completed=options.seconds, text=text)
                for line in lines:
                    progress.console.print(line, markup=False, highlight=False, soft_wrap=True)
    if options.json:
        print("\n".join(json.dumps(one.to_json()) for one in done))
    for kind in (Figures, ChainFigures):
        found = [one for one in done if isinstance(one, kind)]
        if options.json or not found:
            continue
        if options.markdown:
            print(as_markdown(found))
        else:
            table_console().print(show(found))
    if broken or not all(one.is_good for one in done):
        console.print(f"came to no end: {', '.join(broken) or 'none'}", highlight=False)
        console.print(f"seed {options.seed}; the histories are in {base}", highlight=False)
        return 1
    if options.keep is None:
        shutil.rmtree(base)
    return 0


if __name__ == "__main__":
    sys.exit(main())
