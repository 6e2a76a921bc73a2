"""Settings of the group coordinator, under Kafka's own names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from ..protocol.errors import InvalidConfig

INT_MAX = 2**31 - 1
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCoordinatorConfig:
    """What every group coordinator of a cluster is started with. Immutable.

    Field `group_max_size` is Kafka's `group.max.size`, and so on. Defaults are Kafka 4.1's;
    `bradbury_` settings are ours. Units are in the names.
    Source: apache/kafka group-coordinator/.../GroupCoordinatorConfig.java.
    """

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 30 * MINUTE_MS
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = INT_MAX
    offset_metadata_max_bytes: int = 4096
    offsets_retention_minutes: int = 7 * 24 * 60
    offsets_retention_check_interval_ms: int = 10 * MINUTE_MS
    offsets_load_buffer_size: int = 5 * 1024**2
    bradbury_member_metadata_max_bytes: int = 1024**2
    """The most that one member's protocols may take; Kafka has no bound but the request's."""
    bradbury_group_max_pending_members: int = 10_000
    """Member ids given out and not used yet, of one group; Kafka has no bound."""

    def __post_init__(self) -> None:
        may_be_zero = {"group_initial_rebalance_delay_ms", "offset_metadata_max_bytes"}
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in may_be_zero else 1
            if not least <= value <= INT_MAX:
                raise InvalidConfig(
                    f"{kafka_name(field.name)} must be in [{least}, {INT_MAX}], not {value}"
                )
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise InvalidConfig(
                "group.min.session.timeout.ms is greater than group.max.session.timeout.ms"
            )

    @classmethod
    def from_kafka(cls, values: Mapping[str, Any]) -> Self:
        """Parse {"group.max.size": "100"}; values may be strings or integers.

        Raises:
            InvalidConfig: an unknown name or a value that is no integer. Nothing is ignored.
        """
        known = {kafka_name(field.name): field.name for field in fields(cls)}
        arguments: dict[str, int] = {}
        for name, value in values.items():
            if name not in known:
                raise InvalidConfig(f"unknown group coordinator config {name!r}")
            try:
                arguments[known[name]] = int(str(value).strip())
            except ValueError:
                raise InvalidConfig(f"{name} must be an integer, not {value!r}") from None
        return cls(**arguments)

    @classmethod
    def split(cls, values: Mapping[str, Any]) -> tuple[Self, dict[str, Any]]:
        """(the settings of groups, all other ones), for one list of both.

        Raises:
            InvalidConfig: as from_kafka; names that are none of ours are in the rest.
        """
        known = {kafka_name(field.name) for field in fields(cls)}
        ours = {name: value for name, value in values.items() if name in known}
        rest = {name: value for name, value in values.items() if name not in known}
        return cls.from_kafka(ours), rest

    def to_kafka(self) -> dict[str, str]:
        """Every setting by its Kafka name, as text."""
        return {kafka_name(field.name): str(getattr(self, field.name)) for field in fields(self)}

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * MINUTE_MS


def kafka_name(field_name: str) -> str:
    return field_name.replace("_", ".")
