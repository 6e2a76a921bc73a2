"""Progress bars: on stderr, only on a terminal, and erased when the work is done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

Advance = Callable[[int], None]


@contextmanager
def progress_bar(
    label: str, total: int | None, unit: Literal["bytes", "records"] = "bytes"
) -> Iterator[Advance]:
    """Yield a function to call with each increment. total: None if unknown, so the bar pulses.

    If stderr is not a terminal nothing is shown, and nothing is imported for it.
    """
    if not sys.stderr.isatty():
        yield lambda amount: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    amounts = (
        (DownloadColumn(), TransferSpeedColumn()) if unit == "bytes" else (MofNCompleteColumn(),)
    )
    columns = (TextColumn(label, markup=False), BarColumn(), *amounts, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda amount: progress.advance(task, amount)
