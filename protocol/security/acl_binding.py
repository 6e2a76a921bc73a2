"""ACLs as on the wire: operations that principals may, or may not, do on resources.

Codes and names are Kafka's: clients/.../common/acl/AclOperation.java, AclPermissionType.java,
common/resource/ResourceType.java, PatternType.java. An unknown code becomes UNKNOWN, as in Kafka,
so that a newer client's value is refused and not mistaken for another one.

Not here: authorization by ACLs (cluster/security).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, Self

CLUSTER_NAME: Final = "kafka-cluster"
"""The one resource of type CLUSTER."""
WILDCARD: Final = "*"
"""Any host, or, as a literal resource name, any resource of the type."""
WILDCARD_PRINCIPAL: Final = "User:*"


class _Code(IntEnum):
    """Enum of one byte on the wire; UNKNOWN is 0."""

    @classmethod
    def of(cls, code: int) -> Self:
        try:
            return cls(code)
        except ValueError:
            return cls(0)


class ResourceType(_Code):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Code):
    """Type of a resource name pattern. ANY and MATCH are for filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_Code):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(_Code):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class AclBinding(NamedTuple):
    """One ACL. `principal` as text, `User:alice`; `host` an address, or WILDCARD."""

    resource_type: ResourceType
    name: str
    pattern: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission

    @classmethod
    def of_numbers(
        cls,
        resource_type: int,
        name: str,
        pattern: int,
        principal: str,
        host: str,
        operation: int,
        permission: int,
    ) -> AclBinding:
        """Make an ACL from the numbers on the wire and in records; unknown ones are UNKNOWN."""
        return cls(
            ResourceType.of(resource_type),
            name,
            PatternType.of(pattern),
            principal,
            host,
            AclOperation.of(operation),
            AclPermission.of(permission),
        )


class AclFilter(NamedTuple):
    """Filter of ACLs; None and ANY match all.

    With MATCH a name matches every ACL that applies to a resource of that name: literal, prefixed
    or wildcard.
    """

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    def matches(self, binding: AclBinding) -> bool:
        """Whether an ACL matches. Source: ResourcePatternFilter.java,
        AccessControlEntryFilter.java.
        """
        return (
            self.resource_type in (ResourceType.ANY, binding.resource_type)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self.operation in (AclOperation.ANY, binding.operation)
            and self.permission in (AclPermission.ANY, binding.permission)
            and self._matches_name(binding)
        )

    def _matches_name(self, binding: AclBinding) -> bool:
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, binding.pattern):
            return False
        if self.name is None:
            return True
        if self.pattern != PatternType.MATCH:
            return self.name == binding.name
        if binding.pattern == PatternType.PREFIXED:
            return self.name.startswith(binding.name)
        return binding.name in (self.name, WILDCARD)
