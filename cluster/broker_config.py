"""Settings of a broker, under Kafka's own names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from ..protocol.errors import InvalidConfig

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """What every node of a cluster is started with. Immutable; given to `bradbury up --config`.

    Field `num_partitions` is Kafka's `num.partitions`, and so on. Defaults are Kafka 4.1's;
    `bradbury_` settings are ours. Units are in the names.
    """

    num_partitions: int = 1
    default_replication_factor: int = 1
    auto_create_topics_enable: bool = True
    socket_request_max_bytes: int = 100 * 1024**2
    connections_max_idle_ms: int = 10 * MINUTE_MS
    max_connections: int = 10_000
    fetch_max_bytes: int = 55 * 1024**2
    broker_session_timeout_ms: int = 9_000
    log_retention_check_interval_ms: int = 5 * MINUTE_MS
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    offsets_topic_num_partitions: int = 50
    bradbury_partition_actors: int = 1
    """Partition actors per node: one on a laptop, about one per 2-4 cores on a big node."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, bool) and value < 1:
                raise InvalidConfig(f"{kafka_name(field.name)} must be at least 1, not {value}")
        if self.default_replication_factor != 1:
            raise InvalidConfig("default.replication.factor must be 1: replicas are not there yet")

    @classmethod
    def from_kafka(cls, values: Mapping[str, Any]) -> Self:
        """Parse {"num.partitions": "3"}; values may be strings or already typed.

        Raises:
            InvalidConfig: an unknown name or a value of the wrong type. Nothing is ignored.
        """
        known = {kafka_name(field.name): field for field in fields(cls)}
        arguments: dict[str, Any] = {}
        for name, value in values.items():
            field = known.get(name)
            if field is None:
                raise InvalidConfig(f"unknown broker config {name!r}")
            text = str(value).strip().lower()
            if field.type == "bool":
                if text not in ("true", "false"):
                    raise InvalidConfig(f"{name} must be true or false, not {value!r}")
                arguments[field.name] = text == "true"
            else:
                try:
                    arguments[field.name] = int(text)
                except ValueError:
                    raise InvalidConfig(f"{name} must be an integer, not {value!r}") from None
        return cls(**arguments)

    def to_kafka(self) -> dict[str, str]:
        """Every setting by its Kafka name, as text."""
        return {
            kafka_name(field.name): str(getattr(self, field.name)).lower() for field in fields(self)
        }


def kafka_name(field_name: str) -> str:
    return field_name.replace("_", ".")
