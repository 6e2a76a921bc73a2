"""The file that names a cluster that was started here, for `down`, `status` and clients.

    $XDG_STATE_HOME/bradbury/cluster.json          namespace "bradbury"
    $XDG_STATE_HOME/bradbury/cluster-<name>.json   any other namespace
    $XDG_STATE_HOME/bradbury/up.log                the log of the background process

XDG_STATE_HOME is ~/.local/state by default. `bradbury up` and bradbury.up() write it.

Invariants:
    The file is replaced as a whole, so a reader sees one state or the other.
    A process is identified by its pid and start time, since pids are reused. A file whose process
    has ended is stale: another process that now has its pid is left alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Self

from .processes import start_time

DEFAULT_NAMESPACE = "bradbury"
SEPARATOR = ", "
"""Separator of the data directories of a cluster that has several."""
BOOTSTRAP_VARIABLE = "BRADBURY_BOOTSTRAP"
"""Environment variable: brokers for commands and clients without an explicit address."""
CLIENT_CONFIG_VARIABLE = "BRADBURY_CLIENT_CONFIG"
"""Environment variable: file of security settings for commands and clients without one."""
NAMESPACE_VARIABLE = "BRADBURY_NAMESPACE"
"""Environment variable: cluster for commands and clients without an explicit namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """State of a cluster that was started here.

    pid, started: process that keeps it up, and its start time (clock ticks after boot);
        None where detached actors live in a Ray cluster without any process of ours.
    is_program: whether that process is a user's program which called bradbury.up(), so taking the
        cluster down does not end it.
    ray_address: the address of the Ray cluster's GCS, "host:port".
    ray_cluster_id: the id of that Ray cluster, since another one may take the address later; "" in
        files of former versions. A GCS has its id from its storage: one that is started again with
        the same has the same, and one that keeps nothing (Ray's default) is another Ray cluster.
    bootstrap: the addresses of the brokers, "host:port,...".
    config: the settings it was started with, by Kafka's names.
    client_config: the file of security settings for its clients; "": they need none.
    descendants: (pid, started) of the processes of an embedded Ray. Ray's agents outlive a process
        that is killed, and are ended by the command that finds the state stale.
    """

    namespace: str
    ray_address: str
    bootstrap: str
    data_dir: str
    ray_cluster_id: str = ""
    pid: int | None = None
    started: int | None = None
    is_program: bool = False
    descendants: tuple[tuple[int, int], ...] = ()
    config: Mapping[str, str] = field(default_factory=dict)
    client_config: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a state file. Raises ValueError if it is not one."""
        values = json.loads(text)
        if not isinstance(values, dict):
            raise ValueError("not a JSON object")  # noqa: TRY004 -- one kind of error for the file
        names = {one.name for one in fields(cls)}
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

    def is_in(self, ray_address: str, ray_cluster_id: str) -> bool:
        """Whether it is a cluster in that Ray, not in one that had the address before."""
        return self.ray_address == ray_address and self.ray_cluster_id in ("", ray_cluster_id)


def state_directory() -> Path:
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "bradbury"


def cache_directory() -> Path:
    """$XDG_CACHE_HOME/bradbury: directory of files that can be made again at any time."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "bradbury"


def state_path(namespace: str = DEFAULT_NAMESPACE) -> Path:
    name = "cluster" if namespace == DEFAULT_NAMESPACE else f"cluster-{namespace}"
    return state_directory() / f"{name}.json"


def secure_directory(namespace: str = DEFAULT_NAMESPACE) -> Path:
    """Directory of the keys of a secured cluster that was started here, for its user alone."""
    return state_directory() / f"secure-{namespace}"


def log_path(namespace: str = DEFAULT_NAMESPACE) -> Path:
    name = "up" if namespace == DEFAULT_NAMESPACE else f"up-{namespace}"
    return state_directory() / f"{name}.log"


def read_state(namespace: str = DEFAULT_NAMESPACE) -> ClusterState | None:
    """Read the state file; None if there is none, or it cannot be parsed."""
    try:
        return ClusterState.parse(state_path(namespace).read_text())
    except (OSError, ValueError):
        return None


def live_state(namespace: str = DEFAULT_NAMESPACE) -> ClusterState | None:
    """State of a running cluster; None if there is none, or the state is stale."""
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


def running_namespaces() -> list[str]:
    """Namespaces of all clusters that were started here and are not known to have ended."""
    names = []
    for path in sorted(state_directory().glob("cluster*.json")):
        try:
            state = ClusterState.parse(path.read_text())
        except (OSError, ValueError):
            continue
        if not state.is_stale:
            names.append(state.namespace)
    return names


def default_namespace() -> str:
    """Namespace to use if none is given: BRADBURY_NAMESPACE, or "bradbury"."""
    return os.environ.get(NAMESPACE_VARIABLE) or DEFAULT_NAMESPACE
