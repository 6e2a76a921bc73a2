"""Where the cluster is: an argument, the environment, or the controller actor in Ray."""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from ..protocol.errors import ConnectionFailed
from .connection import Address

ENVIRONMENT_VARIABLE: Final = "BRADBURY_BOOTSTRAP"
NAMESPACE: Final = "bradbury"
CONTROLLER_NAME: Final = "controller"
DEFAULT_PORT: Final = 9092


def find_bootstrap(bootstrap: str | None, *, namespace: str = NAMESPACE) -> list[Address]:
    """The addresses to ask first.

    In this order: `bootstrap`, "host:port,..."; the environment variable BRADBURY_BOOTSTRAP; inside
    a Ray cluster the detached actor "controller" in `namespace`.

    Raises:
        ConnectionFailed: none of the three says.
        ValueError: what one says is no list of addresses.
    """
    servers = bootstrap or os.environ.get(ENVIRONMENT_VARIABLE) or _from_ray(namespace)
    if not servers:
        raise ConnectionFailed(
            f'no cluster found: pass bootstrap="host:port", set {ENVIRONMENT_VARIABLE}, or start '
            "one in this Ray cluster with bradbury.up()"
        )
    return parse_servers(servers)


def parse_servers(servers: str) -> list[Address]:
    """The addresses in "host:port,host:port"; an IPv6 host is in brackets; the port may be missing.

    Raises:
        ValueError: it is no such list.
    """
    addresses = []
    for server in filter(None, (part.strip() for part in servers.split(","))):
        host, colon, port = server.rpartition(":")
        if not colon or server.endswith("]"):
            host, port = server, str(DEFAULT_PORT)
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f'{server!r} is no address; say bootstrap="host:port,host:port"')
        addresses.append(Address(host, int(port)))
    if not addresses:
        raise ValueError('no address given; say bootstrap="host:port,host:port"')
    return addresses


def _from_ray(namespace: str) -> str | None:
    """What the controller actor says, or None outside Ray and where there is no such actor.

    Ray is never imported or started for this: a process that uses it has imported it.
    """
    ray: Any = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    try:
        controller = ray.get_actor(CONTROLLER_NAME, namespace=namespace)
    except ValueError:
        return None
    servers: str = ray.get(controller.bootstrap_servers.remote())
    return servers
