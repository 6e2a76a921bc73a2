"""All rules, found by the resource they are about.

By resource type: literal names and prefixes in a dict each, and under each name what its rules
allow and deny, as bits, to one principal from one host. A question about a name looks at the name
itself, at the wildcard, and at those beginnings of it that are as long as some prefix is: what it
costs depends on how many lengths of prefixes there are, not on how many rules.

What always holds: two rules are never equal (acl_control sees to it), so bits are all there is to
them. Source of what matches: apache/kafka metadata/.../authorizer/StandardAuthorizerData.java.
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
"""(principal, host) -> [bits of what is denied, bits of what is allowed]."""
DENIED: Final = 0
ALLOWED: Final = 1


class _TypeIndex:
    """Rules about resources of one type."""

    def __init__(self) -> None:
        self.literal: dict[str, Rights] = {}
        self.prefixed: dict[str, Rights] = {}
        self.lengths: list[int] = []
        """Of the prefixes, each once, the shortest first."""

    def named(self, pattern: PatternType) -> dict[str, Rights]:
        return self.prefixed if pattern == PatternType.PREFIXED else self.literal

    def measure(self) -> None:
        self.lengths = sorted({len(prefix) for prefix in self.prefixed})


class AclIndex:
    """Rules that come and go."""

    def __init__(self) -> None:
        self._types: dict[int, _TypeIndex] = {}

    def change(self, removed: set[AclBinding], added: set[AclBinding]) -> None:
        for binding in removed:
            self._remove(binding)
        for binding in added:
            self._add(binding)
        for resource_type in {each.resource_type for each in (*removed, *added)}:
            self._types[resource_type].measure()

    def _add(self, binding: AclBinding) -> None:
        of_type = self._types.get(binding.resource_type)
        if of_type is None:
            of_type = self._types[binding.resource_type] = _TypeIndex()
        rights = of_type.named(binding.pattern).setdefault(binding.name, {})
        bits = rights.setdefault((binding.principal, binding.host), [0, 0])
        bits[binding.permission == AclPermission.ALLOW] |= 1 << binding.operation

    def _remove(self, binding: AclBinding) -> None:
        named = self._types[binding.resource_type].named(binding.pattern)
        rights = named[binding.name]
        bits = rights[binding.principal, binding.host]
        bits[binding.permission == AclPermission.ALLOW] &= ~(1 << binding.operation)
        if not any(bits):
            del rights[binding.principal, binding.host]
            if not rights:
                del named[binding.name]

    def about(self, resource_type: int, name: str) -> list[tuple[PatternType, str, Rights]]:
        """The rules about one resource, by the name that each of them has."""
        of_type = self._types.get(resource_type)
        if of_type is None:
            return []
        found = []
        rights = of_type.literal.get(name)
        if rights is not None:
            found.append((PatternType.LITERAL, name, rights))
        prefixed, length = of_type.prefixed, len(name)
        for size in of_type.lengths:
            if size > length:
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
        """The rules about resources of one type."""
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
    """The first of the rules that `bits` are of."""
    operation = AclOperation((bits & -bits).bit_length() - 1)
    return AclBinding(ResourceType(resource_type), name, pattern, *who, operation, permission)
