"""Settings of a task's fetch requests."""

from __future__ import annotations

from dataclasses import dataclass

from ...clients.security.security_options import ClientSecurity


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions:
    """Kafka's consumer settings that have an effect here, under their own names.

    The default size of a fetch is larger than that of Kafka's consumer: a task reads one long
    range, for which fewer round trips are better.
    """

    max_partition_fetch_bytes: int = 4 * 1024 * 1024
    fetch_max_wait_ms: int = 500
    isolation_level: int = 0
    check_crcs: bool = True
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    metadata_max_age_ms: int = 5_000
    client_id: str = "bradbury"
    security: ClientSecurity | None = None
    local_files: bool = False
    """Whether to read segment files of brokers on this machine if allowed; not in Kafka."""
    value_views: bool = False
    """Whether uncompressed values are views of received data or mapped files; not in Kafka."""
