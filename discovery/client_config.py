"""The file of security settings for a client that is given none.

In this order:
    the environment's BRADBURY_CLIENT_CONFIG
    that of the cluster which was started here with --secure, if it is the one to connect to
    in a process that is connected to Ray: that of the cluster there, at the path its controller has
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from .bootstrap import ASK_SECONDS, CONTROLLER
from .ray_connection import is_connected
from .state_file import CLIENT_CONFIG_VARIABLE, live_state, running_namespaces


def find_client_config(servers: str, namespace: str) -> str | None:
    """Path of the file; None if the brokers at `servers` need no security settings."""
    named = os.environ.get(CLIENT_CONFIG_VARIABLE)
    if named:
        return named
    for name in dict.fromkeys((namespace, *running_namespaces())):
        state = live_state(name)
        if state is not None and state.client_config and _share_a_server(servers, state.bootstrap):
            return state.client_config
    return _of_the_ray_cluster(servers, namespace) if is_connected() else None


def _of_the_ray_cluster(servers: str, namespace: str) -> str | None:
    ray: Any = sys.modules["ray"]
    try:
        controller = ray.get_actor(CONTROLLER, namespace=namespace)
        # Not ray.get, of which Ray warns in an async actor.
        path, brokers = controller.client_config.remote().future().result(ASK_SECONDS)
    except Exception:  # noqa: BLE001 -- no cluster, or no answer: connecting will report it
        return None
    is_same_cluster = path and Path(path).exists() and _share_a_server(servers, brokers)
    return str(path) if is_same_cluster else None


def _share_a_server(some: str, others: str) -> bool:
    return not {each.strip() for each in some.split(",")}.isdisjoint(others.split(","))
