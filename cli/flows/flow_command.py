"""The command `bradbury flow run FLOW.yaml`: run a flow and show its progress.

Ctrl-C ends it after the current batch, with exit code 0; run again, it continues from there.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..terminal.app import App
from ..terminal.bootstrap_address import bootstrap_servers
from ..terminal.failure import UsageError
from ..terminal.interrupt import stop_at_interrupt
from ..terminal.options import AsJson, Bootstrap
from ..terminal.output import count_text, make_table, note, print_json

if TYPE_CHECKING:
    from ...pipelines.flows.flow_progress import FlowProgress

SHOW_SECONDS = 5.0
"""Seconds between progress lines where there is no terminal."""
COLUMNS = ("target", "records read", "records/s", "behind", "batches")

flow = App(
    help="Run topics through Spark or Ray Data into topics and tables.", no_args_is_help=True
)


@flow.command()
def run(
    path: Annotated[Path, typer.Argument(metavar="FLOW", help="Flow file, FLOW.yaml or FLOW.py.")],
    once: Annotated[
        bool, typer.Option("--once", help="End when all records that are there now are processed.")
    ] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Run a flow until Ctrl-C, or once; run again, it continues where it ended."""
    from ...pipelines.flows.flow_file import read_flow
    from ...pipelines.flows.run_flow import run_flow

    if not path.is_file():
        raise UsageError(f"{path}: there is no such file")
    began = time.monotonic()
    try:
        with stop_at_interrupt() as stop:
            read_flow(path)  # errors of the file are reported whether or not there is a cluster
            with _shown() as show:
                found = run_flow(
                    path,
                    once=once,
                    bootstrap_servers=bootstrap_servers(bootstrap),
                    stop=stop,
                    on_progress=show,
                )
    except ValueError as error:
        raise UsageError(str(error)) from None
    if as_json:
        names = ("records", "batches", "behind")
        print_json({one.target: {name: getattr(one, name) for name in names} for one in found})
    else:
        for one in found:
            note(f"{one.target}: {_done(one)}")
        note(f"{time.monotonic() - began:.1f} s")


@contextmanager
def _shown() -> Iterator[Callable[[Sequence[FlowProgress]], None]]:
    """Yield a function that shows progress: a live table on a terminal, else lines at intervals."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield lambda found: live.update(
            make_table(COLUMNS, [_row(one) for one in found], width=console.width), refresh=True
        )


class _Lines:
    def __init__(self) -> None:
        self._shown_at = -SHOW_SECONDS

    def __call__(self, found: Sequence[FlowProgress]) -> None:
        if time.monotonic() - self._shown_at < SHOW_SECONDS:
            return
        self._shown_at = time.monotonic()
        for one in found:
            so_far = "" if one.records is None else " so far"
            behind = ""
            if one.records is not None and one.behind is not None:
                behind = f", {count_text(one.behind, 'record')} behind"
            rate = "" if one.records is None else f", {round(one.per_second):,} records/s"
            note(f"{one.target}: {_done(one)}{so_far}{rate}{behind}")


def _done(one: FlowProgress) -> str:
    """Progress of a target in words. Records are counted as they are read, before the steps."""
    if one.records is not None:
        return f"{count_text(one.records, 'record')} read"
    return "written whole" if one.batches else "not written yet"


def _row(one: FlowProgress) -> tuple[object, ...]:
    return one.target, one.records, round(one.per_second), one.behind, one.batches
