"""Methods of Admin for client quotas."""

from __future__ import annotations

from collections.abc import Mapping

from ..wire.cluster_client import ClusterClient
from .quotas_admin import (
    ALL_QUOTAS,
    ClientQuotaEntity,
    ClientQuotaFilter,
    alter_client_quotas,
    describe_client_quotas,
)


class QuotasCalls:
    """Part of Admin. Every call raises ConnectionFailed and RequestTimedOut as Admin's do."""

    def __init__(self, client: ClusterClient, timeout_ms: int) -> None:
        self._client = client
        self._timeout_ms = timeout_ms

    def describe_client_quotas(
        self, wanted: ClientQuotaFilter = ALL_QUOTAS
    ) -> dict[ClientQuotaEntity, dict[str, float]]:
        """The quotas that are set, by entity and key; all, or those that the filter matches.

        Raises:
            InvalidRequest, UnsupportedVersion: the filter is invalid.
        """
        return self._client.run(describe_client_quotas(self._client, wanted), self._timeout_ms)

    def alter_client_quotas(
        self,
        changes: Mapping[ClientQuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set quotas of entities, or with None remove them; other keys stay as they are.

        Keys: producer_byte_rate, consumer_byte_rate (bytes a second of each node),
        request_percentage, controller_mutation_rate (partitions a second); of an address
        connection_creation_rate. The quotas of one entity are changed together or not at all.

        Raises:
            InvalidRequest: there is no such entity or key, or the value is not allowed.
        """
        steps = alter_client_quotas(self._client, changes, validate_only=validate_only)
        self._client.run(steps, self._timeout_ms)
