"""Authorization of one operation on one resource by the ACLs.

Super users may do everything. Otherwise a matching deny ACL wins over any allow ACL. If no ACL is
for the resource, `allow.everyone.if.no.acl.found` decides; if there are ACLs, but none matches, the
operation is denied. READ, WRITE, DELETE and ALTER allow DESCRIBE, too, and ALTER_CONFIGS allows
DESCRIBE_CONFIGS; denials imply nothing.

Decisions are cached until the ACLs change, at most MOST_KEPT of them. Pure: it does not log, and
the caller passes changed ACLs in.
Source: apache/kafka metadata/.../authorizer/StandardAuthorizerData.java; authorize_any:
Authorizer.authorizeByResourceType.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ...protocol.errors import InvalidConfig
from ...protocol.principal import Principal
from ...protocol.security.acl_binding import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
)
from .acl_index import ALLOWED, DENIED, AclIndex, rule_of

MOST_KEPT: Final = 20_000
"""Most decisions kept in the cache; some 300 bytes each."""
_NO_NAME: Final = "hardcode"
"""Stand-in resource name, as in Kafka: a principal allowed to use it without an own ACL may use any
resource.
"""


class Decision(NamedTuple):
    """Result of an authorization. `reason`: Kafka's text if no ACL decided, else the parts of the
    ACL.
    """

    is_allowed: bool
    reason: str | tuple[int, PatternType, str, tuple[str, str], AclPermission, int]

    @property
    def rule(self) -> AclBinding | str:
        """ACL that decided, or Kafka's text; built on demand, as few callers need it."""
        return self.reason if isinstance(self.reason, str) else rule_of(*self.reason)


SUPER_USER: Final = Decision(is_allowed=True, reason="SuperUser")
DEFAULT_ALLOW: Final = Decision(is_allowed=True, reason="DefaultAllow")
DEFAULT_DENY: Final = Decision(is_allowed=False, reason="DefaultDeny")
_IMPLIED: Final = {
    AclOperation.DESCRIBE: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    ),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
_DENIES: Final = [1 << operation | 1 << AclOperation.ALL for operation in AclOperation]
"""Bits of the ACL operations that deny each operation, by operation."""
_ALLOWS: Final = [
    _DENIES[operation] | sum(1 << other for other in _IMPLIED.get(operation, ()))
    for operation in AclOperation
]


def parse_super_users(text: str) -> frozenset[str]:
    """Parse `User:a;User:b`. Raises InvalidConfig: a part is not `Type:name`."""
    found = frozenset(filter(None, (each.strip() for each in text.split(";"))))
    for each in found:
        kind, colon, _ = each.partition(":")
        if not colon or not kind:
            raise InvalidConfig(f"super.users: {each!r} is not principalType:principalName")
    return found


class StandardAuthorizer:
    """Authorizer that decides by the ACLs it was last given."""

    def __init__(self, super_users: frozenset[str], *, allows_if_no_acl: bool) -> None:
        self._super_users = super_users
        self._without_rules = DEFAULT_ALLOW if allows_if_no_acl else DEFAULT_DENY
        self._acls: Mapping[str, AclBinding] = {}
        self._index = AclIndex()
        self._kept: dict[tuple[Principal, str, int, int, str | None], Decision] = {}
        self.version = 0
        """Number that changes whenever the ACLs have changed."""

    def use(self, acls: Mapping[str, AclBinding]) -> None:
        """Use these ACLs from now on. Cheap if few or none have changed."""
        if acls is self._acls:
            return
        before, now = self._acls.keys(), acls.keys()
        self._index.change(
            {self._acls[each] for each in before - now}, {acls[each] for each in now - before}
        )
        self._acls = acls
        self._kept.clear()
        self.version += 1

    def authorize(
        self, principal: Principal, host: str, operation: int, resource_type: int, name: str
    ) -> Decision:
        key = principal, host, operation, resource_type, name
        decision = self._kept.get(key)
        if decision is None:
            decision = self._decide(str(principal), host, operation, resource_type, name)
            self._keep(key, decision)
        return decision

    def authorize_any(
        self, principal: Principal, host: str, operation: int, resource_type: int
    ) -> Decision:
        """Whether there may be a resource of the type on which the operation is allowed."""
        key = principal, host, operation, resource_type, None
        decision = self._kept.get(key)
        if decision is None:
            decision = self._decide_any(str(principal), host, operation, resource_type)
            self._keep(key, decision)
        return decision

    def _keep(self, key: tuple[Principal, str, int, int, str | None], decision: Decision) -> None:
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        self._kept[key] = decision

    def _decide(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> Decision:
        if principal in self._super_users:
            return SUPER_USER
        found = self._index.about(resource_type, name)
        if not found:
            return self._without_rules
        whose = _matching(principal, host)
        denies, allows = _DENIES[operation], _ALLOWS[operation]
        decision = DEFAULT_DENY
        for pattern, pattern_name, rights in found:
            for who in whose:
                bits = rights.get(who)
                if bits is None:
                    continue
                denied, allowed = bits[DENIED] & denies, bits[ALLOWED] & allows
                if denied:
                    named = resource_type, pattern, pattern_name
                    return Decision(False, (*named, who, AclPermission.DENY, denied))
                if allowed and decision is DEFAULT_DENY:
                    named = resource_type, pattern, pattern_name
                    decision = Decision(True, (*named, who, AclPermission.ALLOW, allowed))
        return decision

    def _decide_any(
        self, principal: str, host: str, operation: int, resource_type: int
    ) -> Decision:
        decision = self._decide(principal, host, operation, resource_type, _NO_NAME)
        if decision.is_allowed:
            return decision
        whose, wanted = _matching(principal, host), _DENIES[operation]
        allowed: list[tuple[PatternType, str, tuple[str, str], int]] = []
        denied: dict[PatternType, set[str]] = {
            PatternType.LITERAL: set(),
            PatternType.PREFIXED: set(),
        }
        for pattern, name, rights in self._index.of_type(resource_type):
            for who in whose:
                bits = rights.get(who)
                if bits is None:
                    continue
                if bits[DENIED] & wanted:
                    denied[pattern].add(name)
                if bits[ALLOWED] & wanted:
                    allowed.append((pattern, name, who, bits[ALLOWED] & wanted))
        if WILDCARD in denied[PatternType.LITERAL]:
            return decision
        for pattern, name, who, bits_of in allowed:
            if _is_left(pattern, name, denied):
                return Decision(
                    True, (resource_type, pattern, name, who, AclPermission.ALLOW, bits_of)
                )
        return decision


def _is_left(pattern: PatternType, name: str, denied: Mapping[PatternType, set[str]]) -> bool:
    """Whether an allow ACL of this name is not covered by deny ACLs."""
    if pattern == PatternType.LITERAL:
        if name == WILDCARD:
            return True
        if name in denied[PatternType.LITERAL]:
            return False
    prefixes = denied[PatternType.PREFIXED]
    return not any(name[:size] in prefixes for size in range(1, len(name) + 1))


def _matching(principal: str, host: str) -> tuple[tuple[str, str], ...]:
    """(principal, host) keys under which ACLs for this client are stored."""
    return (
        (principal, host),
        (principal, WILDCARD),
        (WILDCARD_PRINCIPAL, host),
        (WILDCARD_PRINCIPAL, WILDCARD),
    )
