"""Which cluster `bradbury up` started here: what `down`, `status` and the clients go by.

    $XDG_STATE_HOME/bradbury/cluster.json          namespace "bradbury"
    $XDG_STATE_HOME/bradbury/cluster-<name>.json   any other namespace
    $XDG_STATE_HOME/bradbury/up.log                what the background process says

XDG_STATE_HOME is ~/.local/state by default.

What always holds:
    The file is replaced as a whole, so a reader sees one state or the other.
    A process is known by its id and the time it started, since ids are used again. A file whose
    process is gone is stale: nothing is done to whoever has the id now.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Self

DEFAULT_NAMESPACE = "bradbury"
PARENT_FIELD = 4
START_TIME_FIELD = 22
"""ppid and starttime in /proc/<pid>/stat, counted from 1 (proc_pid_stat(5))."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """One cluster that was started here.

    pid, started: of the process that keeps it up, and when that began (clock ticks after boot);
        None where detached actors live in a Ray cluster without any process of ours.
    ray_address: of the Ray cluster's GCS, "host:port".
    bootstrap: "host:port,..." of the brokers.
    descendants: (pid, started) of what the process has started: an embedded Ray. Ray's agents
        outlive a process that is killed, and are ended by whoever finds the state stale.
    """

    namespace: str
    ray_address: str
    bootstrap: str
    data_dir: str
    pid: int | None = None
    started: int | None = None
    descendants: tuple[tuple[int, int], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError for what is no state."""
        values = json.loads(text)
        if not isinstance(values, dict):
            raise ValueError("not a JSON object")  # noqa: TRY004 -- one kind of error for the file
        names = {field.name for field in fields(cls)}
        try:
            values["descendants"] = tuple(
                (int(pid), int(started)) for pid, started in values.get("descendants", ())
            )
            return cls(**{name: value for name, value in values.items() if name in names})
        except TypeError as error:
            raise ValueError(str(error)) from None

    @property
    def is_stale(self) -> bool:
        """Whether the process that kept it up is gone."""
        return self.pid is not None and start_time(self.pid) != self.started


def start_time(pid: int) -> int | None:
    """When process `pid` began, in clock ticks after boot; None if there is none (or a zombie)."""
    found = _parent_and_start(pid)
    return None if found is None else found[1]


def descendants_of(pid: int) -> tuple[tuple[int, int], ...]:
    """(pid, started) of all processes below `pid`."""
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


def state_directory() -> Path:
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "bradbury"


def state_path(namespace: str = DEFAULT_NAMESPACE) -> Path:
    name = "cluster" if namespace == DEFAULT_NAMESPACE else f"cluster-{namespace}"
    return state_directory() / f"{name}.json"


def log_path(namespace: str = DEFAULT_NAMESPACE) -> Path:
    name = "up" if namespace == DEFAULT_NAMESPACE else f"up-{namespace}"
    return state_directory() / f"{name}.log"


def read_state(namespace: str = DEFAULT_NAMESPACE) -> ClusterState | None:
    """None if there is none, or nothing that can be understood."""
    try:
        return ClusterState.parse(state_path(namespace).read_text())
    except (OSError, ValueError):
        return None


def live_state(namespace: str = DEFAULT_NAMESPACE) -> ClusterState | None:
    """The state, unless it is stale."""
    state = read_state(namespace)
    return None if state is None or state.is_stale else state


def write_state(state: ClusterState) -> None:
    """Replace the file, atomically. Raises OSError."""
    path = state_path(state.namespace)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "w") as file:
            json.dump(asdict(state), file, indent=2)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def remove_state(namespace: str = DEFAULT_NAMESPACE) -> None:
    state_path(namespace).unlink(missing_ok=True)
