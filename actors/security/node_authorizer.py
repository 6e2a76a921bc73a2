"""The authorizer of a node: decides by the ACLs in its metadata, and logs its decisions.

Denied requests are logged at INFO, with a rate limit; allowed ones at DEBUG, all of them. The line
format is Kafka's (StandardAuthorizerData.buildAuditMessage), so tools that read its
kafka-authorizer.log read ours.
"""

from __future__ import annotations

import logging

from ...cluster.broker_config import BrokerConfig
from ...cluster.metadata.metadata_image import MetadataImage
from ...cluster.security.authorizer import Decision, StandardAuthorizer, parse_super_users
from ...handlers.ports.client_session import ClientSession
from ...protocol.security.acl_binding import AclBinding, AclOperation, ResourceType
from ..loop.line_limit import LineLimit

logger = logging.getLogger(__name__)

RESOURCE_NAMES = {
    ResourceType.TOPIC: "Topic",
    ResourceType.GROUP: "Group",
    ResourceType.CLUSTER: "Cluster",
    ResourceType.TRANSACTIONAL_ID: "TransactionalId",
    ResourceType.DELEGATION_TOKEN: "DelegationToken",
    ResourceType.USER: "User",
}
"""Names of resource types in the audit lines; see SecurityUtils.resourceTypeName."""


class NodeAuthorizer:
    """The authorizer of a node. Implements handlers.ports.access.Authorizer."""

    def __init__(self, config: BrokerConfig) -> None:
        self._rules = StandardAuthorizer(
            parse_super_users(config.super_users),
            allows_if_no_acl=config.allow_everyone_if_no_acl_found,
        )
        self._lines = LineLimit(logger)

    @property
    def version(self) -> int:
        return self._rules.version

    def use(self, image: MetadataImage) -> None:
        """Use the ACLs of this image from now on."""
        self._rules.use(image.acls)

    def authorize(
        self,
        session: ClientSession,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        api: str,
        *,
        asks: bool = False,
    ) -> bool:
        """See handlers.ports.access.Authorizer."""
        decision = self._rules.authorize(
            session.principal, session.address, operation, resource_type, name
        )
        if not asks:
            self._log(decision, session, operation, resource_type, name, api)
        return decision.is_allowed

    def authorize_any(
        self, session: ClientSession, operation: AclOperation, resource_type: ResourceType, api: str
    ) -> bool:
        """See handlers.ports.access.Authorizer."""
        decision = self._rules.authorize_any(
            session.principal, session.address, operation, resource_type
        )
        self._log(decision, session, operation, resource_type, "*", api)
        return decision.is_allowed

    def _log(
        self,
        decision: Decision,
        session: ClientSession,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        api: str,
    ) -> None:
        if decision.is_allowed and not logger.isEnabledFor(logging.DEBUG):
            return
        line = (
            f"Principal = {session.principal} is "
            f"{'Allowed' if decision.is_allowed else 'Denied'} operation = {operation.name} "
            f"from host = {session.address} on resource = {RESOURCE_NAMES[resource_type]}:LITERAL:"
            f"{name} for request = {api} with resourceRefCount = 1 "
            f"based on rule {_in_words(decision.rule)}"
        )
        if decision.is_allowed:
            logger.debug("%s", line)
        else:
            self._lines.info("%s", line)


def _in_words(rule: AclBinding | str) -> str:
    if isinstance(rule, str):
        return rule
    return (
        f"MatchingAcl(acl=StandardAcl(resourceType={rule.resource_type.name}, "
        f"resourceName={rule.name}, patternType={rule.pattern.name}, principal={rule.principal}, "
        f"host={rule.host}, operation={rule.operation.name}, "
        f"permissionType={rule.permission.name}))"
    )
