"""Clients that are shared within a process, one for each cluster and configuration.

Spark and Ray reuse their workers for many tasks; a client for each task would need a connection and
a metadata request each time.

What always holds:
    A shared client lives as long as its process: its cluster may come back at the same addresses.
"""

from __future__ import annotations

import os

from .cluster_client import ClientConfig, ClusterClient

_clients: dict[tuple[int, str | None, ClientConfig], ClusterClient] = {}


def shared_client(bootstrap: str | None, config: ClientConfig) -> ClusterClient:
    """The client of this process with this configuration. Not to be closed by who asks for it.

    Raises:
        ConnectionFailed: no bootstrap servers are given or found.
    """
    key = (os.getpid(), bootstrap, config)
    client = _clients.get(key)
    if client is None or client.closed:
        client = _clients[key] = ClusterClient(bootstrap, config=config)
    return client
