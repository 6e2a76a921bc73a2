"""Filter of DescribeClientQuotas: the quotas it selects.

A component matches, for one entity type, a name, the default entity, or both. An entity must have
the entity types of all components, and with `strict` no other types.
Source: ClientQuotasImage.describe in apache/kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ...protocol.errors import InvalidRequest, UnsupportedVersion
from .quota_entity import CLIENT_ID, IP, TYPES, USER, QuotaEntity

EXACT: Final = 0
DEFAULT: Final = 1
SPECIFIED: Final = 2


class Component(NamedTuple):
    """One component of a filter. match: the name, for EXACT only."""

    entity_type: str
    match_type: int
    match: str | None


class QuotaFilter:
    """Filter by components. Raises InvalidRequest, UnsupportedVersion: invalid combination."""

    def __init__(self, components: Iterable[Component], *, strict: bool) -> None:
        self._exact: dict[str, str | None] = {}
        self._any: set[str] = set()
        self._strict = strict
        for component in components:
            self._add(component)
        named = {*self._exact, *self._any}
        if IP in named and named & {USER, CLIENT_ID}:
            raise InvalidRequest(
                "Invalid entity filter component combination. IP filter component should not be "
                "used with user or clientId filter component."
            )

    def _add(self, component: Component) -> None:
        kind, match_type, match = component
        if not kind:
            raise InvalidRequest("Invalid empty entity type.")
        if kind in self._exact or kind in self._any:
            raise InvalidRequest(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in TYPES:
            raise UnsupportedVersion(f"Unsupported entity type {kind}")
        if match_type == EXACT:
            if match is None:
                raise InvalidRequest(
                    "Request specified MATCH_TYPE_EXACT, but set match string to null."
                )
            self._exact[kind] = match
        elif match_type in (DEFAULT, SPECIFIED):
            if match is not None:
                name = "MATCH_TYPE_DEFAULT" if match_type == DEFAULT else "MATCH_TYPE_SPECIFIED"
                raise InvalidRequest(
                    f"Request specified {name}, but also specified a match string."
                )
            if match_type == DEFAULT:
                self._exact[kind] = None
            else:
                self._any.add(kind)
        else:
            raise InvalidRequest(f"Unknown match type {match_type}")

    def find(
        self, quotas: Mapping[QuotaEntity, Mapping[str, float]]
    ) -> list[tuple[QuotaEntity, Mapping[str, float]]]:
        return [(entity, values) for entity, values in quotas.items() if self._matches(entity)]

    def _matches(self, entity: QuotaEntity) -> bool:
        if self._strict and len(entity) != len(self._exact) + len(self._any):
            return False
        parts = dict(entity)
        return self._any <= parts.keys() and all(
            kind in parts and parts[kind] == name for kind, name in self._exact.items()
        )
