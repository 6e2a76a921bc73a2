"""Clients of a process that runs tasks, one for each configuration.

Spark and Ray reuse their workers for many tasks; a client for each task would need a connection and
a metadata request each time.
"""

from __future__ import annotations

import os

from ...clients.wire.cluster_client import ClientConfig, ClusterClient
from ...protocol.columns.columns import kernels_ready, warm_up
from ...protocol.kernel_loading import is_worth_it_alone
from .fetch_options import FetchOptions

_clients: dict[tuple[int, str | None, FetchOptions], ClusterClient] = {}


def load_kernels(row_count: int) -> None:
    """Load the compiled decoder if `row_count` rows are worth it."""
    if is_worth_it_alone(row_count) and not kernels_ready():
        warm_up()


def reading_client(bootstrap: str | None, fetch: FetchOptions) -> ClusterClient:
    """The client of this process for reading.

    Raises:
        ConnectionFailed: no bootstrap servers are given or found.
    """
    key = (os.getpid(), bootstrap, fetch)
    client = _clients.get(key)
    if client is None or client.closed:
        client = _clients[key] = ClusterClient(
            bootstrap,
            config=ClientConfig(
                client_id=fetch.client_id,
                request_timeout_ms=fetch.request_timeout_ms,
                retry_backoff_ms=fetch.retry_backoff_ms,
                metadata_max_age_ms=fetch.metadata_max_age_ms,
                security=fetch.security,
            ),
        )
    return client
