"""Results of a measurement: percentiles and rates, as a table, JSON or a chart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from ...discovery.extras import install_command
from ..terminal.failure import CommandFailed
from ..terminal.output import print_json, print_table

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Milliseconds = npt.NDArray[np.float64]

PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)
COLORS: Final = ("#4477aa", "#ee6677")


@dataclass(slots=True)
class Measurement:
    """Figures of one run.

    times: milliseconds by name, one for each record (or each sampled one, or each poll).
    rates: (seconds since the beginning, records so far), in order.
    """

    title: str
    records: int
    bytes: int
    seconds: float
    times: Mapping[str, Milliseconds] = field(default_factory=dict)
    rates: list[tuple[float, int]] = field(default_factory=list)
    remarks: Mapping[str, float] = field(default_factory=dict)

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds if self.seconds > 0 else 0.0

    @property
    def megabytes_per_second(self) -> float:
        return self.bytes / 1e6 / self.seconds if self.seconds > 0 else 0.0


def percentiles(times: Milliseconds) -> dict[str, float]:
    """Percentiles p50, p95, p99, p99.9, mean and max, by name; {} if `times` is empty."""
    import numpy as np

    if not len(times):
        return {}
    found = {
        f"p{percent:g}": float(value)
        for percent, value in zip(PERCENTILES, np.percentile(times, PERCENTILES), strict=True)
    }
    return {**found, "mean": float(times.mean()), "max": float(times.max())}


def report(measured: Measurement, *, as_json: bool, plot: Path | None) -> None:
    """Print the figures; draw them to `plot`, if it is given."""
    if plot is not None:
        write_plot(measured, plot)
    if as_json:
        print_json(_json_of(measured))
        return
    typer.echo(measured.title)
    print_table(
        ("records", "seconds", "records/s", "MB/s"),
        [
            (
                measured.records,
                f"{measured.seconds:.2f}",
                f"{measured.records_per_second:,.0f}",
                f"{measured.megabytes_per_second:,.1f}",
            )
        ],
    )
    rows = [(name, percentiles(times)) for name, times in measured.times.items() if len(times)]
    if rows:
        names = list(rows[0][1])
        print_table(
            ("ms", *names),
            [(name, *(f"{found[column]:.2f}" for column in names)) for name, found in rows],
        )
    if measured.remarks:
        print_table(("", "ms"), [(name, f"{ms:.1f}") for name, ms in measured.remarks.items()])


def write_plot(measured: Measurement, path: Path) -> None:
    """Draw times by percentile and records per second over time, in the file's format.

    Raises:
        CommandFailed: matplotlib is missing, or it cannot write such a file there.
    """
    import numpy as np

    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise CommandFailed(f"--plot needs matplotlib: {install_command('demo')}") from None

    times = {name: np.sort(found) for name, found in measured.times.items() if len(found)}
    figure = Figure(figsize=(10, 4), layout="constrained")  # no pyplot: it keeps figures alive
    axes = figure.subplots(1, 2 if times else 1, squeeze=False)[0]
    for color, (name, found) in zip(COLORS, times.items(), strict=False):
        axes[0].plot(100 * np.arange(1, len(found) + 1) / len(found), found, color, label=name)
    if times:
        axes[0].set(xlabel="percentile", ylabel="milliseconds", yscale="log", xlim=(0, 100))
        axes[0].legend(frameon=False)
    seconds = [0.0, *(moment for moment, _ in measured.rates)]
    counts = [0, *(count for _, count in measured.rates)]
    if len(seconds) > 1:
        spans = np.maximum(np.diff(seconds), 1e-9)
        axes[-1].plot(seconds[1:], np.diff(counts) / spans, COLORS[0])
    axes[-1].set(xlabel="seconds", ylabel="records per second")
    axes[-1].set_ylim(bottom=0)
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
    figure.suptitle(measured.title)
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise CommandFailed(f"the picture {path} cannot be written: {error}") from None


def _json_of(measured: Measurement) -> dict[str, Any]:
    return {
        "title": measured.title,
        "records": measured.records,
        "bytes": measured.bytes,
        "seconds": round(measured.seconds, 4),
        "records_per_second": round(measured.records_per_second, 1),
        "megabytes_per_second": round(measured.megabytes_per_second, 3),
        **{
            f"{name.replace(' ', '_')}_ms": {
                key: round(value, 4) for key, value in percentiles(times).items()
            }
            for name, times in measured.times.items()
        },
        **{f"{name.replace(' ', '_')}_ms": round(ms, 3) for name, ms in measured.remarks.items()},
    }
