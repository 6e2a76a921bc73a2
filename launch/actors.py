"""The named actors of a cluster on Ray: created, called, waited for and stopped.

Only this module makes actors of plain classes. Ray restarts a dead actor on the node it is pinned
to; each BrokerActor recreates those of its node that Ray does not restart any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import (
    ActorUnavailableError,
    GetTimeoutError,
    RayActorError,
    RayTaskError,
)

from ..actors.ray.node_watch import Certify
from ..actors.ray.placement import PARTITION_DIRECTORY, ActorPlan, Placement, with_kept
from ..actors.ray.ray_actors import (
    BrokerActor,
    ControllerActor,
    GroupCoordinatorActor,
    PartitionActor,
)
from ..controller.node.controller_finder import BROKER_PREFIX, CONTROLLER
from ..discovery.ray_errors import UpError
from ..protocol.errors import NotController

READY_SECONDS = 120.0
# A previous actor that is being killed holds its lock and port only for a moment.
PATIENCE_SECONDS = 5.0
ANSWER_SECONDS = 5.0
STOP_SECONDS = 30.0
HAND_OVER_SECONDS = 2.0
DEAD_SECONDS = 10.0
"""Seconds to retry calls to a dead actor: Ray also reports it dead while it restarts it."""

_CLASSES = {
    "BrokerActor": BrokerActor,
    "PartitionActor": PartitionActor,
    "GroupCoordinatorActor": GroupCoordinatorActor,
}


def actor_options(name: str, namespace: str, **pins: Any) -> dict[str, Any]:
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
    return create_actor(
        _CLASSES[actor.kind], actor_options(actor.name, namespace, **pins), *arguments
    )


def create_actor(cls: Any, options: dict[str, Any], *arguments: Any) -> ActorHandle[Any]:
    handle: ActorHandle[Any] = ray.remote(cls).options(**options).remote(*arguments)
    return handle


def ask(method: Any, timeout: float = READY_SECONDS) -> Any:
    """Call a method of one of our actors; retried while the actor is being restarted.

    Raises:
        UpError: no answer in time, or the actor is dead and not restarted.
        Exception: what the actor raised, without Ray's stack trace.
    """
    began = time.monotonic()
    deadline = began + timeout
    while True:
        try:
            return ray.get(method.remote(), timeout=max(0.1, deadline - time.monotonic()))
        except ActorUnavailableError:
            if time.monotonic() > deadline:
                raise UpError("an actor of the cluster is not restarted; see its log") from None
            time.sleep(0.1)
        except RayTaskError as error:
            restarted = isinstance(error.cause, NotController)  # and has not reached its voters yet
            if not restarted or time.monotonic() > began + DEAD_SECONDS:
                raise error.cause from None
            time.sleep(0.1)
        except (RayActorError, GetTimeoutError) as error:
            if isinstance(error, RayActorError) and time.monotonic() < began + DEAD_SECONDS:
                time.sleep(0.1)
                continue
            raise UpError(
                f"an actor of the cluster does not answer ({type(error).__name__}); "
                "`bradbury down` and `bradbury up` restart it and keep the data"
            ) from None


def ask_all(methods: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    """Call methods of several actors at once; returns their answers by the keys of `methods`.

    A call is retried while its actor is being restarted. If no answer arrives within `timeout`
    seconds, the value is an UpError: the timeout is for all calls together, however many actors a
    lost node had.
    """
    deadline = time.monotonic() + timeout
    answers: dict[str, Any] = {}
    silent = UpError(f"no answer within {timeout:g} s: it is being restarted, or its node is gone")
    failures = dict.fromkeys(methods, silent)
    asked = {method.remote(): name for name, method in methods.items()}
    while asked and (left := deadline - time.monotonic()) > 0:
        ready, _ = ray.wait(list(asked), timeout=left)
        restarting = []
        for answer in ready:
            name = asked.pop(answer)
            try:
                answers[name] = ray.get(answer)
            except ActorUnavailableError:
                restarting.append(name)
            except RayActorError as error:
                restarting.append(name)
                failures[name] = UpError(f"the actor is gone ({type(error).__name__})")
        if restarting:
            time.sleep(0.1)
            asked |= {methods[name].remote(): name for name in restarting}
    return {name: answers.get(name, failures[name]) for name in methods}


def start_siblings(siblings: tuple[ActorPlan, ...], namespace: str) -> None:
    """Create the missing actors of a node (called periodically by the node's broker)."""
    for actor in with_kept(siblings, _directories_with_partitions(siblings)):
        if find_actor(actor.name, namespace) is None:
            start_actor(actor, namespace)


def _directories_with_partitions(siblings: tuple[ActorPlan, ...]) -> set[str]:
    """Names of directories with partitions on the disks of the node that this process runs on."""
    bases = {
        Path(base)
        for actor in siblings
        for base in (actor.config.data_dir, *actor.config.more_data_dirs)
    }
    return {
        folder.name
        for base in bases
        for folder in base.glob(f"{PARTITION_DIRECTORY}*")
        if any(each.is_dir() for each in folder.iterdir())
    }


def start_joined(namespace: str, broker: ActorPlan) -> None:
    """Create the actors of a Ray node that has joined, as `start_actors` does."""
    for actor in (broker, *broker.siblings):
        start_actor(actor, namespace)


def start_actors(
    plans: list[ActorPlan],
    namespace: str,
    settings: dict[str, Any],
    placement: Placement,
    certify: Certify | None = None,
) -> dict[str, ActorHandle[Any]]:
    """Create the actors, or get those that exist. `certify`: certifies nodes that join later."""
    handles: dict[str, ActorHandle[Any]] = {}
    for broker in plans:
        handles[broker.name] = start_actor(broker, namespace)
    handles[CONTROLLER] = create_actor(
        ControllerActor,
        actor_options(CONTROLLER, namespace, **placement.controller_pins),
        namespace,
        settings,
        placement,
        partial(start_joined, namespace),
        certify,
    )
    for broker in plans:
        for actor in broker.siblings:
            handles[actor.name] = start_actor(actor, namespace)
    return handles


def wait_until_serving(
    handles: Mapping[str, ActorHandle[Any]], on_progress: Callable[[str], None]
) -> None:
    """Wait until no actor reports a problem. Raises UpError for a problem that does not pass."""
    deadline = time.monotonic() + READY_SECONDS
    patience = time.monotonic() + PATIENCE_SECONDS
    while True:
        problems: dict[str, str] = {}
        asked: dict[str, Any] = {name: handle.problem.remote() for name, handle in handles.items()}
        for name, reference in asked.items():
            try:
                problem = ray.get(reference, timeout=max(0.1, deadline - time.monotonic()))
            except GetTimeoutError:
                problem = "is starting"
            except RayActorError as error:
                why = (
                    (str(error).strip() or "its process has ended")
                    .splitlines()[-1]
                    .strip()
                    .partition(". ")[0]
                )
                problem = f"is being started again ({why.replace(';', ',')})"
            if problem is not None:
                problems[name] = problem
        if not problems:
            return
        name, problem = next(iter(problems.items()))
        on_progress(f"{name}: {problem}")
        # With a remedy: see ray_actors._in_words.
        real = next((text for text in problems.values() if ";" in text), None)
        if real is not None and time.monotonic() > patience:
            raise UpError(real)
        if time.monotonic() > deadline:
            session = ray.get_runtime_context()
            logs = f"{session.get_temp_dir()}/{session.get_session_name()}/logs"
            raise UpError(
                f"not ready after {READY_SECONDS:.0f} s: {name}: {problem}; "
                f"Ray has its log in {logs}"
            )
        time.sleep(0.05)


def find_actor(name: str, namespace: str) -> ActorHandle[Any] | None:
    try:
        handle: ActorHandle[Any] = ray.get_actor(name, namespace=namespace)
    except ValueError:
        return None
    return handle


def describe_running(namespace: str) -> dict[str, Any] | None:
    """The controller's description; None if there is no controller, or it does not answer."""
    controller = find_actor(CONTROLLER, namespace)
    if controller is None:
        return None
    try:
        described: dict[str, Any] = ask(controller.describe)
    except UpError:
        return None
    return described


def running_settings(namespace: str) -> dict[str, Any] | None:
    described = describe_running(namespace)
    settings: dict[str, Any] | None = None if described is None else described["settings"]
    return settings


def named_actors(namespace: str) -> list[str]:
    return sorted(
        str(entry["name"])
        for entry in ray.util.list_named_actors(all_namespaces=True)
        if entry["namespace"] == namespace
        and str(entry["name"]).split("/")[0] in (CONTROLLER, "broker", "groups", "partitions")
    )


def stop_actors(namespace: str) -> int:
    """Stop a cluster's actors after a flush of their data; returns how many there were.

    The controller is stopped first, so that no broker is started for a node that joins meanwhile;
    brokers are killed first, so that none of them recreates its siblings. `ray.kill` returns before
    the actor is dead: until the names are free `up` would find these actors, and a broker that is
    still alive may have recreated a sibling.
    """
    controller = find_actor(CONTROLLER, namespace)
    if controller is not None:
        stopped: list[Any] = [controller.stop.remote()]
        ray.wait(stopped, timeout=ANSWER_SECONDS)
    names = named_actors(namespace)
    handles = [handle for name in names if (handle := find_actor(name, namespace)) is not None]
    stopping: list[Any] = [handle.stop.remote() for handle in handles]
    if stopping:
        ray.wait(stopping, num_returns=len(stopping), timeout=STOP_SECONDS)
    for handle in handles:
        ray.kill(handle)
    deadline = time.monotonic() + DEAD_SECONDS
    while (names := named_actors(namespace)) and time.monotonic() < deadline:
        for name in names:
            if (handle := find_actor(name, namespace)) is not None:
                ray.kill(handle)
        time.sleep(0.01)
    return len(handles)


def _describe(controller: ActorHandle[Any], namespace: str) -> dict[str, Any]:
    """Description of the controller, or of the standby: one may be handing over to the other."""
    deadline = time.monotonic() + HAND_OVER_SECONDS
    while True:
        described: dict[str, Any] = ask(controller.describe)
        if not described["active"]:
            described |= _standby_description(namespace)
        if described["active"] or time.monotonic() > deadline:
            return described
        time.sleep(0.1)


def brokers_in_service(namespace: str) -> list[str]:
    """host:port of each broker in service. Raises UpError if no controller answers."""
    controller = find_actor(CONTROLLER, namespace)
    if controller is None:
        raise UpError(f"no cluster is up in namespace {namespace!r}; run `bradbury up`")
    return [
        node["address"]
        for node in _describe(controller, namespace)["nodes"]
        if "broker" in node["roles"] and not node["fenced"]
    ]


def _handles(namespace: str) -> dict[str, ActorHandle[Any]]:
    """The actors of a cluster's nodes, by name: brokers and their siblings."""
    return {
        name: handle
        for name in named_actors(namespace)
        if name != CONTROLLER and (handle := find_actor(name, namespace)) is not None
    }


def _standby_description(namespace: str) -> dict[str, Any]:
    """The description of a broker's standby controller; empty if none is active."""
    brokers = {
        name: handle.describe_standby
        for name, handle in _handles(namespace).items()
        if name.startswith(BROKER_PREFIX)
    }
    for described in ask_all(brokers, ANSWER_SECONDS).values():
        if isinstance(described, dict):
            return described
    return {}


def status(namespace: str) -> dict[str, Any]:
    """The controller's description with each node's own status."""
    controller = find_actor(CONTROLLER, namespace)
    if controller is None:
        raise UpError(f"no cluster is up in namespace {namespace!r}; run `bradbury up`")
    described = _describe(controller, namespace)
    methods = {name: handle.status for name, handle in _handles(namespace).items()}
    described["actors"] = [
        {"actor": name, **({"problem": str(entry)} if isinstance(entry, UpError) else entry)}
        for name, entry in ask_all(methods, ANSWER_SECONDS).items()
    ]
    return described
