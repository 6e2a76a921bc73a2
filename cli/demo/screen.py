"""Terminal output of the demo, while it runs and at the end.

With --json it is written to stderr, so that stdout has only the summary.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from .delivery_check import Delays

MOST_CARRIERS = 16


@dataclass(frozen=True, slots=True)
class Step:
    """Row of the summary. rows: number of rows processed; 0 for a step without rows."""

    name: str
    rows: int
    seconds: float

    @property
    def rows_per_second(self) -> float | None:
        return self.rows / self.seconds if self.rows and self.seconds > 0 else None


class Screen:
    def __init__(self, *, stderr: bool) -> None:
        # A duplicated descriptor: it keeps drawing while stdout and stderr are redirected.
        descriptor = os.dup((sys.stderr if stderr else sys.stdout).fileno())
        self.console = Console(file=os.fdopen(descriptor, "w"), highlight=False)

    def say(self, text: str | RenderableType) -> None:
        # Not wrapped, so that commands in it can be copied.
        self.console.print(text, markup=False, soft_wrap=isinstance(text, str))

    @contextmanager
    def waiting(self, text: str) -> Iterator[Callable[[str], None]]:
        """Show a spinner; yield a function that appends text to its label."""
        with self.console.status(text) as spinner:
            yield lambda more: spinner.update(f"{text}: {more}")

    @contextmanager
    def counting(
        self, text: str, total: int, below: Callable[[], RenderableType] | None = None
    ) -> Iterator[Callable[[int], None]]:
        """Show a bar; yield a function that takes the rows done. `below` is drawn under it."""
        progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
        )
        task = progress.add_task(text, total=total)

        def picture() -> RenderableType:
            return progress if below is None else Group(progress, below())

        with Live(
            get_renderable=picture, console=self.console, refresh_per_second=5, transient=True
        ):
            yield lambda done: progress.update(task, completed=done)


def carrier_table(by_carrier: Mapping[str, Delays], airlines: Mapping[str, str]) -> Table:
    """Table of flights and mean delay per carrier, most flights first."""
    table = Table(title="per carrier", title_justify="left", box=box.SIMPLE)
    table.add_column("carrier")
    for name in ("flights", "mean delay (min)"):
        table.add_column(name, justify="right")
    ranked = sorted(by_carrier.items(), key=lambda item: -item[1].flights)
    for carrier, delays in ranked[:MOST_CARRIERS]:
        mean = "-" if delays.mean is None else f"{delays.mean:.1f}"
        table.add_row(f"{carrier} {airlines.get(carrier, '')}", f"{delays.flights:,}", mean)
    return table


def step_table(steps: list[Step]) -> Table:
    table = Table(title="what happened", title_justify="left", box=box.SIMPLE)
    table.add_column("step")
    for name in ("rows", "seconds", "rows/s"):
        table.add_column(name, justify="right")
    for step in steps:
        rate = step.rows_per_second
        table.add_row(
            step.name,
            f"{step.rows:,}" if step.rows else "",
            f"{step.seconds:.1f}",
            "" if rate is None else f"{rate:,.0f}",
        )
    return table
