"""Methods of Admin for ACLs."""

from __future__ import annotations

from collections.abc import Iterable

from ....protocol.security.acl_binding import AclBinding, AclFilter
from ...wire.cluster_client import ClusterClient
from .acls_admin import create_acls, delete_acls, describe_acls

EVERY = AclFilter()


class AclsCalls:
    """Part of Admin. Every call raises ConnectionFailed and RequestTimedOut as Admin's do.

    SecurityDisabled: the brokers have no authorizer. ClusterAuthorizationFailed: this client may
    not ALTER the cluster, or not DESCRIBE it for describe_acls.
    """

    def __init__(self, client: ClusterClient, timeout_ms: int) -> None:
        self._client = client
        self._timeout_ms = timeout_ms

    def create_acls(self, bindings: Iterable[AclBinding]) -> None:
        """Create ACLs; existing ones are kept. The first refusal is raised.

        Raises:
            InvalidRequest: an ACL is invalid.
        """
        self._client.run(create_acls(self._client, list(bindings)), self._timeout_ms)

    def describe_acls(self, wanted: AclFilter = EVERY) -> list[AclBinding]:
        """ACLs that a filter matches, by default all, in order of resource."""
        return self._client.run(describe_acls(self._client, wanted), self._timeout_ms)

    def delete_acls(self, filters: Iterable[AclFilter]) -> list[AclBinding]:
        """Delete the ACLs that filters match, and return them. The first refusal is raised."""
        return self._client.run(delete_acls(self._client, list(filters)), self._timeout_ms)
