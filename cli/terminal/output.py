"""Output of commands: results to stdout, as tables or JSON; everything else to stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console, Group, RenderableType
    from rich.table import Table
    from rich.text import Text

UNLIMITED = 100_000
PADDING = 2
FOLDED = 24
"""Minimum width that a long cell is folded to; shorter cells are not folded."""
PROSE = 120
FOLDED_PROSE = 32
"""Minimum width that a cell longer than PROSE is folded to."""


def print_json(value: object) -> None:
    """Print `value` as indented JSON; values that are no JSON type are converted with str()."""
    typer.echo(json.dumps(value, indent=2, default=str))


def print_json_line(value: object) -> None:
    """Print `value` as one line of JSON, for long or endless listings."""
    typer.echo(json.dumps(value, default=str, ensure_ascii=False))


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    optional: Sequence[str] = (),
) -> None:
    """Print a table as wide as the terminal; elsewhere each row is a line of any length.

    Args:
        columns: the headings.
        rows: the cells; columns of numbers are aligned right.
        title: a line above it.
        optional: columns to omit, in this order, if there is no room for all.
    """
    console, cells = table_console(), _cells(rows)
    kept = _that_fit(console.width, columns, cells, optional)
    if kept is None:
        console.print(_one_below_the_other(columns, cells, title))
        return
    shown = [[row[number] for number in kept] for row in cells]
    if title is not None:
        console.print(_heading(title), soft_wrap=True)
    console.print(_table([columns[number] for number in kept], shown), "")
    left_out = [column for number, column in enumerate(columns) if number not in kept]
    if left_out:
        note(f"no room for {', '.join(left_out)} in {console.width} columns; --json has all")


def make_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    width: int,
    title: str | None = None,
    optional: Sequence[str] = (),
) -> RenderableType:
    """Make the table of `print_table` for a terminal of `width` columns."""
    from rich.console import Group

    cells = _cells(rows)
    kept = _that_fit(width, columns, cells, optional)
    if kept is None:
        kept = [number for number, column in enumerate(columns) if column not in optional]
    shown = [[row[number] for number in kept] for row in cells]
    table = _table([columns[number] for number in kept], shown)
    return table if title is None else Group(_heading(title), table)


def table_console() -> Console:
    """Console for tables on stdout: as wide as the terminal; without one, as wide as they are."""
    from rich.console import Console

    # COLUMNS applies to a pipe, too: rich reads it if no width is given.
    unlimited = not sys.stdout.isatty() and not os.environ.get("COLUMNS", "").isdecimal()
    return Console(width=UNLIMITED if unlimited else None, highlight=False)


def _cells(rows: Iterable[Sequence[object]]) -> list[Sequence[object]]:
    return [["" if cell is None else cell for cell in row] for row in rows]


def _that_fit(
    width: int,
    columns: Sequence[str],
    cells: Sequence[Sequence[object]],
    optional: Sequence[str],
) -> list[int] | None:
    """Numbers of the columns that fit into `width`, with long cells folded; None: too narrow."""
    from rich.cells import cell_len

    least = []
    for number, column in enumerate(columns):
        longest = max((cell_len(_cell(row[number])) for row in cells), default=0)
        limit = FOLDED_PROSE if longest > PROSE else FOLDED
        least.append(max(cell_len(column), min(longest, limit)))
    kept = list(range(len(columns)))
    left_out = [columns.index(name) for name in optional]
    while sum(least[number] + PADDING for number in kept) - PADDING > width:
        if not left_out:
            return None
        kept.remove(left_out.pop(0))
    return kept


def _heading(title: str) -> Text:
    from rich.text import Text

    return Text(title, style="bold")


def _table(columns: Sequence[str], cells: Sequence[Sequence[object]]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for number, column in enumerate(columns):
        numeric = bool(cells) and all(_is_number(row[number]) for row in cells)
        longest = max((len(_cell(row[number])) for row in cells), default=0)
        table.add_column(
            column,
            justify="right" if numeric else "left",
            overflow="fold",
            no_wrap=longest <= FOLDED,
            min_width=min(longest, FOLDED_PROSE if longest > PROSE else FOLDED),
        )
    for row in cells:
        table.add_row(*(Text(_cell(cell)) for cell in row))
    return table


def _one_below_the_other(
    columns: Sequence[str], cells: Sequence[Sequence[object]], title: str | None
) -> Group:
    """Format each row as lines of heading and cell, for a terminal too narrow for a table."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    blocks: list[Any] = [] if title is None else [_heading(title), ""]
    for row in cells:
        block = Table.grid(padding=(0, PADDING))
        block.add_column(no_wrap=True)
        block.add_column(overflow="fold")
        for column, cell in zip(columns, row, strict=True):
            block.add_row(column, Text(_cell(cell)))
        blocks += [block, ""]
    return Group(*blocks)


def note(text: str) -> None:
    """Print a remark to stderr, apart from the results."""
    typer.echo(text, err=True)


def count_text(number: int, noun: str) -> str:
    """Format a number with its noun: "1 record", "10,000 records"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size_text(size_bytes: float) -> str:
    """Format a number of bytes, such as "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TiB"


def _is_number(cell: Any) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _cell(cell: object) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return f"{cell:,.1f}"
    return str(cell)
