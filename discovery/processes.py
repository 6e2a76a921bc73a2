"""Processes by id and start time, since ids are reused."""

from __future__ import annotations

import os
from pathlib import Path

PARENT_FIELD = 4
START_TIME_FIELD = 22
"""Position of the start time in /proc/<pid>/stat, counted from 1 (proc_pid_stat(5))."""


def start_time(pid: int) -> int | None:
    """Start of process `pid` in clock ticks after boot; None if there is none (or a zombie)."""
    found = _parent_and_start(pid)
    return None if found is None else found[1]


def descendants_of(pid: int) -> tuple[tuple[int, int], ...]:
    """Descendants of process `pid`, as (pid, start time)."""
    children: dict[int, list[tuple[int, int]]] = {}
    for name in os.listdir("/proc"):
        found = _parent_and_start(int(name)) if name.isdecimal() else None
        if found is not None:
            children.setdefault(found[0], []).append((int(name), found[1]))
    reached: list[tuple[int, int]] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        reached += below
        waiting += [child for child, _ in below]
    return tuple(reached)


def _parent_and_start(pid: int) -> tuple[int, int] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, ValueError):
        return None
    after_name = text.rpartition(")")[2].split()  # the name may hold blanks and brackets
    if after_name[0] in ("Z", "X"):
        return None
    return int(after_name[PARENT_FIELD - 3]), int(after_name[START_TIME_FIELD - 3])
