"""python -m bradbury.tests.groups_soak.run --seconds 600: the proof of groups, on a Ray of its own.

Prints what was done and what the checker found. Exit code 0: nothing wrong; 1: something is, and the
history is kept, with the line that says where.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from .checker import Fault, check, report
from .cluster import coordinator_pids, own_cluster
from .harness import SEATS, Outcome, Soak
from .history import Commit, Generation, History, read_history
from .processes import JAVA


def show(outcome: Outcome, history: History, faults: list[Fault], seconds: float) -> None:
    console = Console()
    table = Table("what", "how much", title=f"groups, {seconds:.0f} s", title_justify="left")
    rows = {"records produced": outcome.produced, **outcome.faults}
    for group in history.groups:
        seen = [one for one in history.seen if one.group == group]
        distinct = len({(one.partition, one.offset) for one in seen})
        commits = sum(isinstance(one, Commit) and one.group == group for one in history.log)
        generations = {
            one.generation
            for one in history.log
            if isinstance(one, Generation) and one.group == group
        }
        rows[f"{group}: records seen"] = distinct
        rows[f"{group}: of them more than once"] = len(seen) - distinct
        rows[f"{group}: commits in the log"] = commits
        rows[f"{group}: generations"] = len(generations)
    rows["seconds to settle"] = round(outcome.settle_seconds)
    for kind, count in Counter(one.kind for one in faults).items():
        rows[f"FAULT {kind}"] = count
    rows["faults"] = len(faults)
    rows["problems"] = len(outcome.problems)
    for name, value in rows.items():
        table.add_row(name, f"{value:,}")
    console.print(table)
    for line in (*report(faults), *outcome.problems):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--nodes", type=int, default=2, help="each has a coordinator")
    parser.add_argument("--pace", type=float, default=1, help="2: faults come twice as fast")
    parser.add_argument("--without", action="append", default=[], help="a kind of client; repeat")
    parser.add_argument("--keep", type=Path, default=None, help="keep the history here in any case")
    parser.add_argument("--check", type=Path, default=None, help="only check a history kept here")
    options = parser.parse_args()
    if options.check is not None:
        faults = check(read_history(options.check))
        print("\n".join(report(faults)) or "no faults")
        return 1 if faults else 0
    folder = options.keep or Path(tempfile.mkdtemp(prefix="groups-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    seats = tuple(seat for seat in SEATS if seat.kind not in options.without)
    if JAVA not in options.without:
        from bradbury.tests.compatibility.support.kafka_jars import (
            kafka_classpath,
            unavailable_reason,
        )

        if kafka_classpath() is None:
            print(f"{unavailable_reason()}; --without {JAVA} goes on", file=sys.stderr)
            return 1
    columns = (
        TextColumn("groups"),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[text]}"),
    )
    print(f"seed {options.seed}; the history is written to {folder}", file=sys.stderr)
    with own_cluster(folder / "data", nodes=options.nodes) as cluster:
        with Progress(*columns, console=Console(stderr=True)) as progress:
            task = progress.add_task("", total=options.seconds, text="")

            def on_progress(seconds: float, text: str) -> None:
                done = {} if seconds < 0 else {"completed": seconds}
                progress.update(task, text=text, **done)

            soak = Soak(
                cluster.bootstrap_servers,
                folder,
                coordinators=lambda: coordinator_pids(cluster),
                seats=seats,
                seed=options.seed,
                pace=options.pace,
                on_progress=on_progress,
            )
            outcome = soak.run(options.seconds)
    history = read_history(folder)
    faults = check(history)
    show(outcome, history, faults, options.seconds)
    if faults or outcome.problems:
        print(f"seed {options.seed}; the history is in {folder}", file=sys.stderr)
        return 1
    if options.keep is None:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
