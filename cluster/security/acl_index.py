"""Index of all ACLs by resource.

By resource type: a dict of literal names and one of prefixes; under each name the operations that
its ACLs allow and deny, as bits, by (principal, host). A lookup checks the name itself, the
wildcard, and the name's beginnings of every length that a prefix with the same head has. Heads are
as long as the shortest prefix. So the cost depends on the number of such lengths, not of ACLs.

Invariants: two ACLs are never equal (acl_control ensures that), so a bit stands for exactly one
ACL. Source of the matching rules: apache/kafka metadata/.../authorizer/StandardAuthorizerData.java.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...protocol.security.acl_binding import (
    WILDCARD,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)

Rights = dict[tuple[str, str], list[int]]
"""ACL bits by (principal, host): [bits of denied operations, bits of allowed operations]."""
DENIED: Final = 0
ALLOWED: Final = 1


class _TypeIndex:
    """ACLs on resources of one type."""

    def __init__(self) -> None:
        self.literal: dict[str, Rights] = {}
        self.prefixed: dict[str, Rights] = {}
        self.head_length = 0
        """Length of the heads by which prefixes are grouped; no prefix is shorter."""
        self.lengths: dict[str, dict[int, int]] = {}
        """Number of prefixes of each length, shortest first, by prefix head."""

    def named(self, pattern: PatternType) -> dict[str, Rights]:
        return self.prefixed if pattern == PatternType.PREFIXED else self.literal

    def add_prefix(self, prefix: str, rights: Rights) -> None:
        self.prefixed[prefix] = rights
        if len(self.prefixed) > 1 and len(prefix) >= self.head_length:
            self._count(prefix)
            return
        self.head_length = len(prefix)
        self.lengths = {}
        for each in self.prefixed:
            self._count(each)

    def remove_prefix(self, prefix: str) -> None:
        del self.prefixed[prefix]
        head = prefix[: self.head_length]
        counts = self.lengths[head]
        counts[len(prefix)] -= 1
        if not counts[len(prefix)]:
            del counts[len(prefix)]
            if not counts:
                del self.lengths[head]

    def _count(self, prefix: str) -> None:
        head, length = prefix[: self.head_length], len(prefix)
        counts = self.lengths.get(head, {})
        if length in counts:
            counts[length] += 1
        else:
            self.lengths[head] = dict(sorted((*counts.items(), (length, 1))))


class AclIndex:
    """Index of ACLs, which can be added and removed."""

    def __init__(self) -> None:
        self._types: dict[int, _TypeIndex] = {}

    def change(self, removed: set[AclBinding], added: set[AclBinding]) -> None:
        for binding in removed:
            self._remove(binding)
        for binding in added:
            self._add(binding)

    def _add(self, binding: AclBinding) -> None:
        of_type = self._types.get(binding.resource_type)
        if of_type is None:
            of_type = self._types[binding.resource_type] = _TypeIndex()
        rights = of_type.named(binding.pattern).get(binding.name)
        if rights is None:
            rights = {}
            if binding.pattern == PatternType.PREFIXED:
                of_type.add_prefix(binding.name, rights)
            else:
                of_type.literal[binding.name] = rights
        bits = rights.setdefault((binding.principal, binding.host), [0, 0])
        bits[binding.permission == AclPermission.ALLOW] |= 1 << binding.operation

    def _remove(self, binding: AclBinding) -> None:
        of_type = self._types[binding.resource_type]
        rights = of_type.named(binding.pattern)[binding.name]
        bits = rights[binding.principal, binding.host]
        bits[binding.permission == AclPermission.ALLOW] &= ~(1 << binding.operation)
        if not any(bits):
            del rights[binding.principal, binding.host]
            if rights:
                return
            if binding.pattern == PatternType.PREFIXED:
                of_type.remove_prefix(binding.name)
            else:
                del of_type.literal[binding.name]

    def about(self, resource_type: int, name: str) -> list[tuple[PatternType, str, Rights]]:
        """ACLs that match one resource, as (pattern type, pattern name, rights)."""
        of_type = self._types.get(resource_type)
        if of_type is None:
            return []
        found = []
        rights = of_type.literal.get(name)
        if rights is not None:
            found.append((PatternType.LITERAL, name, rights))
        prefixed = of_type.prefixed
        for size in of_type.lengths.get(name[: of_type.head_length], ()):
            if size > len(name):
                break
            prefix = name[:size]
            rights = prefixed.get(prefix)
            if rights is not None:
                found.append((PatternType.PREFIXED, prefix, rights))
        rights = of_type.literal.get(WILDCARD)
        if rights is not None and name != WILDCARD:
            found.append((PatternType.LITERAL, WILDCARD, rights))
        return found

    def of_type(self, resource_type: int) -> Iterator[tuple[PatternType, str, Rights]]:
        """ACLs on resources of one type."""
        of_type = self._types.get(resource_type)
        if of_type is None:
            return
        for name, rights in of_type.literal.items():
            yield PatternType.LITERAL, name, rights
        for name, rights in of_type.prefixed.items():
            yield PatternType.PREFIXED, name, rights


def rule_of(
    resource_type: int,
    pattern: PatternType,
    name: str,
    who: tuple[str, str],
    permission: AclPermission,
    bits: int,
) -> AclBinding:
    """The first ACL that `bits` stand for."""
    operation = AclOperation((bits & -bits).bit_length() - 1)
    return AclBinding(ResourceType(resource_type), name, pattern, *who, operation, permission)
