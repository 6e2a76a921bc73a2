"""`bradbury groups describe --watch`: the same tables, kept up to date until Ctrl-C.

On a terminal the tables are redrawn in place; elsewhere each refresh prints new ones, and with
--json a line for each group. If the cluster does not answer, the error is printed and the watch
continues.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..terminal.moments import show_time
from ..terminal.output import make_table, note, print_json_line
from .group_tables import COLUMNS, OPTIONAL, DescribedGroup, described_groups, print_groups

if TYPE_CHECKING:
    from rich.console import Group as Picture

    from ...clients.admin.admin import Admin


def watch_groups(
    admin: Admin,
    names: Sequence[str],
    *,
    times: bool,
    every: float,
    count: int | None,
    as_json: bool,
) -> None:
    """Show groups until Ctrl-C, or `count` times. every: seconds between refreshes."""
    looks = _looks(admin, names, times=times, every=every, count=count)
    try:
        if as_json:
            for found in looks:
                for one in found:
                    print_json_line(one.as_json())
                sys.stdout.flush()
        elif sys.stdout.isatty():
            _draw(looks, every)
        else:
            for found in looks:
                note(show_time(round(time.time() * 1000)))
                print_groups(found)
                sys.stdout.flush()
    except KeyboardInterrupt:
        pass  # Ctrl-C is the normal end of a watch


def _looks(
    admin: Admin, names: Sequence[str], *, times: bool, every: float, count: int | None
) -> Iterator[list[DescribedGroup]]:
    from ...protocol.errors import ConnectionFailed, RequestTimedOut

    look = 0
    due = time.monotonic()
    while count is None or look < count:
        time.sleep(max(0.0, due - time.monotonic()))
        due = max(due + every, time.monotonic())
        try:
            found = described_groups(admin, names, times=times)
        except (ConnectionFailed, RequestTimedOut) as error:
            if look == 0:
                raise
            note(f"{show_time(round(time.time() * 1000))} {error}")
        else:
            yield found
        look += 1


def _draw(looks: Iterator[list[DescribedGroup]], every: float) -> None:
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        for found in looks:
            live.update(_picture(found, every, live.console.width), refresh=True)


def _picture(found: list[DescribedGroup], every: float, width: int) -> Picture:
    from rich.console import Group as Picture
    from rich.text import Text

    tables = [
        make_table(COLUMNS, one.rows(), width=width, title=one.title(), optional=OPTIONAL)
        for one in found
    ]
    when = show_time(round(time.time() * 1000))
    line = Text(f"{when}, every {every:g} s; Ctrl-C to end" + ("" if found else "; no groups"))
    return Picture(*(part for table in tables for part in (table, "")), line)
