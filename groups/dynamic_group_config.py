"""Settings of a single group, under Kafka's own names (KIP-848, KIP-932, KIP-1071).

They are for groups of the protocols of these KIPs. A classic group ignores them, here as in Kafka:
its members send their own timeouts. So they are stored in the cluster's metadata and can be
described, but nothing uses them yet.
Source: apache/kafka group-coordinator/.../GroupConfig.java; bounds of GroupCoordinatorConfig.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..protocol.config_key import Config, integer, string
from ..protocol.errors import InvalidConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicGroupConfig(Config):
    """Settings of one group: its own ones over Kafka 4.1's defaults."""

    kind: ClassVar[str] = "group"

    consumer_heartbeat_interval_ms: int = integer(
        5_000, 5_000, "Interval of heartbeats of the members of a consumer group.", highest=15_000
    )
    consumer_session_timeout_ms: int = integer(
        45_000, 45_000, "Session timeout of a member of a consumer group.", highest=60_000
    )
    share_auto_offset_reset: str = string(
        "latest",
        "Initial offset of a share group: latest, earliest, or by_duration: and an ISO 8601 "
        "duration.",
    )
    share_heartbeat_interval_ms: int = integer(
        5_000, 5_000, "Interval of heartbeats of the members of a share group.", highest=15_000
    )
    share_isolation_level: str = string(
        "read_uncommitted",
        "Whether a share group is given records of open transactions.",
        choices=("read_committed", "read_uncommitted"),
    )
    share_record_lock_duration_ms: int = integer(
        30_000,
        15_000,
        "Time for which a record is locked for the member of a share group that fetched it.",
        highest=60_000,
    )
    share_session_timeout_ms: int = integer(
        45_000, 45_000, "Session timeout of a member of a share group.", highest=60_000
    )
    streams_heartbeat_interval_ms: int = integer(
        5_000, 5_000, "Interval of heartbeats of the members of a streams group.", highest=15_000
    )
    streams_num_standby_replicas: int = integer(
        0, 0, "Number of standby replicas of a task of a streams group.", highest=2
    )
    streams_session_timeout_ms: int = integer(
        45_000, 45_000, "Session timeout of a member of a streams group.", highest=60_000
    )

    def check_together(self) -> None:
        reset = self.share_auto_offset_reset
        if reset not in ("latest", "earliest") and not reset.startswith("by_duration:P"):
            raise InvalidConfig(
                "share.auto.offset.reset must be latest, earliest or by_duration:<ISO 8601>, "
                f"got {reset!r}"
            )
