"""The addresses of the brokers, from an argument, the environment, Ray, or the state file.

In this order:
    the argument, "host:port,..."
    the environment's BRADBURY_BOOTSTRAP
    the Ray cluster that this process is connected to, if a cluster is up in it
    RAY_ADDRESS, or the Ray cluster that has started this process
    the state file of the cluster that was started here, unless the environment names another Ray:
        clients of a cluster there must not connect to this one
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from ..protocol.errors import ConnectionFailed
from .ray_connection import connect_ray, is_connected, named_address, resolve_address
from .ray_errors import UpError
from .state_file import (
    BOOTSTRAP_VARIABLE,
    DEFAULT_NAMESPACE,
    ClusterState,
    live_state,
    running_namespaces,
)

CONTROLLER: Final = "controller"
ASK_SECONDS = 30.0


def find_servers(given: str | None, namespace: str) -> str:
    """Find the brokers of the cluster `namespace`: "host:port,...", not checked.

    Ray is imported only where the environment names a Ray cluster; this process then connects to it
    for a single actor call, and disconnects.

    Raises:
        ConnectionFailed: no cluster was found.
    """
    found = given or os.environ.get(BOOTSTRAP_VARIABLE)
    if not found and is_connected():
        found = _from_controller(namespace)
    state = live_state(namespace)
    if not found and not is_connected():
        found = _from_environment(namespace, state)
    if not found and state is not None:
        found = state.bootstrap
    if not found:
        raise ConnectionFailed(_why_not(namespace))
    return found


def _from_environment(namespace: str, state: ClusterState | None) -> str | None:
    address = named_address(None)
    if address is None:
        return None
    if state is not None and state.ray_address == address:
        return state.bootstrap
    import ray

    try:
        if state is not None and resolve_address(address) == state.ray_address:
            return state.bootstrap
        connect_ray(address, namespace)
    except UpError as error:
        raise ConnectionFailed(str(error)) from None
    try:
        servers = _from_controller(namespace)
    finally:
        ray.shutdown()  # so that the program's own ray.init is the first
    if servers is None and state is not None:
        raise ConnectionFailed(
            f"no cluster is up in namespace {namespace!r} of the Ray cluster at {address}, which "
            f"the environment names; unset RAY_ADDRESS to use the one that is up here, at "
            f"{state.bootstrap}, or name its brokers"
        )
    return servers


def _from_controller(namespace: str) -> str | None:
    """Brokers that the controller actor returns; None if this Ray cluster has no such actor.

    Raises:
        ConnectionFailed: the controller does not answer, or is waiting for its voters.
    """
    ray: Any = sys.modules["ray"]
    try:
        controller = ray.get_actor(CONTROLLER, namespace=namespace)
    except ValueError:
        return None
    try:
        # Not ray.get, of which Ray warns in an async actor.
        servers: str = controller.bootstrap_servers.remote().future().result(ASK_SECONDS)
    except ray.exceptions.RayTaskError as error:
        raise ConnectionFailed(f"{error.cause}; see `bradbury status`") from None
    except (ray.exceptions.RayError, TimeoutError) as error:
        raise ConnectionFailed(
            f"the cluster's controller does not answer ({type(error).__name__}); "
            "see `bradbury status`"
        ) from None
    return servers


def _why_not(namespace: str) -> str:
    others = [name for name in running_namespaces() if name != namespace]
    if others:
        return (
            f"no cluster is up in namespace {namespace!r}, only in {', '.join(map(repr, others))}; "
            f"name it by BRADBURY_NAMESPACE={others[0]} or --namespace {others[0]}"
        )
    if namespace != DEFAULT_NAMESPACE:
        return (
            f"no cluster is up in namespace {namespace!r} here: start it with "
            f"`bradbury up --detach --namespace {namespace}`, or name its brokers, "
            'bootstrap="host:port" or --bootstrap host:port'
        )
    return (
        "no cluster found: start one with `bradbury up --detach`; on a machine of a Ray cluster "
        "that one runs in, set RAY_ADDRESS=auto; or name its brokers, "
        'bootstrap="host:port" or --bootstrap host:port'
    )
