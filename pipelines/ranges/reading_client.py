"""The client with which the tasks of a process read."""

from __future__ import annotations

from ...clients.wire.cluster_client import ClientConfig, ClusterClient
from ...clients.wire.shared_clients import shared_client
from ...protocol.columns.columns import kernels_ready, warm_up
from ...protocol.kernel_loading import is_worth_it_alone
from .fetch_options import FetchOptions


def load_kernels(row_count: int) -> None:
    """Load the compiled decoder if `row_count` rows are worth it."""
    if is_worth_it_alone(row_count) and not kernels_ready():
        warm_up()


def reading_client(bootstrap: str | None, fetch: FetchOptions) -> ClusterClient:
    """The client of this process for reading.

    Raises:
        ConnectionFailed: no bootstrap servers are given or found.
    """
    return shared_client(
        bootstrap,
        ClientConfig(
            client_id=fetch.client_id,
            request_timeout_ms=fetch.request_timeout_ms,
            retry_backoff_ms=fetch.retry_backoff_ms,
            metadata_max_age_ms=fetch.metadata_max_age_ms,
            security=fetch.security,
        ),
    )
