"""Topic-level log settings, under Kafka's own names, with Kafka's types, bounds and defaults.

One field per setting: dots become underscores. Its metadata holds the wire type and the sentence
that DescribeConfigs returns, so there is one table and nothing beside it.

What always holds: a LogConfig that exists is valid, and the log acts on every value in it. A name
or value that it would not act on is refused with InvalidConfig, never stored and ignored.
Source: apache/kafka storage/.../log/LogConfig.java, clients/.../common/config/TopicConfig.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, NamedTuple, Self

from ..protocol.errors import InvalidConfig

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
HOUR_MS = 60 * 60 * 1000
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * 24 * HOUR_MS

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"
COMPRESSION_TYPES = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")


class ConfigEntry(NamedTuple):
    """One setting as DescribeConfigs shows it.

    `type` is boolean, int, long, double, string or list.
    """

    name: str
    value: str
    is_default: bool
    type: str
    documentation: str


def _int(default: int, lowest: int, documentation: str, highest: int = INT_MAX) -> Any:
    return _number(default, lowest, highest, "int", documentation)


def _long(default: int, lowest: int, documentation: str) -> Any:
    return _number(default, lowest, LONG_MAX, "long", documentation)


def _number(default: int, lowest: int, highest: int, wire_type: str, documentation: str) -> Any:
    return field(
        default=default,
        metadata={
            "type": wire_type,
            "lowest": lowest,
            "highest": highest,
            "documentation": documentation,
        },
    )


def _ratio(default: float, documentation: str) -> Any:
    facts = {"type": "double", "lowest": 0.0, "highest": 1.0, "documentation": documentation}
    return field(default=default, metadata=facts)


def _text(default: str, wire_type: str, documentation: str) -> Any:
    return field(default=default, metadata={"type": wire_type, "documentation": documentation})


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The settings of one topic's logs. Raises InvalidConfig when built with a bad value."""

    segment_bytes: int = _int(
        1024**3, 14, "A segment file is closed and a new one begun at this size, in bytes."
    )
    segment_ms: int = _long(
        WEEK_MS, 1, "A segment is closed when its first record is this much older than a new one."
    )
    segment_jitter_ms: int = _long(
        0,
        0,
        "A segment is closed up to this much before segment.ms, so that not all close at once.",
    )
    segment_index_bytes: int = _int(
        10 * 1024**2, 4, "A segment is closed when an index of it would grow beyond this size."
    )
    index_interval_bytes: int = _int(
        4096, 0, "An index entry is written once per this many bytes of log."
    )
    retention_bytes: int = _long(
        -1,
        -LONG_MAX - 1,
        "Old segments are deleted while the partition keeps this many bytes; -1 keeps all.",
    )
    retention_ms: int = _long(
        WEEK_MS, -1, "Segments whose newest record is older are deleted; -1 keeps all."
    )
    max_message_bytes: int = _int(
        1024**2 + 12, 0, "The largest record batch a producer may append, in bytes."
    )
    file_delete_delay_ms: int = _long(
        60_000, 0, "How long a deleted segment's files stay on disk under another name."
    )
    message_timestamp_type: str = _text(
        CREATE_TIME,
        "string",
        "CreateTime keeps the producer's timestamps, LogAppendTime replaces them by the broker's.",
    )
    message_timestamp_before_max_ms: int = _long(
        LONG_MAX, 0, "How far a producer's timestamp may lie behind the broker's clock."
    )
    message_timestamp_after_max_ms: int = _long(
        HOUR_MS, 0, "How far a producer's timestamp may lie ahead of the broker's clock."
    )
    min_insync_replicas: int = _int(
        1, 1, "How many replicas must be in sync for a write with acks=all to be taken."
    )
    flush_messages: int = _long(
        LONG_MAX, 1, "An fsync is due after this many unflushed records; 1 makes acks durable."
    )
    flush_ms: int = _long(
        LONG_MAX, 0, "An fsync is due this long after the first unflushed record."
    )
    cleanup_policy: str = _text(
        "delete",
        "list",
        "What happens to old records: delete drops whole old segments, compact keeps the last "
        "record of each key; compact,delete does both.",
    )
    min_cleanable_dirty_ratio: float = _ratio(
        0.5, "A log is compacted when at least this part of its closed bytes was never compacted."
    )
    delete_retention_ms: int = _long(
        DAY_MS, 0, "How long a compacted log keeps the record that deletes a key, once compacted."
    )
    min_compaction_lag_ms: int = _long(
        0, 0, "A record is not compacted away before it is this old."
    )
    max_compaction_lag_ms: int = _long(
        LONG_MAX, 1, "A record that is this old is compacted soon, whatever the dirty ratio."
    )
    compression_type: str = _text(
        "producer", "string", "The codec on disk; producer keeps what the producer chose."
    )
    compression_gzip_level: int = _int(
        -1, -1, "How hard gzip tries when the broker compresses: 1 to 9, or -1 for its default.", 9
    )
    compression_lz4_level: int = _int(
        9, 1, "How hard lz4 tries when the broker compresses: 1 to 17.", 17
    )
    compression_zstd_level: int = _int(
        3, -131072, "How hard zstd tries when the broker compresses: -131072 to 22.", 22
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if "lowest" in each.metadata:
                _check_bounds(each, value)
        if self.message_timestamp_type not in (CREATE_TIME, LOG_APPEND_TIME):
            raise InvalidConfig(
                f"message.timestamp.type must be {CREATE_TIME} or {LOG_APPEND_TIME}, "
                f"got {self.message_timestamp_type!r}"
            )
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise InvalidConfig(
                f"min.compaction.lag.ms, {self.min_compaction_lag_ms}, is more than "
                f"max.compaction.lag.ms, {self.max_compaction_lag_ms}"
            )
        if not self.cleanup_policies or not self.cleanup_policies <= {"delete", "compact"}:
            raise InvalidConfig(
                f"cleanup.policy is a list of delete and compact, got {self.cleanup_policy!r}"
            )
        if self.compression_type not in COMPRESSION_TYPES:
            raise InvalidConfig(
                f"compression.type is one of {', '.join(COMPRESSION_TYPES)}, "
                f"got {self.compression_type!r}"
            )
        if self.compression_gzip_level == 0:
            raise InvalidConfig("compression.gzip.level is 1 to 9, or -1 for its default, got 0")

    @property
    def cleanup_policies(self) -> frozenset[str]:
        names = (name.strip() for name in self.cleanup_policy.split(","))
        return frozenset(name for name in names if name)

    @property
    def is_compacted(self) -> bool:
        """Whether the last record of each key is kept; every record then needs a key."""
        return "compact" in self.cleanup_policies

    @property
    def is_log_append_time(self) -> bool:
        return self.message_timestamp_type == LOG_APPEND_TIME

    @property
    def decompressed_limit(self) -> int:
        """Bytes one compressed batch may open to: generous for real data, fatal for bombs."""
        return min(256 * 1024**2, max(16 * 1024**2, 64 * self.max_message_bytes))

    @classmethod
    def from_kafka(cls, props: Mapping[str, str | None]) -> Self:
        """Parse what CreateTopics or IncrementalAlterConfigs sent, e.g. {"segment.bytes": "4096"}.

        Raises:
            InvalidConfig: unknown name, wrong type, out of bounds, or not available yet.
        """
        known = {kafka_name(each.name): each for each in fields(cls)}
        values: dict[str, Any] = {}
        for name, text in props.items():
            if name not in known:
                raise InvalidConfig(f"unknown topic config {name!r}")
            if text is None:
                raise InvalidConfig(f"{name} needs a value")
            values[known[name].name] = _parse(known[name], text)
        return cls(**values)

    def describe(self) -> list[ConfigEntry]:
        """Every setting, in the order of this class."""
        return [
            ConfigEntry(
                kafka_name(each.name),
                str(getattr(self, each.name)),
                getattr(self, each.name) == each.default,
                each.metadata["type"],
                each.metadata["documentation"],
            )
            for each in fields(self)
        ]


def kafka_name(field_name: str) -> str:
    return field_name.replace("_", ".")


def _parse(each: Field[Any], text: str) -> float | str:
    text = text.strip()
    if "lowest" not in each.metadata:
        return text
    is_double = each.metadata["type"] == "double"
    try:
        return float(text) if is_double else int(text)
    except ValueError:
        wanted = "a number" if is_double else "an integer"
        raise InvalidConfig(f"{kafka_name(each.name)} must be {wanted}, got {text!r}") from None


def _check_bounds(each: Field[Any], value: float) -> None:
    lowest = each.metadata["lowest"]
    highest = each.metadata["highest"]
    if not value >= lowest:  # so that it refuses not-a-number, too
        raise InvalidConfig(f"{kafka_name(each.name)} must be at least {lowest}, got {value}")
    if value > highest:
        raise InvalidConfig(f"{kafka_name(each.name)} must be at most {highest}, got {value}")
