"""Charts of the mean arrival delay per airport and month: in the terminal, and as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...discovery.extras import install_command
from ..terminal.failure import CommandFailed
from .delivery_check import Delays

if TYPE_CHECKING:
    from rich.table import Table

ByMonth = Mapping[tuple[str, int], Delays]

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")
"""Colors that colour-blind people can distinguish, too (Paul Tol's bright scheme)."""
BAR_WIDTH = 18


def chart_table(by_month: ByMonth) -> Table:
    """Table with a row per month and a bar per airport; bars of early arrivals point left."""
    from rich import box
    from rich.bar import Bar
    from rich.table import Table
    from rich.text import Text

    origins, means = _means(by_month)
    low = min(0.0, *means.values())
    span = max(0.0, *means.values()) - low or 1.0
    table = Table(title="mean arrival delay, minutes", box=box.SIMPLE, title_justify="left")
    table.add_column("")
    for origin in origins:
        table.add_column(origin, justify="right")
        table.add_column("")
    for number, name in enumerate(MONTHS, start=1):
        cells: list[Text | Bar] = []
        for place, origin in enumerate(origins):
            mean = means.get((origin, number))
            if mean is None:
                cells += [Text("-"), Text("")]
                continue
            begin, end = sorted((-low, mean - low))
            color = COLORS[place % len(COLORS)]
            cells += [Text(f"{mean:.1f}"), Bar(span, begin, end, width=BAR_WIDTH, color=color)]
        table.add_row(name, *cells)
    return table


def write_picture(by_month: ByMonth, path: Path) -> None:
    """Write the chart as a picture, in the format of the file's suffix.

    Raises:
        CommandFailed: matplotlib is missing, or it cannot write such a file there.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise CommandFailed(f"--plot needs matplotlib: {install_command('demo')}") from None

    origins, means = _means(by_month)
    figure = Figure(figsize=(10, 5), layout="constrained")  # no pyplot: it keeps figures alive
    axes = figure.subplots()
    width = 0.8 / len(origins)
    for place, origin in enumerate(origins):
        heights = [means.get((origin, month), 0.0) for month in range(1, 13)]
        shift = (place - (len(origins) - 1) / 2) * width
        axes.bar(
            [month + shift for month in range(12)],
            heights,
            width,
            label=origin,
            color=COLORS[place % len(COLORS)],
        )
    axes.set_xticks(range(12), MONTHS)
    axes.set_ylabel("mean arrival delay (minutes)")
    axes.set_title("Flights from New York City in 2013: how late they arrived")
    axes.axhline(0, color="black", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(title="from", frameon=False)
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise CommandFailed(f"the picture {path} cannot be written: {error}") from None


def _means(by_month: ByMonth) -> tuple[list[str], dict[tuple[str, int], float]]:
    means = {key: delays.mean for key, delays in by_month.items()}
    return (
        sorted({origin for origin, _ in by_month}),
        {key: mean for key, mean in means.items() if mean is not None},
    )
