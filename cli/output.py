"""What commands print: results to stdout, as tables or JSON; everything else to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table


def print_json(value: object) -> None:
    """`value` as JSON, indented; what is no JSON type as text."""
    typer.echo(json.dumps(value, indent=2, default=str))


def print_json_line(value: object) -> None:
    """`value` as one line of JSON: for listings that have no end, or a long one."""
    typer.echo(json.dumps(value, default=str, ensure_ascii=False))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None
) -> None:
    """A table; columns of numbers are set right. Not cut off where the output is no terminal."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else 200
    Console(width=width, highlight=False).print(make_table(columns, rows, title=title))


def make_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None
) -> Table:
    """The same, for whoever shows it himself."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    cells = [["" if cell is None else cell for cell in row] for row in rows]
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, title_style="bold")
    for number, column in enumerate(columns):
        numeric = bool(cells) and all(_is_number(row[number]) for row in cells)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(_cell(cell)) for cell in row))
    return table


def note(text: str) -> None:
    """A remark beside the results."""
    typer.echo(text, err=True)


def size_text(size_bytes: float) -> str:
    """1536 -> "1.5 KiB"."""
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
