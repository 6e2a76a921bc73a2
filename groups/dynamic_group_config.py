"""Settings of a single group, under Kafka's own names (KIP-848, KIP-932, KIP-1071).

They are for members that speak the protocols of these three. A classic group does not look at
them, here as in Kafka: its members bring their own timeouts. So they are kept with the cluster's
metadata and shown, and there is nobody yet who goes by them.
Source: apache/kafka group-coordinator/.../GroupConfig.java; bounds of GroupCoordinatorConfig.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..protocol.config_key import Config, integer, string
from ..protocol.errors import InvalidConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicGroupConfig(Config):
    """What one group has, its own settings over Kafka 4.1's defaults."""

    kind: ClassVar[str] = "group"

    consumer_heartbeat_interval_ms: int = integer(
        5_000, 5_000, "How often members of a consumer group say that they live.", highest=15_000
    )
    consumer_session_timeout_ms: int = integer(
        45_000, 45_000, "How long a silent member of a consumer group is kept.", highest=60_000
    )
    share_auto_offset_reset: str = string(
        "latest",
        "Where a share group begins: latest, earliest, or by_duration: and an ISO 8601 duration.",
    )
    share_heartbeat_interval_ms: int = integer(
        5_000, 5_000, "How often members of a share group say that they live.", highest=15_000
    )
    share_isolation_level: str = string(
        "read_uncommitted",
        "Whether a share group is given records of open transactions.",
        choices=("read_committed", "read_uncommitted"),
    )
    share_record_lock_duration_ms: int = integer(
        30_000, 15_000, "How long a record belongs to who got it in a share group.", highest=60_000
    )
    share_session_timeout_ms: int = integer(
        45_000, 45_000, "How long a silent member of a share group is kept.", highest=60_000
    )
    streams_heartbeat_interval_ms: int = integer(
        5_000, 5_000, "How often members of a streams group say that they live.", highest=15_000
    )
    streams_num_standby_replicas: int = integer(
        0, 0, "How many standby copies a task of a streams group has.", highest=2
    )
    streams_session_timeout_ms: int = integer(
        45_000, 45_000, "How long a silent member of a streams group is kept.", highest=60_000
    )

    def check_together(self) -> None:
        reset = self.share_auto_offset_reset
        if reset not in ("latest", "earliest") and not reset.startswith("by_duration:P"):
            raise InvalidConfig(
                "share.auto.offset.reset must be latest, earliest or by_duration:<ISO 8601>, "
                f"got {reset!r}"
            )
