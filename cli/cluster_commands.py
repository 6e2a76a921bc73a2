"""`bradbury up`, `down`, `status`: a cluster's life on a Ray cluster, or on an embedded one."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .background import end_leftovers, start_in_background, stop_process
from .failure import CommandFailed
from .options import AsJson, Namespace, parse_pairs
from .output import note, print_json, print_table, size_text
from .state_file import (
    DEFAULT_NAMESPACE,
    ClusterState,
    descendants_of,
    read_state,
    remove_state,
    start_time,
    write_state,
)

if TYPE_CHECKING:
    from ..actors.launch import Cluster

LOCAL = "local"
PORT = 9092
INTERRUPTED = 130
SEPARATOR = ", "
VOTER_LAG = 100
"""Records that a copy of the metadata may be behind: less is the moment between two looks."""

Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="The Ray cluster; 'local' for an embedded one. By default RAY_ADDRESS, a Ray cluster "
        "on this machine, or an embedded one.",
        show_default=False,
    ),
]


def up(
    data_dir: Annotated[
        list[Path],
        typer.Option(
            help="On every node's own disk; repeat it to spread partitions over several disks. "
            "By default ~/.local/share/bradbury.",
            show_default=False,
        ),
    ] = [],  # noqa: B006 -- typer reads the default and never changes it
    host: Annotated[
        str | None,
        typer.Option(
            help="The address to bind; by default loopback, or each node's own on many machines.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Of each broker; 0 takes any free one.")
    ] = PORT,
    address: Address = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when it serves and leave it running.")
    ] = False,
    config: Annotated[
        list[str],
        typer.Option("--config", "-c", help="name=value, by Kafka's names; repeatable."),
    ] = [],  # noqa: B006 -- typer reads the default and never changes it
    node_label: Annotated[
        list[str], typer.Option(help="name=value: only Ray nodes with this label; repeatable.")
    ] = [],  # noqa: B006 -- as above
    node_resource: Annotated[
        str | None, typer.Option(help="Only Ray nodes with this resource.", show_default=False)
    ] = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
) -> int:
    """Start a cluster on Ray: brokers on every node. Without --detach until Ctrl-C."""
    _check_namespace(namespace)
    settings: dict[str, Any] = {
        "data_dir": [str(path.absolute()) for path in data_dir] or None,
        "host": host,
        "port": port,
        "node_label": parse_pairs(node_label, "--node-label"),
        "node_resource": node_resource,
        "config": parse_pairs(config, "--config"),
        "namespace": namespace,
    }
    running = read_state(namespace)
    if running is not None and running.is_stale:
        _clear_away(running)
    elif running is not None and running.pid is not None:
        return _already_up(running, settings, detach=detach)
    if detach and _needs_a_process(address, namespace):
        with _progress() as on_progress:
            on_progress("starting in the background")
            state = start_in_background(_arguments(settings), namespace)
        _announce(state, detached=True)
        return 0
    return _up_here(settings, address, detach=detach)


def down(address: Address = None, namespace: Namespace = DEFAULT_NAMESPACE) -> None:
    """Stop the cluster. Its data stays, and the next `up` on it finds everything."""
    _check_namespace(namespace)
    state = None if address not in (None, LOCAL) else read_state(namespace)
    if state is not None and state.pid is not None and state.started is not None:
        stopped = stop_process(state.pid, state.started)
        _clear_away(state)
        note(
            f"stopped; the data is in {state.data_dir}"
            if stopped
            else f"no cluster is up: process {state.pid} had ended by itself; "
            f"its data is in {state.data_dir}"
        )
        return
    wanted = _ray_address(address, state)
    if not wanted:
        note("no cluster is up here; for one in a Ray cluster say --address")
        return
    import ray

    from ..actors.launch import UpError, connect

    try:
        cluster = connect(wanted, namespace)
    except UpError as error:
        if state is None:
            raise
        remove_state(namespace)
        note(f"nothing was stopped: {error}")
        return
    try:
        data_dir = _paths(_settings(cluster).get("data_dir", "its data directory"))
        cluster.down()
    finally:
        ray.shutdown()
    remove_state(namespace)
    note(f"stopped; the data is in {data_dir} on every node")


def status(
    address: Address = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> int:
    """Show the cluster's actors, and what is wrong. Exit code 0 if nothing is."""
    _check_namespace(namespace)
    described = _describe(address, namespace)
    described["problems"] = _problems(described)
    described["healthy"] = not described["problems"]
    if as_json:
        print_json(described)
    else:
        _print_status(described)
    return 0 if described["healthy"] else 1


# --- up ------------------------------------------------------------------------------------------


def _already_up(running: ClusterState, settings: dict[str, Any], *, detach: bool) -> int:
    asked = settings["data_dir"]
    if detach and (asked is None or _paths(asked) == running.data_dir):
        note(f"a cluster is up already: {running.bootstrap} (data in {running.data_dir})")
        return 0
    raise CommandFailed(
        f"a cluster is up already at {running.bootstrap} (process {running.pid}, data in "
        f"{running.data_dir}); use it, or run `bradbury down` first"
    )


def _needs_a_process(address: str | None, namespace: str) -> bool:
    """Whether there is no Ray cluster that could keep the actors."""
    if address is not None or os.environ.get("RAY_ADDRESS"):
        return address == LOCAL
    from ..actors.launch import UpError, join_ray

    try:
        join_ray("auto", namespace)
    except UpError:
        return True
    return False


def _arguments(settings: dict[str, Any]) -> list[str]:
    """The command line of the process that is left behind."""
    arguments = ["up", "--address", LOCAL, "--port", str(settings["port"])]
    arguments += ["--namespace", settings["namespace"]]
    for path in settings["data_dir"] or ():
        arguments += ["--data-dir", path]
    for name in ("host", "node_resource"):
        if settings[name] is not None:
            arguments += [f"--{name.replace('_', '-')}", settings[name]]
    for name in ("config", "node_label"):
        for key, value in settings[name].items():
            arguments += [f"--{name.replace('_', '-')}", f"{key}={value}"]
    return arguments


def _up_here(settings: dict[str, Any], address: str | None, *, detach: bool) -> int:
    """Start it from this process; without `detach`, stay and take it down again."""
    import ray

    from ..actors import launch

    namespace = settings["namespace"]
    with _progress() as on_progress:
        owns_ray = launch.join_ray(address, namespace, on_progress)
        try:
            if not detach:
                _refuse_second(namespace)
            cluster = launch.up(**settings, on_progress=on_progress)
        except BaseException:
            ray.shutdown()
            raise
    keeps = not detach or owns_ray
    state = ClusterState(
        namespace=namespace,
        ray_address=str(ray.get_runtime_context().gcs_address),
        bootstrap=cluster.bootstrap_servers,
        data_dir=_paths(_settings(cluster)["data_dir"]),
        pid=os.getpid() if keeps else None,
        started=start_time(os.getpid()) if keeps else None,
        descendants=descendants_of(os.getpid()) if owns_ray else (),
    )
    if not keeps:
        write_state(state)
        ray.shutdown()
        _announce(state, detached=True)
        return 0
    try:
        write_state(state)
        _announce(state, detached=False)
        received = _wait_for_signal()
    finally:
        note("stopping")
        _forget(state)
        cluster.down()
        ray.shutdown()
    note(f"stopped; the data is in {state.data_dir}")
    return INTERRUPTED if received == signal.SIGINT else 0


def _refuse_second(namespace: str) -> None:
    from ..actors.launch import UpError, connect

    try:
        running = connect(namespace=namespace)
    except UpError:
        return
    raise CommandFailed(
        f"a cluster is up already at {running.bootstrap_servers} in this Ray cluster's namespace "
        f"{namespace!r}; use it, run `bradbury down` first, or say another --namespace"
    )


def _wait_for_signal() -> int:
    """Sleep until Ctrl-C, SIGTERM or the end of the terminal; returns the signal."""
    asked = threading.Event()
    received = signal.SIGTERM

    def on_signal(number: int, _frame: object) -> None:
        nonlocal received
        received = signal.Signals(number)
        asked.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)
    while not asked.wait(3600):
        pass
    return received


def _announce(state: ClusterState, *, detached: bool) -> None:
    typer.echo(f"Bradbury is up: {state.bootstrap}")
    typer.echo(f"  data      {state.data_dir}")
    typer.echo(f"  ray       {state.ray_address} (namespace {state.namespace})")
    typer.echo("  try       bradbury topics create flights --partitions 4")
    typer.echo("            seq 1000 | bradbury produce flights")
    typer.echo("            bradbury consume flights --from-beginning --max 10")
    typer.echo(f"  stop      {'bradbury down' if detached else 'Ctrl-C'} (the data stays)")
    sys.stdout.flush()


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """A spinner with the latest word on a terminal; elsewhere nothing: an error stands alone."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as spinner:
        yield spinner.update


# --- status --------------------------------------------------------------------------------------


@contextmanager
def running_cluster(address: str | None, namespace: str) -> Iterator[Cluster]:
    """The cluster that is up here, or on the Ray cluster that is named. Raises CommandFailed."""
    wanted = _running_ray(address, namespace)
    import ray

    from ..actors.launch import connect

    try:
        yield connect(wanted, namespace)
    finally:
        ray.shutdown()


def _running_ray(address: str | None, namespace: str) -> str:
    state = None if address not in (None, LOCAL) else read_state(namespace)
    if state is not None and state.is_stale:
        raise CommandFailed(
            f"no cluster is up: process {state.pid} has ended without `bradbury down`; "
            f"`bradbury up --data-dir {state.data_dir.replace(SEPARATOR, ' --data-dir ')}` "
            "goes on with its data"
        )
    wanted = _ray_address(address, state)
    if not wanted:
        raise CommandFailed(
            "no cluster is up here; start one with `bradbury up`, or say --address of its Ray"
        )
    return wanted


def _describe(address: str | None, namespace: str) -> dict[str, Any]:
    wanted = _running_ray(address, namespace)
    with running_cluster(address, namespace) as cluster:
        described = cluster.status()
        servers = cluster.bootstrap_servers
    return {"bootstrap_servers": servers, "ray_address": wanted, **described}


def _problems(described: dict[str, Any]) -> list[str]:
    """What is wrong, in words; empty for a healthy cluster."""
    problems = []
    if not described["active"]:
        problems.append("the controller is not active; it waits for its voters")
    if described["leaderless"]:
        problems.append(f"{described['leaderless']} partitions have no leader; see the actors")
    if described["under_min_isr"]:
        problems.append(
            f"{described['under_min_isr']} partitions have fewer replicas in sync than "
            "min.insync.replicas: producers with acks=all wait"
        )
    if described["under_replicated"]:
        problems.append(
            f"{described['under_replicated']} partitions have replicas that are out of sync"
        )
    behind = [name for name, lag in _voter_lags(described).items() if lag > VOTER_LAG]
    if behind:
        problems.append(
            f"{len(behind)} of {len(described['voters'])} copies of the metadata are behind: the "
            f"brokers with the metadata directories {', '.join(behind)} do not answer"
        )
    for actor in described["actors"]:
        if actor.get("problem"):
            problems.append(f"{actor['actor']}: {actor['problem']}")
        elif not actor.get("online", True):
            problems.append(f"{actor['actor']}: its data directory is offline; see its log")
    fenced = [node["address"] for node in described["nodes"] if node["fenced"]]
    if fenced:
        problems.append(f"fenced, as they are not heard of: {', '.join(fenced)}")
    return problems


def _voter_lags(described: dict[str, Any]) -> dict[str, int]:
    """By directory id: how many metadata records that voter has not, as far as is known."""
    end = described["metadata_offset"]
    return {name: max(0, end - offset) for name, offset in described["voters"].items()}


def _print_status(described: dict[str, Any]) -> None:
    typer.echo(f"cluster     {described['cluster_id']}")
    typer.echo(f"bootstrap   {described['bootstrap_servers']}")
    typer.echo(f"controller  epoch {described['epoch']}, pid {described['pid']}")
    lags = _voter_lags(described)
    typer.echo(
        f"metadata    {described['metadata_offset']} records on {len(lags)} "
        f"voter{'s' * (len(lags) != 1)}, the last one {max(lags.values(), default=0)} behind"
    )
    typer.echo(f"data        {_paths(described['settings'].get('data_dir', ''))}")
    typer.echo(
        f"topics      {described['topics']} with {described['partitions']} partitions, "
        f"{described['leaderless']} of them without a leader, "
        f"{described['under_replicated']} under-replicated, "
        f"{described['under_min_isr']} under min.insync.replicas, "
        f"{described['reassigned']} being reassigned"
    )
    machines = {
        node["node_id"]: node["machine"] + " (drained)" * node["draining"]
        for node in described["nodes"]
    }
    leaders = {node["node_id"]: node["leaders"] for node in described["nodes"]}
    print_table(
        (
            "actor",
            "node",
            "roles",
            "machine",
            "address",
            "pid",
            "partitions",
            "leads",
            "size",
            "connections",
            "metrics",
        ),
        [
            (
                actor["actor"],
                actor.get("node_id"),
                ",".join(actor.get("roles", ())),
                machines.get(actor.get("node_id", -1)),
                actor.get("address"),
                actor.get("pid"),
                actor.get("partitions"),
                leaders.get(actor.get("node_id", -1)),
                size_text(actor["size_bytes"]) if "size_bytes" in actor else None,
                actor.get("connections"),
                actor.get("metrics"),
            )
            for actor in described["actors"]
        ],
    )
    for problem in described["problems"]:
        typer.echo(f"problem: {problem}")
    if described["healthy"]:
        typer.echo("healthy")


# --- both ----------------------------------------------------------------------------------------


def _paths(data_dir: str | list[str]) -> str:
    """One data directory, or several, in words."""
    return data_dir if isinstance(data_dir, str) else SEPARATOR.join(data_dir)


def _settings(cluster: Cluster) -> dict[str, Any]:
    settings: dict[str, Any] = cluster.status()["settings"]
    return settings


def _ray_address(address: str | None, state: ClusterState | None) -> str | None:
    """Of a Ray cluster that runs: "local" would start one, so it means the one that was started."""
    if address not in (None, LOCAL):
        return address
    return state.ray_address if state is not None else os.environ.get("RAY_ADDRESS")


def _clear_away(state: ClusterState) -> None:
    """Of a cluster whose process has ended: what it left running, and its state file."""
    end_leftovers(state.descendants)
    _forget(state)


def _forget(state: ClusterState) -> None:
    """Remove the state file, unless another cluster's has taken its place."""
    if read_state(state.namespace) == state:
        remove_state(state.namespace)


def _check_namespace(namespace: str) -> None:
    if not namespace or not all(letter.isalnum() or letter in "-_." for letter in namespace):
        raise CommandFailed(
            f"--namespace {namespace!r}: letters, digits, '-', '_' and '.' make a namespace"
        )
