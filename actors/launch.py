"""Starting and stopping a cluster on Ray: the one place where plain classes become actors.

`up` joins the Ray cluster this process runs in or is given, else starts an embedded one; it creates
the named detached actors that are not there yet and waits until all of them serve. Ray restarts a
dead actor where it was pinned; each BrokerActor makes anew what Ray has given up.

The environment is read here and nowhere else.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import ray
from ray.actor import ActorHandle
from ray.exceptions import (
    ActorUnavailableError,
    GetTimeoutError,
    RayActorError,
    RayTaskError,
)

from ..cluster.rebalance import Move, Rebalance
from ..cluster.voter_change import VoterChange
from ..handlers.server_config import ServerConfig
from ..protocol.errors import KafkaError
from .handles import BROKER_PREFIX, CONTROLLER
from .placement import ActorPlan, PlacementError, RayNode, plan
from .ray_actors import BrokerActor, ControllerActor, GroupCoordinatorActor, PartitionActor

if TYPE_CHECKING:
    from .. import Admin

NAMESPACE = "bradbury"
PORT = 9092
READY_SECONDS = 60.0
REACH_SECONDS = 5.0
# A predecessor that is being killed holds its lock and port for a moment; longer is a real problem.
PATIENCE_SECONDS = 5.0
STOP_SECONDS = 30.0
HAND_OVER_SECONDS = 2.0

_CLASSES = {
    "BrokerActor": BrokerActor,
    "PartitionActor": PartitionActor,
    "GroupCoordinatorActor": GroupCoordinatorActor,
}

# Ray runs its workers at nice 15, which starves a broker beside busy tasks; and it ends every node
# 60 s after the loss of its head, which for a log must not stop the data.
EMBEDDED_ENVIRONMENT = {
    "RAY_worker_niceness": "0",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "86400",
}


NO_BYTE_CODE = "PYTHONDONTWRITEBYTECODE"


class UpError(Exception):
    """The cluster could not be started or reached. One line: the cause and the remedy."""


class Cluster:
    """A running cluster on Ray. As a context manager it is taken down at the end, data kept."""

    def __init__(self, namespace: str, bootstrap_servers: str, *, owns_ray: bool) -> None:
        self.namespace = namespace
        self.bootstrap_servers = bootstrap_servers
        """host:port of every broker, separated by commas."""
        self._owns_ray = owns_ray

    def admin(self) -> Admin:
        """An Admin client of this cluster."""
        from .. import Admin

        return Admin(bootstrap=self.bootstrap_servers)

    def status(self) -> dict[str, Any]:
        """Controller, nodes, partitions: what `bradbury status --json` prints."""
        return status(self.namespace)

    def rebalance(
        self, *, drain: str | None = None, restore: str | None = None, dry_run: bool = False
    ) -> list[Move]:
        """Begin to move replicas, so that every node has its share; at most 1,000 partitions.

        Args:
            drain: the name of a machine (see `status`) that is to have none any more.
            restore: a drained machine that gets new partitions again; nothing moves for it yet.
            dry_run: only say what would move.

        Returns what moves; `status()["reassigned"]` says how much of it is not done yet.
        Raises KafkaError: no such machine, or the others are too few.
        """
        request = Rebalance(drain=drain, restore=restore, validate_only=dry_run)
        return list(self._ask_controller("change", request, 0))

    def change_voter(self, change: VoterChange, *, timeout_ms: int = 30_000) -> tuple[str, ...]:
        """Add a voter of the metadata or remove one; the directory ids of those that vote then.

        Raises KafkaError: see VoterChange; RequestTimedOut if a new one has not caught up in time.
        """
        return tuple(self._ask_controller("change_voter", change, timeout_ms))

    def _ask_controller(self, method: str, *arguments: Any) -> Any:
        controller = _get_actor(CONTROLLER, self.namespace)
        if controller is None:
            raise UpError(f"no cluster is up in namespace {self.namespace!r}; run `bradbury up`")
        try:
            return ray.get(getattr(controller, method).remote(*arguments), timeout=READY_SECONDS)
        except RayTaskError as error:
            if isinstance(error.cause, KafkaError):
                raise error.cause from None
            raise

    def down(self) -> None:
        """Stop every actor, keeping the data; ends Ray too if `up` had started it."""
        stop_actors(self.namespace)
        if self._owns_ray:
            ray.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()


def default_data_dir() -> str:
    """$XDG_DATA_HOME/bradbury, by default ~/.local/share/bradbury."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return str(Path(base) / "bradbury")


def data_dirs(given: str | Sequence[str]) -> tuple[str, ...]:
    """One path or several, the first first."""
    return (given,) if isinstance(given, str) else tuple(given)


def _absolute(given: str | Sequence[str]) -> str | list[str]:
    first, *more = (str(Path(path).absolute()) for path in data_dirs(given))
    return [first, *more] if more else first


def up(
    data_dir: str | Sequence[str] | None = None,
    *,
    host: str | None = None,
    port: int = PORT,
    address: str | None = None,
    namespace: str = NAMESPACE,
    node_label: Mapping[str, str] | None = None,
    node_resource: str | None = None,
    config: Mapping[str, Any] | None = None,
    on_progress: Callable[[str], None] = lambda text: None,
) -> Cluster:
    """Serve from every node of the Ray cluster; return when all nodes do. Repeating it is harmless.

    Args:
        data_dir: on each node's local disk; default_data_dir() if None. Several, on several disks:
            partitions are spread over them, and a broken one takes only its own out of service. The
            first one also holds the metadata.
        host: address to bind; by default loopback, or each node's own on a cluster of many.
        port: of each node's broker (the bootstrap address); its other actors take the next ones.
            0 takes any free ports.
        address: the Ray cluster to join ("auto", "host:port", "local" for an embedded one); by
            default the one this process is in, or RAY_ADDRESS, or one on this machine, or else a
            new embedded one.
        namespace: two clusters on one Ray cluster live in two namespaces.
        node_label, node_resource: only on Ray nodes that have them.
        config: settings of brokers and groups by Kafka's names, e.g. {"num.partitions": 4}.
        on_progress: told in words what is being waited for.

    Raises:
        UpError: nothing is left half-started by this call that was not running before.
    """
    settings: dict[str, Any] = {
        "data_dir": _absolute(data_dir or default_data_dir()),
        "config": {str(key): str(value) for key, value in (config or {}).items()},
    }
    server = ServerConfig.from_kafka(settings["config"])
    owns_ray = join_ray(address, namespace, on_progress)
    try:
        existing = _existing_settings(namespace)
        if existing is not None and data_dir is None:
            settings["data_dir"] = existing["data_dir"]
        if existing is not None and config is None:
            settings["config"] = existing["config"]
        if existing is not None and existing != settings:
            raise UpError(
                f"a cluster is already up in namespace {namespace!r} with {existing}; "
                "run `bradbury down` first, or leave the settings away"
            )
        try:
            plans = plan(
                _ray_nodes(),
                data_dir=data_dirs(settings["data_dir"])[0],
                more_data_dirs=data_dirs(settings["data_dir"])[1:],
                host=host,
                port=port,
                server=server,
                node_label=node_label,
                node_resource=node_resource,
            )
        except PlacementError as error:
            raise UpError(str(error)) from None
        try:
            handles = _start(plans, namespace, settings)
            _wait_until_serving(handles, on_progress)
        except BaseException:
            if existing is None:
                stop_actors(namespace)
            raise
        servers: str = _ask(handles[CONTROLLER].bootstrap_servers)
    except BaseException:
        if owns_ray:
            ray.shutdown()
        raise
    return Cluster(namespace, servers, owns_ray=owns_ray)


def connect(address: str | None = None, namespace: str = NAMESPACE) -> Cluster:
    """The cluster that is up on a Ray cluster. Raises UpError if there is none."""
    if not ray.is_initialized():
        _init_ray(address or "auto", namespace)
    controller = _get_actor(CONTROLLER, namespace)
    if controller is None:
        raise UpError(f"no cluster is up in namespace {namespace!r}; run `bradbury up`")
    servers: str = _ask(controller.bootstrap_servers)
    return Cluster(namespace, servers, owns_ray=False)


# --- Ray -----------------------------------------------------------------------------------------


def join_ray(
    address: str | None, namespace: str, on_progress: Callable[[str], None] = lambda text: None
) -> bool:
    """Make sure that Ray is connected; True if an embedded one was started."""
    if ray.is_initialized():
        return False
    if address is None and not os.environ.get("RAY_ADDRESS"):
        try:
            _init_ray("auto", namespace)
            return False
        except UpError:
            address = "local"
    if address == "local":
        on_progress("starting an embedded Ray")
        with _environment(EMBEDDED_ENVIRONMENT):
            _init_ray("local", namespace)
        return True
    _init_ray(address or "auto", namespace)
    return False


def _check_reachable(address: str) -> None:
    """Ray itself would try for minutes, and write about it. Raises UpError."""
    named = os.environ.get("RAY_ADDRESS", address) if address == "auto" else address
    host, colon, port = named.rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UpError(
            f"no Ray cluster answers at {named!r} ({error}); "
            "start one with `ray start --head`, or leave the address away"
        ) from None


def _init_ray(address: str, namespace: str) -> None:
    _check_reachable(address)
    try:
        ray.init(
            address=address,
            namespace=namespace,
            log_to_driver=False,
            include_dashboard=False if address == "local" else None,
            logging_level=logging.ERROR,
            configure_logging=True,
        )
    except ConnectionError as error:
        raise UpError(
            f"no Ray cluster answers at {address!r} ({str(error).splitlines()[0]}); "
            "start one with `ray start --head`, or leave the address away"
        ) from None
    except RuntimeError as error:
        if "ersion mismatch" in str(error):
            said = " ".join(str(error).split())
            raise UpError(
                f"this environment's Ray {ray.__version__} is not the cluster's: {said}; "
                "install the cluster's Ray and Python versions here"
            ) from None
        raise


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """For the processes that Ray starts now. What the user has set himself is kept.

    Without byte code files every Ray process would compile some 250 modules anew, so a setting
    against them is suspended and they are kept in a cache of our own.
    """
    changed = {name: value for name, value in values.items() if name not in os.environ}
    byte_code = os.environ.pop(NO_BYTE_CODE, None)
    if byte_code and "PYTHONPYCACHEPREFIX" not in os.environ:
        cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        changed["PYTHONPYCACHEPREFIX"] = str(Path(cache) / "bradbury" / "pycache")
    os.environ.update(changed)
    try:
        yield
    finally:
        # Only what was changed here: what Ray itself sets for its children (its token) must stay.
        for name in changed:
            os.environ.pop(name, None)
        if byte_code is not None:
            os.environ[NO_BYTE_CODE] = byte_code


def _ray_nodes() -> list[RayNode]:
    return [
        RayNode(node["NodeManagerAddress"], node.get("Labels") or {}, node["Resources"])
        for node in ray.nodes()  # type: ignore[no-untyped-call]
        if node["Alive"]
    ]


# --- actors --------------------------------------------------------------------------------------


def _options(name: str, namespace: str, **pins: Any) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": namespace,
        "lifetime": "detached",
        "get_if_exists": True,
        "num_cpus": 0,
        "max_restarts": -1,
        "max_task_retries": 0,
        "max_concurrency": 10_000,
        "enable_task_events": False,
        **pins,
    }


def start_actor(actor: ActorPlan, namespace: str) -> ActorHandle[Any]:
    """Create the actor, or get it if it exists."""
    pins: dict[str, Any] = {}
    if actor.label_selector:
        pins["label_selector"] = dict(actor.label_selector)
    if actor.resources:
        pins["resources"] = dict(actor.resources)
    arguments: list[Any] = [actor.config, namespace]
    if actor.kind == "BrokerActor":
        arguments.append(partial(start_siblings, actor.siblings, namespace))
    return _create(_CLASSES[actor.kind], _options(actor.name, namespace, **pins), *arguments)


def _create(cls: Any, options: dict[str, Any], *arguments: Any) -> ActorHandle[Any]:
    handle: ActorHandle[Any] = ray.remote(cls).options(**options).remote(*arguments)
    return handle


def _ask(method: Any, timeout: float = READY_SECONDS) -> Any:
    """The answer of an actor of ours; one that is being restarted is asked again.

    Raises:
        UpError: no answer in time, or the actor is gone for good.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            return ray.get(method.remote(), timeout=max(0.1, deadline - time.monotonic()))
        except ActorUnavailableError:
            if time.monotonic() > deadline:
                raise UpError("an actor of the cluster does not come back; see its log") from None
            time.sleep(0.1)
        except (RayActorError, GetTimeoutError) as error:
            raise UpError(
                f"an actor of the cluster does not answer ({type(error).__name__}); "
                "`bradbury down` and `bradbury up` start it anew, data kept"
            ) from None


def start_siblings(siblings: tuple[ActorPlan, ...], namespace: str) -> None:
    """Create those actors of a node that are not there (run again and again by its broker)."""
    for actor in siblings:
        if _get_actor(actor.name, namespace) is None:
            start_actor(actor, namespace)


def _start(
    plans: list[ActorPlan], namespace: str, settings: dict[str, Any]
) -> dict[str, ActorHandle[Any]]:
    handles: dict[str, ActorHandle[Any]] = {}
    for broker in plans:
        handles[broker.name] = start_actor(broker, namespace)
    handles[CONTROLLER] = _create(
        ControllerActor, _options(CONTROLLER, namespace), namespace, settings
    )
    for broker in plans:
        for actor in broker.siblings:
            handles[actor.name] = start_actor(actor, namespace)
    return handles


def _wait_until_serving(
    handles: Mapping[str, ActorHandle[Any]], on_progress: Callable[[str], None]
) -> None:
    """Until no actor has a problem. One that cannot come right by waiting is raised."""
    deadline = time.monotonic() + READY_SECONDS
    patience = time.monotonic() + PATIENCE_SECONDS
    while True:
        problems: dict[str, str] = {}
        asked: dict[str, Any] = {name: handle.problem.remote() for name, handle in handles.items()}
        for name, reference in asked.items():
            try:
                problem = ray.get(reference, timeout=max(0.1, deadline - time.monotonic()))
            except (RayActorError, GetTimeoutError):
                problem = "is starting"
            if problem is not None:
                problems[name] = problem
        if not problems:
            return
        name, problem = next(iter(problems.items()))
        on_progress(f"{name}: {problem}")
        real = next((text for text in problems.values() if ";" in text), None)
        if real is not None and time.monotonic() > patience:
            raise UpError(real)
        if time.monotonic() > deadline:
            raise UpError(f"after {READY_SECONDS:.0f} s {name} still says: {problem}")
        time.sleep(0.05)


def _get_actor(name: str, namespace: str) -> ActorHandle[Any] | None:
    try:
        handle: ActorHandle[Any] = ray.get_actor(name, namespace=namespace)
    except ValueError:
        return None
    return handle


def _existing_settings(namespace: str) -> dict[str, Any] | None:
    controller = _get_actor(CONTROLLER, namespace)
    if controller is None:
        return None
    try:
        described: dict[str, Any] = _ask(controller.describe)
    except UpError:
        return None
    settings: dict[str, Any] = described["settings"]
    return settings


def _named_actors(namespace: str) -> list[str]:
    return sorted(
        str(entry["name"])
        for entry in ray.util.list_named_actors(all_namespaces=True)
        if entry["namespace"] == namespace
        and str(entry["name"]).split("/")[0] in (CONTROLLER, "broker", "groups", "partitions")
    )


def stop_actors(namespace: str) -> int:
    """Stop a cluster's actors, data brought to the disk first; returns how many there were.

    Brokers go first so that none of them makes its siblings anew; their voters are needed by
    nobody once the controller has stopped.
    """
    names = _named_actors(namespace)
    handles = [handle for name in names if (handle := _get_actor(name, namespace)) is not None]
    stopping: list[Any] = [handle.stop.remote() for handle in handles]
    if stopping:
        ray.wait(stopping, num_returns=len(stopping), timeout=STOP_SECONDS)
    for handle in handles:
        ray.kill(handle)
    return len(handles)


def _describe(controller: ActorHandle[Any], namespace: str) -> dict[str, Any]:
    """What the controller says, or who stands in for it; one hands over to the other meanwhile."""
    deadline = time.monotonic() + HAND_OVER_SECONDS
    while True:
        described: dict[str, Any] = _ask(controller.describe)
        if not described["active"]:
            described |= _standing_in(namespace)
        if described["active"] or time.monotonic() > deadline:
            return described
        time.sleep(0.1)


def _standing_in(namespace: str) -> dict[str, Any]:
    """What a broker says that stands in for the controller; empty if none does."""
    for name in _named_actors(namespace):
        handle = _get_actor(name, namespace) if name.startswith(BROKER_PREFIX) else None
        if handle is None:
            continue
        try:
            described: dict[str, Any] | None = _ask(handle.describe_standby, 5)
        except UpError:
            continue
        if described is not None:
            return described
    return {}


def status(namespace: str = NAMESPACE) -> dict[str, Any]:
    """The controller's description with each node's own status."""
    controller = _get_actor(CONTROLLER, namespace)
    if controller is None:
        raise UpError(f"no cluster is up in namespace {namespace!r}; run `bradbury up`")
    described = _describe(controller, namespace)
    described["actors"] = []
    for name in _named_actors(namespace):
        handle = _get_actor(name, namespace)
        if name == CONTROLLER or handle is None:
            continue
        try:
            entry = _ask(handle.status, 5)
        except UpError as error:
            entry = {"problem": str(error)}
        described["actors"].append({"actor": name, **entry})
    return described
