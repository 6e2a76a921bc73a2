"""Bootstrap addresses of the cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...discovery.bootstrap import find_servers
from ...discovery.state_file import default_namespace
from .connection import Address

DEFAULT_PORT: Final = 9092


def find_bootstrap(bootstrap: str | None, *, namespace: str | None = None) -> list[Address]:
    """Bootstrap addresses: `bootstrap`, or those that discovery/bootstrap.py finds.

    Raises:
        ConnectionFailed: no cluster is given or found.
        ValueError: the given or found text is not a list of addresses.
    """
    return parse_servers(find_servers(bootstrap, namespace or default_namespace()))


def format_servers(addresses: Iterable[Address]) -> str:
    """Format addresses as parse_servers parses them."""
    return ",".join(map(str, addresses))


def parse_servers(servers: str) -> list[Address]:
    """The addresses in "host:port,host:port"; an IPv6 host is in brackets; the port may be missing.

    Raises:
        ValueError: it is not such a list.
    """
    addresses = []
    for server in filter(None, (part.strip() for part in servers.split(","))):
        host, colon, port = server.rpartition(":")
        if not colon or server.endswith("]"):
            host, port = server, str(DEFAULT_PORT)
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f'{server!r} is not an address; use bootstrap="host:port,host:port"')
        addresses.append(Address(host, int(port)))
    if not addresses:
        raise ValueError('no address given; use bootstrap="host:port,host:port"')
    return addresses
