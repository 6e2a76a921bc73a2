"""Settings of the group coordinator, under Kafka's own names.

One field per setting; see protocol/config_key for what a field holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..protocol.config_key import INT_MAX, MINUTE_MS, Config, integer, long
from ..protocol.errors import InvalidConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCoordinatorConfig(Config):
    """Settings of all group coordinators of a cluster. Immutable.

    Defaults are Kafka 4.1's; `bradbury_` settings are ours. Units are in the names.
    Source: apache/kafka group-coordinator/.../GroupCoordinatorConfig.java.
    """

    kind: ClassVar[str] = "group coordinator"

    group_min_session_timeout_ms: int = integer(
        6_000, 1, "The shortest session timeout a member may ask for."
    )
    group_max_session_timeout_ms: int = integer(
        30 * MINUTE_MS, 1, "The longest session timeout a member may ask for."
    )
    group_initial_rebalance_delay_ms: int = integer(
        3_000, 0, "Time that an empty group waits for more members before its first rebalance."
    )
    group_max_size: int = integer(INT_MAX, 1, "The most members of a group.")
    offset_metadata_max_bytes: int = integer(
        4096, 0, "The longest metadata of a committed offset, in bytes."
    )
    offsets_retention_minutes: int = integer(
        7 * 24 * 60, 1, "Time for which the committed offsets of a group without members are kept."
    )
    offsets_retention_check_interval_ms: int = integer(
        10 * MINUTE_MS, 1, "Interval of checks for expired committed offsets."
    )
    offsets_commit_timeout_ms: int = integer(
        5_000, 1, "Time after which a commit is refused whose record is not durable."
    )
    offsets_load_buffer_size: int = integer(
        5 * 1024**2, 1, "Bytes that are read at a time when a coordinator starts."
    )
    offsets_topic_compression_codec: int = integer(
        0,
        0,
        "Compression of commits in the log: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        highest=4,
    )
    bradbury_member_metadata_max_bytes: int = integer(
        1024**2,
        1,
        "Most bytes of one member's protocols; Kafka has no bound but the request's.",
    )
    bradbury_group_members_max_bytes: int = long(
        512 * 1024**2,
        1,
        "Most bytes of memory for the members of all groups of a node; Kafka has no bound.",
    )
    bradbury_group_max_pending_members: int = integer(
        10_000,
        1,
        "Most member ids of one group that are given out and not used yet; Kafka has no bound.",
    )

    def check_together(self) -> None:
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise InvalidConfig(
                "group.min.session.timeout.ms is greater than group.max.session.timeout.ms"
            )

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * MINUTE_MS
