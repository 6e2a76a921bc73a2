"""What Admin has of rules of access."""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.security.acl_binding import AclBinding, AclFilter
from ..wire.cluster_client import ClusterClient
from .acls_admin import create_acls, delete_acls, describe_acls

EVERY = AclFilter()


class AclsCalls:
    """Mixed into Admin. Every call raises ConnectionFailed and RequestTimedOut as Admin's do.

    SecurityDisabled: the brokers have no authorizer. ClusterAuthorizationFailed: this client may
    not ALTER the cluster, or DESCRIBE it where it only looks.
    """

    _client: ClusterClient
    _timeout_ms: int

    def create_acls(self, bindings: Iterable[AclBinding]) -> None:
        """Make rules of access; one that is there already stays. Raises the first refusal.

        Raises:
            InvalidRequest: a rule cannot be.
        """
        self._client.run(create_acls(self._client, list(bindings)), self._timeout_ms)

    def describe_acls(self, wanted: AclFilter = EVERY) -> list[AclBinding]:
        """The rules that a filter matches, or all, by resource."""
        return self._client.run(describe_acls(self._client, wanted), self._timeout_ms)

    def delete_acls(self, filters: Iterable[AclFilter]) -> list[AclBinding]:
        """Remove the rules that filters match; those are the answer. Raises the first refusal."""
        return self._client.run(delete_acls(self._client, list(filters)), self._timeout_ms)
