"""Settings of a broker, under Kafka's own names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from ..protocol.errors import InvalidConfig

MINUTE_MS = 60_000
LOWEST = {"max_connections_per_ip": 0, "bradbury_metrics_port": -1}


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
    max_connections_per_ip: int = 2**31 - 1
    max_connections_per_ip_overrides: str = ""
    """Comma-separated `address:count`, for addresses whose limit is not the common one."""
    max_connection_creation_rate: int = 2**31 - 1
    """Accepted per second and node; what is above waits in the backlog of the socket."""
    queued_max_request_bytes: int = 512 * 1024**2
    """Memory of a node for requests in receipt and answers not taken. Kafka's default: no bound."""
    bradbury_first_request_max_bytes: int = 512 * 1024
    """Longest first request of a connection, unless it is a Produce."""
    bradbury_request_receive_max_ms: int = 30_000
    """Grace for a request that has begun; after it 16 KiB/s must have come, or the peer is slow."""
    bradbury_metrics_port: int = 0
    """HTTP port for Prometheus; the first free one from here on. 0: any free port, -1: none."""
    fetch_max_bytes: int = 55 * 1024**2
    broker_session_timeout_ms: int = 9_000
    log_retention_check_interval_ms: int = 5 * MINUTE_MS
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    offsets_topic_num_partitions: int = 50
    producer_id_expiration_ms: int = 24 * 60 * MINUTE_MS
    max_incremental_fetch_session_cache_slots: int = 1_000
    min_incremental_fetch_session_eviction_ms: int = 2 * MINUTE_MS
    bradbury_partition_actors: int = 1
    """Partition actors per node: one on a laptop, about one per 2-4 cores on a big node."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            lowest = LOWEST.get(field.name, 1)
            if field.type == "int" and value < lowest:
                raise InvalidConfig(
                    f"{kafka_name(field.name)} must be at least {lowest}, not {value}"
                )
        self.connection_limits_by_address()
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
            elif field.type == "str":
                arguments[field.name] = str(value).strip()
            else:
                try:
                    arguments[field.name] = int(text)
                except ValueError:
                    raise InvalidConfig(f"{name} must be an integer, not {value!r}") from None
        return cls(**arguments)

    def connection_limits_by_address(self) -> dict[str, int]:
        """max.connections.per.ip.overrides. Raises InvalidConfig: not `address:count,...`."""
        limits = {}
        for part in filter(None, self.max_connections_per_ip_overrides.split(",")):
            address, _, count = part.strip().rpartition(":")
            if not address or not count.isdecimal():
                raise InvalidConfig(
                    f"max.connections.per.ip.overrides: {part.strip()!r} is not address:count"
                )
            limits[address] = int(count)
        return limits

    def to_kafka(self) -> dict[str, str]:
        """Every setting by its Kafka name, as text."""
        return {kafka_name(field.name): _text(getattr(self, field.name)) for field in fields(self)}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def kafka_name(field_name: str) -> str:
    return field_name.replace("_", ".")
