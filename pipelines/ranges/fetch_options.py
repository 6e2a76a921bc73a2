"""How a task asks brokers for records."""

from __future__ import annotations

from dataclasses import dataclass

from ...clients.security.security_options import ClientSecurity


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions:
    """Kafka's consumer settings that have an effect here, under their own names.

    More bytes a request than Kafka's consumer asks for: a task reads one long range and has nothing
    else to do, so fewer round trips cost nothing.
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
    """Ours: read the files of brokers on this machine, where that is allowed (local_segments)."""
    value_views: bool = False
    """Ours: values that are not compressed are views of what was received, or of mapped files."""
