"""The commands `bradbury up` and `down`: start and stop a cluster on Ray, joined or embedded."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ...discovery.state_file import (
    DEFAULT_NAMESPACE,
    SEPARATOR,
    ClusterState,
    read_state,
    remove_state,
    running_namespaces,
    write_state,
)
from ..terminal.failure import CommandFailed
from ..terminal.interrupt import set_in_handler
from ..terminal.options import parse_pairs
from ..terminal.output import note
from .background import end_leftovers, start_in_background, stop_process
from .running_cluster import Address, Namespace, running_cluster

LOCAL = "local"
INTERRUPTED = 130


def up(
    data_dir: Annotated[
        list[Path],
        typer.Option(
            help="Data directory on every node; repeat it to spread partitions over several disks. "
            "By default ~/.local/share/bradbury, or bradbury-NAMESPACE there.",
            show_default=False,
        ),
    ] = [],  # noqa: B006 -- typer reads the default and never changes it
    host: Annotated[
        str | None,
        typer.Option(
            help="Address to bind; by default loopback, or on many machines each node's own.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port of each broker; 0: any free port. By default 9092; on one machine, if that "
            "is in use, the first free one of 9108, 9124, ...",
            show_default=False,
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Ray cluster to join; 'auto': the one on this machine; 'local': an embedded one. "
            "By default that of RAY_ADDRESS, or else an embedded one.",
            show_default=False,
        ),
    ] = None,
    detach: Annotated[
        bool,
        typer.Option("--detach", "-d", help="Return when the cluster serves; it keeps running."),
    ] = False,
    config: Annotated[
        list[str],
        typer.Option(
            "--config",
            "-c",
            metavar="NAME=VALUE",
            help="Broker config, with Kafka's name; repeatable.",
        ),
    ] = [],  # noqa: B006 -- typer reads the default and never changes it
    node_label: Annotated[
        list[str],
        typer.Option(metavar="NAME=VALUE", help="Only Ray nodes with this label; repeatable."),
    ] = [],  # noqa: B006 -- as above
    node_resource: Annotated[
        str | None, typer.Option(help="Only Ray nodes with this resource.", show_default=False)
    ] = None,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="TLS, SCRAM passwords for clients, and ACLs; keys and users are created.",
        ),
    ] = False,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Serve clients without TLS or passwords, on a private network; also needed for "
            "data that was secured before.",
        ),
    ] = False,
    namespace: Namespace = DEFAULT_NAMESPACE,
) -> int:
    """Start a cluster on Ray, a broker on every node. Without --detach it runs until Ctrl-C."""
    settings: dict[str, Any] = {
        "data_dir": [str(path.absolute()) for path in data_dir] or None,
        "host": host,
        "port": port,
        "node_label": parse_pairs(node_label, "--node-label"),
        "node_resource": node_resource,
        "config": parse_pairs(config, "--config"),
        "secure": secure,
        "insecure": insecure,
        "namespace": namespace,
    }
    if config:  # checked before Ray is started
        from ...handlers.ports.server_config import check_names

        check_names(settings["config"])
    running = read_state(namespace)
    if running is not None and running.is_stale:
        _clear_away(running)
    elif running is not None and running.pid is not None:
        return _already_up(running, settings, address, detach=detach)
    joined = _address_to_join(address, running)
    if joined == LOCAL and detach:
        with _progress() as on_progress:
            on_progress("starting in the background")
            state = start_in_background(_arguments(settings), namespace)
        _announce(state, joined=False, detached=True)
        return 0
    return _up_here(settings, joined, detach=detach)


def down(address: Address = None, namespace: Namespace = DEFAULT_NAMESPACE) -> None:
    """Stop the cluster. Its data stays, and the next `up` serves it again."""
    from ...discovery.ray_connection import named_address

    state = None if address not in (None, LOCAL) else read_state(namespace)
    if state is not None and state.pid is not None and state.started is not None:
        if state.is_stale:
            _clear_away(state)
            note(
                f"no cluster is up: process {state.pid} has ended unexpectedly; "
                f"its data is in {state.data_dir}"
            )
            return
        if not state.is_program:
            stop_process(state.pid, state.started, namespace)
            _clear_away(state)
            note(f"stopped; the data is in {state.data_dir}")
            return
        address = state.ray_address
    if state is None and named_address(address) in (None, LOCAL):
        raise CommandFailed(_nothing_to_stop(namespace))
    with running_cluster(address, namespace) as cluster:
        data_dir = cluster.data_dir
        cluster.down()
    note(
        f"stopped; the data is in {data_dir} on every node; actors of named queues "
        "(bradbury.Queue) stay in the Ray cluster"
    )
    if state is not None and state.is_program:
        note(f"its Ray cluster still runs, in process {state.pid}, which started it")


def _nothing_to_stop(namespace: str) -> str:
    others = [name for name in running_namespaces() if name != namespace]
    remedy = (
        f"`{_down(others[0])}` stops {others[0]!r}"
        if others
        else "one that was started from another machine is stopped with --address HOST:PORT, the "
        "address of its Ray cluster"
    )
    return f"nothing to stop: no cluster is up in namespace {namespace!r} here; {remedy}"


# --- up ------------------------------------------------------------------------------------------


def _already_up(
    running: ClusterState, settings: dict[str, Any], address: str | None, *, detach: bool
) -> int:
    others = [*_differences(running, settings, address)]
    is_secured = bool(running.client_config)
    if detach and not others and (is_secured or not settings["secure"]):
        note(f"a cluster is up already: {running.bootstrap} (data in {running.data_dir})")
        if settings["secure"]:
            note(
                "a changed password of admin and new certificates are taken over by a cluster that "
                f"starts: run `{_down(running.namespace)}` first, then `bradbury up --secure` again"
            )
        return 0
    with_others = f", with another {' and '.join(others)}" if others else ""
    if settings["secure"] and not is_secured:
        with_others += ", without --secure"
    raise CommandFailed(
        f"a cluster is up already at {running.bootstrap} (process {running.pid}, data in "
        f"{running.data_dir}){with_others}; use it, run `{_down(running.namespace)}` first, or "
        "start another with --namespace NAME"
    )


def _differences(
    running: ClusterState, settings: dict[str, Any], address: str | None
) -> Iterator[str]:
    """Yield the options that differ from those of the cluster that is up."""
    from ...discovery.ray_connection import resolve_address

    data_dir, config = settings["data_dir"], settings["config"]
    if data_dir is not None and SEPARATOR.join(data_dir) != running.data_dir:
        yield "--data-dir"
    same = (
        config.items() <= running.config.items()
        if running.client_config
        else (config == running.config)
    )
    if config and not same:
        yield "--config"
    addresses = [one.rpartition(":") for one in running.bootstrap.split(",")]
    if settings["host"] not in (None, *(host for host, _, _ in addresses)):
        yield "--host"
    if settings["port"] and str(settings["port"]) not in (port for _, _, port in addresses):
        yield "--port"
    if address not in (None, LOCAL) and resolve_address(address) != running.ray_address:
        yield "--address"


def _address_to_join(address: str | None, running: ClusterState | None) -> str:
    """Return the "host:port" of the Ray cluster to join, or "local".

    A Ray cluster that runs here may be another user's: it is joined only on request.

    running: state of a cluster whose detached actors are in a Ray cluster, from the state file.
    """
    from ...discovery.ray_connection import (
        named_address,
        ray_on_this_machine,
        resolve_address,
        why_gone,
    )

    named = named_address(address)
    if named is not None:
        found = LOCAL if named == LOCAL else resolve_address(named)
        if running is not None and running.ray_address != found:
            _refuse_if_up(running)
        return found
    if running is not None:
        gone = why_gone(running)
        if gone is None:
            return running.ray_address
        # Its state file stays until another cluster serves: Ray's head may come back, with the
        # brokers that went on without it.
        note(gone)
    if sys.stdin.isatty() and sys.stderr.isatty():
        somebodys = ray_on_this_machine()
        if somebodys is not None and typer.confirm(
            f"A Ray cluster runs on this machine at {somebodys}. Join it? "
            "(otherwise an embedded Ray is started)",
            err=True,
        ):
            return somebodys
    return LOCAL


def _refuse_if_up(running: ClusterState) -> None:
    """Raise CommandFailed if the cluster of this namespace is up in another Ray cluster."""
    from ...discovery.ray_connection import why_gone
    from ...discovery.ray_errors import UpError

    try:
        if why_gone(running) is not None:
            return
    except UpError:  # it cannot be asked, for want of its token
        pass
    raise CommandFailed(
        f"a cluster {running.namespace!r} is up already at {running.bootstrap}, in the Ray cluster "
        f"at {running.ray_address}; run `{_down(running.namespace)}` first, or use another "
        "--namespace"
    )


def _arguments(settings: dict[str, Any]) -> list[str]:
    """Return the command line of the background process."""
    arguments = ["up", "--address", LOCAL, "--namespace", settings["namespace"]]
    for path in settings["data_dir"] or ():
        arguments += ["--data-dir", path]
    for name in ("host", "port", "node_resource"):
        if settings[name] is not None:
            arguments += [f"--{name.replace('_', '-')}", str(settings[name])]
    for name in ("config", "node_label"):
        for key, value in settings[name].items():
            arguments += [f"--{name.replace('_', '-')}", f"{key}={value}"]
    arguments += [f"--{name}" for name in ("secure", "insecure") if settings[name]]
    return arguments


def _up_here(settings: dict[str, Any], address: str, *, detach: bool) -> int:
    """Start the cluster in this process; without `detach`, wait for a signal and stop it."""
    import ray

    from ...discovery.ray_connection import join_ray
    from ...launch.cluster import data_dirs, default_data_dir, start
    from ...launch.secure.listener_checks import check_for_a_new_ray

    namespace = settings["namespace"]
    if address == LOCAL:
        check_for_a_new_ray(
            settings["config"],
            settings["host"],
            data_dirs(settings["data_dir"] or default_data_dir(namespace))[0],
            secure=settings["secure"],
            insecure=settings["insecure"],
        )
    with _progress() as on_progress:
        owns_ray = join_ray(address, namespace, on_progress)
        try:
            if not detach:
                _refuse_second(namespace)
            cluster = start(**settings, on_progress=on_progress)
        except BaseException:
            ray.shutdown()
            raise
    cluster.owns_ray = owns_ray
    state = cluster.state(is_kept_here=not detach or owns_ray)
    if state.pid is None:
        write_state(state)
        ray.shutdown()
        _announce(state, joined=not owns_ray, detached=True)
        return 0
    try:
        write_state(state)
        _announce(state, joined=not owns_ray, detached=False)
        received = _wait_for_signal()
    finally:
        note("stopping")
        cluster.down()
        ray.shutdown()
    note(f"stopped; the data is in {state.data_dir}")
    return INTERRUPTED if received == signal.SIGINT else 0


def _refuse_second(namespace: str) -> None:
    from ...discovery.ray_errors import UpError
    from ...launch.cluster import connect

    try:
        running = connect(namespace=namespace)
    except UpError:
        return
    raise CommandFailed(
        f"a cluster is up already at {running.bootstrap_servers} in this Ray cluster's namespace "
        f"{namespace!r}; use it, run `{_down(namespace)}` first, or use another --namespace"
    )


def _wait_for_signal() -> int:
    """Sleep until SIGINT (Ctrl-C), SIGTERM or SIGHUP; return the signal."""
    asked = threading.Event()
    received = signal.SIGTERM

    def on_signal(number: int, _frame: object) -> None:
        nonlocal received
        received = signal.Signals(number)
        set_in_handler(asked)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)
    while not asked.wait(3600):
        pass
    return received


def _announce(state: ClusterState, *, joined: bool, detached: bool) -> None:
    typer.echo(f"Bradbury is up: {state.bootstrap}")
    typer.echo(f"  data      {state.data_dir}")
    whose = "the cluster that was joined" if joined else "embedded"
    typer.echo(f"  ray       {state.ray_address} ({whose}; namespace {state.namespace})")
    if state.client_config:
        typer.echo(f"  clients   {state.client_config} (`bradbury client-config` for others)")
    if state.namespace != DEFAULT_NAMESPACE:
        typer.echo(f"  try       export BRADBURY_NAMESPACE={state.namespace}")
        typer.echo("            bradbury topics create flights --partitions 4 --if-not-exists")
    else:
        typer.echo("  try       bradbury topics create flights --partitions 4 --if-not-exists")
    typer.echo("            seq 1000 | bradbury produce flights")
    typer.echo("            bradbury consume flights --from-beginning --max 10")
    typer.echo(f"  stop      {_down(state.namespace) if detached else 'Ctrl-C'} (the data stays)")
    sys.stdout.flush()


def _down(namespace: str) -> str:
    """Command line that stops the cluster of `namespace`."""
    return "bradbury down" + ("" if namespace == DEFAULT_NAMESPACE else f" --namespace {namespace}")


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the current step: a spinner on a terminal, else nothing."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as spinner:
        yield spinner.update


# --- leftovers -----------------------------------------------------------------------------------


def _clear_away(state: ClusterState) -> None:
    """End the processes left by a cluster whose process has ended, and remove its state file."""
    end_leftovers(state.descendants)
    if read_state(state.namespace) == state:  # else another cluster has replaced it
        remove_state(state.namespace)
