"""A cluster on Ray: `up`, `connect`, `status`, `down`.

`up` joins the Ray cluster that is given or that this process is in, else it starts an embedded
one; it creates the named detached actors that do not exist yet and waits until all of them serve.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from ..actors.ray.placement import (
    PORTS_PER_NODE,
    Address,
    Placement,
    PlacementError,
    RayNode,
    partition_actors,
    plan,
    shared_address,
)
from ..actors.ray.ray_nodes import living_nodes
from ..actors.ray.secure_folder import CLIENT_FILE, NODE_FILE
from ..cluster.control.access.scram_control import AlterUserScramCredentials
from ..cluster.control.rebalance import PartitionMove, Rebalance
from ..cluster.quorum.voter_change import VoterChange
from ..controller.controller_calls import Change, ChangeVoter, ControllerCall
from ..controller.node.controller_finder import CONTROLLER
from ..discovery.processes import descendants_of, start_time
from ..discovery.ray_connection import (
    LOCAL,
    connect_ray,
    is_connected,
    join_ray,
    join_running,
    named_address,
    ray_cluster_id,
    refuse_ray_client,
    why_gone,
)
from ..discovery.ray_errors import UpError
from ..discovery.state_file import (
    DEFAULT_NAMESPACE,
    SEPARATOR,
    ClusterState,
    default_namespace,
    read_state,
    remove_state,
    secure_directory,
    state_path,
    write_state,
)
from ..handlers.ports.server_config import ServerConfig
from ..protocol.errors import KafkaError
from .actors import (
    READY_SECONDS,
    ask,
    brokers_in_service,
    describe_running,
    find_actor,
    running_settings,
    start_actors,
    status,
    stop_actors,
    wait_until_serving,
)
from .secure.listener_checks import (
    check_for_a_new_ray,
    check_secrets,
    refuse_open_listeners,
    refuse_ray_without_tokens,
    refuse_secured_data,
)
from .secure.secure_cluster import SecureCluster

if TYPE_CHECKING:
    from ..clients.admin.admin import Admin

logger = logging.getLogger(__name__)

A = TypeVar("A")
PORT = 9092
PORT_ATTEMPTS = 3
"""Number of attempts with other ports if another process has taken the chosen ones."""
CANNOT_LISTEN = "cannot listen on"
PORT_BLOCKS = 64
"""Number of blocks of PORTS_PER_NODE ports that are tried if no port is given."""


class Cluster:
    """A running cluster on Ray. As a context manager it is stopped at the end; its data stays."""

    def __init__(self, namespace: str, bootstrap_servers: str) -> None:
        self.namespace = namespace
        self.bootstrap_servers = bootstrap_servers
        """host:port of every broker when the cluster was found, separated by commas."""
        self.owns_ray = False
        """Whether `up` started an embedded Ray for this cluster, which ends with it."""

    def __repr__(self) -> str:
        return f"Cluster({self.namespace!r}, {self.bootstrap_servers!r})"

    @property
    def ray_address(self) -> str:
        """host:port of the Ray cluster that it runs in, and that this process is connected to."""
        return str(ray.get_runtime_context().gcs_address)

    @property
    def data_dir(self) -> str:
        """Data directory of every node; several are separated by ", "."""
        settings = running_settings(self.namespace) or {}
        return SEPARATOR.join(data_dirs(settings.get("data_dir", "its data directory")))

    def admin(self) -> Admin:
        """Make an Admin client of this cluster."""
        from ..clients.admin.admin import Admin

        return Admin(bootstrap=self._brokers_now())

    def _brokers_now(self) -> str:
        """Brokers in service now: those of `bootstrap_servers` may all have been replaced."""
        try:
            found = brokers_in_service(self.namespace)
        except UpError:
            found = []
        return ",".join(found) or self.bootstrap_servers

    def status(self) -> dict[str, Any]:
        """Status of controller, nodes and partitions, as `bradbury status --json` prints it."""
        return status(self.namespace)

    def rebalance(
        self, *, drain: str | None = None, restore: str | None = None, dry_run: bool = False
    ) -> list[PartitionMove]:
        """Begin to move replicas, so that every node has its share; at most 1,000 partitions.

        Args:
            drain: the name of a machine (see `status`) to move all replicas away from.
            restore: a drained machine that is to get new partitions again; nothing is moved.
            dry_run: only return the moves, without starting them.

        Returns the moves; `status()["reassigned"]` is the number of partitions not done yet.
        Raises KafkaError: there is no such machine, or too few others.
        """
        request = Rebalance(drain=drain, restore=restore, validate_only=dry_run)
        moves = self._ask_controller(Change(request, timeout_ms=0))
        return list(moves)

    def change_voter(self, change: VoterChange, *, timeout_ms: int = 30_000) -> tuple[str, ...]:
        """Add a metadata voter, or remove one; returns the directory ids of the voters afterwards.

        Raises KafkaError: see VoterChange; RequestTimedOut if a new voter did not catch up in time.
        """
        return self._ask_controller(ChangeVoter(change, timeout_ms))

    def _ask_controller(self, call: ControllerCall[A]) -> A:
        controller = find_actor(CONTROLLER, self.namespace)
        if controller is None:
            raise UpError(f"no cluster is up in namespace {self.namespace!r}; run `bradbury up`")
        try:
            answered: Any = ray.get(controller.ask.remote(call), timeout=READY_SECONDS)
        except RayTaskError as error:
            if isinstance(error.cause, KafkaError):
                raise error.cause from None
            raise
        except (RayActorError, GetTimeoutError):
            raise UpError(
                "the controller is restarting, so the outcome of this request is unknown; try again"
            ) from None
        answer: A = answered
        return answer

    def make_user(self, request: AlterUserScramCredentials) -> None:
        """Create the first user of a new cluster, when no user can log in yet. Raises UpError."""
        outcomes = self._ask_controller(Change(request, timeout_ms=30_000))
        for name, outcome in outcomes.items():
            if outcome.code:
                raise UpError(f"user {name} cannot be created: {outcome.message}")

    def down(self) -> None:
        """Stop every actor, keeping the data; ends Ray too if `up` had started it."""
        stop_actors(self.namespace)
        state = read_state(self.namespace)
        if state is not None and state.is_in(self.ray_address, ray_cluster_id()):
            remove_state(self.namespace)
        if self.owns_ray:
            ray.shutdown()

    def state(self, *, is_kept_here: bool, is_program: bool = False) -> ClusterState:
        """State of the cluster, for the state file.

        is_kept_here: whether the cluster ends with this process.
        is_program: whether this process is a user's program, not `bradbury up`.
        """
        pid = os.getpid() if is_kept_here else None
        return ClusterState(
            namespace=self.namespace,
            ray_address=self.ray_address,
            ray_cluster_id=ray_cluster_id(),
            bootstrap=self.bootstrap_servers,
            data_dir=self.data_dir,
            pid=pid,
            started=None if pid is None else start_time(pid),
            is_program=is_program and is_kept_here,
            descendants=descendants_of(pid) if self.owns_ray and pid is not None else (),
            config=(running_settings(self.namespace) or {}).get("config", {}),
            client_config=self._client_config(),
        )

    def _client_config(self) -> str:
        """Path of the client file that `up(secure=True)` made here; "" if there is none."""
        path = secure_directory(self.namespace) / CLIENT_FILE
        settings = (running_settings(self.namespace) or {}).get("config", {})
        own = settings.get("ssl.keystore.location", "")
        return str(path) if own.endswith(f"/{NODE_FILE}") and path.exists() else ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()


def default_data_dir(namespace: str = DEFAULT_NAMESPACE) -> str:
    """Default data directory of a namespace, in $XDG_DATA_HOME or else ~/.local/share."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    name = "bradbury" if namespace == DEFAULT_NAMESPACE else f"bradbury-{namespace}"
    return str(Path(base) / name)


def data_dirs(given: str | Sequence[str]) -> tuple[str, ...]:
    """Data directories as a tuple, from one path or several; the first one stays first."""
    return (given,) if isinstance(given, str) else tuple(given)


def _absolute(given: str | Sequence[str]) -> str | list[str]:
    first, *more = (str(Path(path).absolute()) for path in data_dirs(given))
    return [first, *more] if more else first


def up(
    data_dir: str | Sequence[str] | None = None,
    *,
    host: str | None = None,
    port: int | None = None,
    address: str | None = None,
    namespace: str | None = None,
    node_label: Mapping[str, str] | None = None,
    node_resource: str | None = None,
    config: Mapping[str, Any] | None = None,
    secure: bool = False,
    insecure: bool = False,
    on_progress: Callable[[str], None] = lambda text: None,
) -> Cluster:
    """Serve from every node of the Ray cluster; returns when all do. May be repeated without harm.

    The user's state file names the cluster afterwards, so that commands and clients of other
    processes find it.

    Args:
        data_dir: on each node's local disk; default_data_dir() if None. Several, on several disks:
            partitions are spread over them, and a failed disk takes only its own offline. The first
            directory also holds the metadata.
        host: address to bind; by default loopback, or each node's own on a cluster of many.
        port: of each node's broker (the bootstrap address); its other actors use the next ones.
            0: any free ports. By default 9092; on one machine, where that is in use, the first
            of 9108, 9124, ... that is free.
        address: the Ray cluster to join ("auto", "host:port", "local" for an embedded one); by
            default the one this process is in, or that of RAY_ADDRESS, or else a new embedded one.
        namespace: the cluster's name, and its Ray namespace: two clusters have two. By default
            BRADBURY_NAMESPACE, or "bradbury".
        node_label, node_resource: only on Ray nodes that have them. Those that join later get
            their brokers by themselves, unless bradbury.auto.join is false.
        config: settings of brokers and groups by Kafka's names, e.g. {"num.partitions": 4}.
        secure: TLS everywhere, clients with passwords, authorization by ACLs; see docs/security.md.
            The clients of this user find the admin's password by themselves.
        insecure: allow listeners without authentication on addresses beyond loopback, where any
            client that reaches them may do everything; without this they are refused. Also needed
            to serve the data of a secured cluster without `secure`.
        on_progress: called with a description of what is being waited for.

    Raises:
        UpError: the cluster cannot be started. What this call has started is stopped again.
    """
    refuse_ray_client()
    namespace = namespace or default_namespace()
    state = read_state(namespace)
    if state is not None and (state.is_stale or not _may_be_up(state)):
        state = None
    if state is not None and not is_connected() and named_address(address) is None:
        address = _running_address(state)
    if not is_connected() and (named_address(address) or LOCAL) == LOCAL:
        first_data_dir = data_dirs(data_dir or default_data_dir(namespace))[0]
        check_for_a_new_ray(config, host, first_data_dir, secure=secure, insecure=insecure)
    owns_ray = join_ray(address, namespace, on_progress)
    try:
        cluster = start(
            data_dir,
            host=host,
            port=port,
            namespace=namespace,
            node_label=node_label,
            node_resource=node_resource,
            config=config,
            secure=secure,
            insecure=insecure,
            on_progress=on_progress,
        )
    except BaseException:
        if owns_ray:
            ray.shutdown()
        raise
    cluster.owns_ray = owns_ray
    if state is None or state.is_in(cluster.ray_address, ray_cluster_id()):
        if state is None or state.pid is None:
            write_state(cluster.state(is_kept_here=owns_ray, is_program=True))
    else:
        logger.info(
            "the state file %s names the cluster at %s, which is not replaced by the one at %s; "
            "give one of the two another namespace",
            state_path(namespace),
            state.bootstrap,
            cluster.bootstrap_servers,
        )
    return cluster


def _running_address(state: ClusterState) -> str:
    """Address of the Ray in which the cluster is up already."""
    if state.pid is not None:
        raise UpError(
            f"a cluster is up already at {state.bootstrap} (process {state.pid}, data in "
            f"{state.data_dir}); bradbury.connect() uses it, up(namespace=...) starts another"
        )
    return state.ray_address


def _may_be_up(state: ClusterState) -> bool:
    """Whether the cluster's process or its Ray still runs. A program with an embedded Ray that was
    killed leaves a state file of a cluster that does not exist any more.
    """
    try:
        return state.pid is not None or why_gone(state) is None
    except UpError:  # it cannot be asked, for want of its token
        return True


def start(
    data_dir: str | Sequence[str] | None = None,
    *,
    host: str | None = None,
    port: int | None = None,
    namespace: str = DEFAULT_NAMESPACE,
    node_label: Mapping[str, str] | None = None,
    node_resource: str | None = None,
    config: Mapping[str, Any] | None = None,
    secure: bool = False,
    insecure: bool = False,
    on_progress: Callable[[str], None] = lambda text: None,
) -> Cluster:
    """`up` on the Ray cluster that this process is connected to; no state file is written."""
    settings: dict[str, Any] = {
        "data_dir": _absolute(data_dir or default_data_dir(namespace)),
        "config": {str(key): str(value) for key, value in (config or {}).items()},
    }
    running = describe_running(namespace)
    existing = None if running is None else running["settings"]
    if existing is not None and data_dir is None:
        settings["data_dir"] = existing["data_dir"]
    first_data_dir = data_dirs(settings["data_dir"])[0]
    if secure and not insecure:
        refuse_ray_without_tokens()
    secured = SecureCluster(namespace) if secure else None
    if secured is not None:
        settings["config"] = secured.config(first_data_dir, settings["config"])
    elif existing is not None and not config:
        settings["config"] = existing["config"]
    server = ServerConfig.from_kafka(settings["config"])
    check_secrets(settings["config"])
    server.security.check_for_several_nodes()
    if existing is not None and existing != settings:
        raise UpError(
            f"a cluster is already up in namespace {namespace!r} with {existing}; "
            "run `bradbury down` first, or omit the settings"
        )
    if running is None and not insecure:
        refuse_secured_data(server.security, first_data_dir)
    nodes = list(living_nodes().values())
    if running is not None:
        placement = Placement(**running["placement"])
        _check_same(placement, host, port, node_label, node_resource)
    else:
        placement = Placement(
            data_dirs=data_dirs(settings["data_dir"]),
            host=host,
            port=port or 0,
            node_label=dict(node_label or {}),
            node_resource=node_resource,
            shared_address=shared_address(nodes),
        )
    is_port_ours = port is None and running is None
    for attempt in range(1, PORT_ATTEMPTS + 1):
        if is_port_ours:
            placement = replace(placement, port=_free_port(nodes, host, server))
        try:
            plans = plan(nodes, placement, server, brokers=_known_brokers(running))
        except PlacementError as error:
            raise UpError(str(error)) from None
        if running is None and not insecure:
            refuse_open_listeners(server.security, (each.config.host for each in plans))
        try:
            certify = None
            if secured is not None:
                secured.certify(plans, first_data_dir, on_progress)
                certify = secured.certifier(namespace, first_data_dir)
            handles = start_actors(plans, namespace, settings, placement, certify)
            wait_until_serving(handles, on_progress)
            break
        except BaseException as error:
            if running is None:
                stop_actors(namespace)
            # Another process bound the port between our check and the broker's bind. Other
            # errors, such as an address of another machine, are not solved by a retry.
            is_taken = (
                isinstance(error, UpError)
                and CANNOT_LISTEN in str(error)
                and os.strerror(errno.EADDRINUSE) in str(error)
            )
            if not (is_port_ours and is_taken and attempt < PORT_ATTEMPTS):
                raise
    cluster = Cluster(namespace, ask(handles[CONTROLLER].bootstrap_servers))
    if secured is not None:
        cluster.make_user(secured.admin_user())
    return cluster


def connect(address: str | None = None, namespace: str | None = None) -> Cluster:
    """Find the running cluster, as all clients do, and join its Ray cluster with this process.

    Args:
        address: the Ray cluster, "auto" or "host:port"; by default the one this process is in, or
            that of RAY_ADDRESS, or the one that the user's state file names.
        namespace: the cluster's; by default BRADBURY_NAMESPACE, or "bradbury".

    Raises:
        UpError: there is none, or its Ray cluster cannot be joined.
    """
    refuse_ray_client()
    namespace = namespace or default_namespace()
    if address is None or address == LOCAL:
        join_running(namespace)
    else:
        connect_ray(address, namespace)
    controller = find_actor(CONTROLLER, namespace)
    if controller is None:
        raise UpError(
            f"no cluster is up in namespace {namespace!r} of the Ray cluster at "
            f"{ray.get_runtime_context().gcs_address}; run `bradbury up`"
        )
    return Cluster(namespace, ask(controller.bootstrap_servers))


# --- nodes and ports ----------------------------------------------------------------------------


def _check_same(
    placement: Placement,
    host: str | None,
    port: int | None,
    node_label: Mapping[str, str] | None,
    node_resource: str | None,
) -> None:
    """Check that the running cluster has the settings asked for. Raises UpError."""
    for name, given, has in (
        ("host", host, placement.host),
        ("port", port or None, placement.port),
        ("node_label", dict(node_label or {}) or None, dict(placement.node_label)),
        ("node_resource", node_resource, placement.node_resource),
    ):
        if given is not None and given != has:
            raise UpError(
                f"the cluster is up already with {name}={has!r}, not {given!r}; run `bradbury "
                f"down` first, or omit it"
            )


def _known_brokers(running: Mapping[str, Any] | None) -> dict[str, Address]:
    found = {}
    for node in () if running is None else running["nodes"]:
        if "broker" in node["roles"]:
            listens_at, _, port = str(node["address"]).rpartition(":")
            found[str(node["machine"])] = (listens_at, int(port))
    return found


def _free_port(nodes: Sequence[RayNode], host: str | None, server: ServerConfig) -> int:
    """Find a free PORT, or on a single machine the first later block of free ports.

    On many machines one port serves for all, and a port in use is an error that names the machine.
    """
    if shared_address(nodes) is None:
        return PORT
    needed = 2 + max(partition_actors(node, server) for node in nodes)
    for block in range(PORT_BLOCKS):
        first = PORT + block * PORTS_PER_NODE
        starts = [first + index * PORTS_PER_NODE for index in range(len(nodes))]
        ports = [start + offset for start in starts for offset in range(needed)]
        if all(_is_free(host or "127.0.0.1", port) for port in ports):
            return first
    return 0


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind((host, port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE  # the broker reports all other errors
    return True
