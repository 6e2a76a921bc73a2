"""Topic-level log settings, under Kafka's own names, with Kafka's types, bounds and defaults.

One field per setting; see protocol/config_key for what a field holds. `broker` names the settings
of brokers that give the default of topics without one of their own: log.retention.ms, then
log.retention.minutes, then log.retention.hours for retention.ms.

Invariants: a LogConfig that exists is valid, and the log acts on every value in it. A name
or value that it would not act on is refused with InvalidConfig, never stored and ignored.
Source: apache/kafka storage/.../log/LogConfig.java, clients/.../common/config/TopicConfig.java,
server-common/.../config/ServerTopicConfigSynonyms.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Self

from ..protocol.config_key import (
    DAY_MS,
    HOUR_MS,
    LONG_MAX,
    MINUTE_MS,
    Config,
    ConfigKey,
    ConfigType,
    as_it_is,
    boolean,
    integer,
    kafka_name,
    keys_of,
    long,
    ratio,
    split_list,
    string,
    word_list,
)
from ..protocol.errors import InvalidConfig
from .disk.throttled_replicas import is_replica_list

WEEK_MS = 7 * DAY_MS

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"
COMPRESSION_TYPES = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")

THROTTLED = ("leader_replication_throttled_replicas", "follower_replication_throttled_replicas")
NO_TIERED_STORAGE = "there is no tiered storage"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig(Config):
    """Settings of one topic's logs. Raises InvalidConfig when built with an invalid value."""

    kind: ClassVar[str] = "topic"
    refused: ClassVar[Mapping[str, str]] = {
        "message.format.version": "Kafka 4 has removed it; the format is always magic 2",
        "message.downconversion.enable": "Kafka 4 has removed it",
        "message.timestamp.difference.max.ms": (
            "Kafka 4 has removed it; use message.timestamp.before.max.ms and "
            "message.timestamp.after.max.ms"
        ),
    }

    segment_bytes: int = integer(
        1024**3,
        14,
        "A segment file is closed and a new one begun at this size, in bytes.",
        broker="log.segment.bytes",
    )
    segment_ms: int = long(
        WEEK_MS,
        1,
        "A segment is closed when its first record is this much older than a new one.",
        broker="log.roll.ms log.roll.hours",
    )
    segment_jitter_ms: int = long(
        0,
        0,
        "A segment is closed up to this much before segment.ms, so that not all close at once.",
        broker="log.roll.jitter.ms log.roll.jitter.hours",
    )
    segment_index_bytes: int = integer(
        10 * 1024**2,
        4,
        "A segment is closed when an index of it would grow beyond this size.",
        broker="log.index.size.max.bytes",
    )
    index_interval_bytes: int = integer(
        4096,
        0,
        "An index entry is written once per this many bytes of log.",
        broker="log.index.interval.bytes",
    )
    retention_bytes: int = long(
        -1,
        -LONG_MAX - 1,
        "Old segments are deleted while the partition keeps this many bytes; -1 keeps all.",
        broker="log.retention.bytes",
    )
    retention_ms: int = long(
        WEEK_MS,
        -1,
        "Segments whose newest record is older are deleted; -1 keeps all.",
        broker="log.retention.ms log.retention.minutes log.retention.hours",
    )
    max_message_bytes: int = integer(
        1024**2 + 12,
        0,
        "The largest record batch a producer may append, in bytes.",
        broker="message.max.bytes",
    )
    file_delete_delay_ms: int = long(
        60_000,
        0,
        "Time for which a deleted segment's files stay on disk under another name.",
        broker="log.segment.delete.delay.ms",
    )
    message_timestamp_type: str = string(
        CREATE_TIME,
        "CreateTime keeps the producer's timestamps, LogAppendTime replaces them by the broker's.",
        choices=(CREATE_TIME, LOG_APPEND_TIME),
        broker="log.message.timestamp.type",
    )
    message_timestamp_before_max_ms: int = long(
        LONG_MAX,
        0,
        "Most milliseconds that a producer's timestamp may lie behind the broker's clock.",
        broker="log.message.timestamp.before.max.ms",
    )
    message_timestamp_after_max_ms: int = long(
        HOUR_MS,
        0,
        "Most milliseconds that a producer's timestamp may lie ahead of the broker's clock.",
        broker="log.message.timestamp.after.max.ms",
    )
    unclean_leader_election_enable: bool = boolean(
        False,
        "Whether a replica that is out of sync may lead when no other can; records are lost then.",
        broker="unclean.leader.election.enable",
    )
    min_insync_replicas: int = integer(
        1,
        1,
        "Number of replicas that must be in sync for a write with acks=all to be accepted.",
        broker="min.insync.replicas",
    )
    flush_messages: int = long(
        LONG_MAX,
        1,
        "An fsync is due after this many unflushed records; 1 makes acks durable.",
        broker="log.flush.interval.messages",
    )
    flush_ms: int = long(
        LONG_MAX,
        0,
        "An fsync is due this long after the first unflushed record.",
        broker="log.flush.interval.ms",
    )
    cleanup_policy: str = word_list(
        "delete",
        "What happens to old records: delete drops whole old segments, compact keeps the last "
        "record of each key; compact,delete does both, and nothing keeps all.",
        choices=("delete", "compact"),
        may_be_empty=True,
        broker="log.cleanup.policy",
    )
    min_cleanable_dirty_ratio: float = ratio(
        0.5,
        "A log is compacted when at least this part of its closed bytes was never compacted.",
        broker="log.cleaner.min.cleanable.ratio",
    )
    delete_retention_ms: int = long(
        DAY_MS,
        0,
        "Time for which a compacted log keeps a tombstone, once compacted.",
        broker="log.cleaner.delete.retention.ms",
    )
    min_compaction_lag_ms: int = long(
        0,
        0,
        "A record is not compacted away before it is this old.",
        broker="log.cleaner.min.compaction.lag.ms",
    )
    max_compaction_lag_ms: int = long(
        LONG_MAX,
        1,
        "A record that is this old is compacted soon, whatever the dirty ratio.",
        broker="log.cleaner.max.compaction.lag.ms",
    )
    bradbury_validate_records: str = string(
        "all",
        "Batches of producers whose records are validated before they are accepted, so that "
        "none is stored that consumers cannot read: all, compressed ones, or none (only "
        "header and CRC are validated).",
        choices=("all", "compressed", "none"),
        broker="bradbury.log.validate.records",
    )
    bradbury_damaged_segment: str = string(
        "error",
        "Behaviour for readers at records that a damaged file has lost, and that no other "
        "replica has: error reports them, skip continues behind them.",
        choices=("error", "skip"),
        broker="bradbury.log.damaged.segment",
    )
    compression_type: str = string(
        "producer",
        "The codec on disk; producer keeps what the producer chose.",
        choices=COMPRESSION_TYPES,
        broker="compression.type",
    )
    compression_gzip_level: int = integer(
        -1,
        -1,
        "Level of gzip when the broker compresses: 1 to 9, or -1 for its default.",
        highest=9,
        broker="compression.gzip.level",
    )
    compression_lz4_level: int = integer(
        9,
        1,
        "Level of lz4 when the broker compresses: 1 to 17.",
        highest=17,
        broker="compression.lz4.level",
    )
    compression_zstd_level: int = integer(
        3,
        -131072,
        "Level of zstd when the broker compresses: -131072 to 22.",
        highest=22,
        broker="compression.zstd.level",
    )

    preallocate: bool = as_it_is(
        False,
        "Whether a segment's disk space is allocated when it is created.",
        "files grow as they are written",
        broker="log.preallocate",
    )
    remote_storage_enable: bool = as_it_is(
        False, "Whether old segments move to remote storage.", NO_TIERED_STORAGE
    )
    remote_log_copy_disable: bool = as_it_is(
        False, "Whether segments are no longer copied to remote storage.", NO_TIERED_STORAGE
    )
    remote_log_delete_on_disable: bool = as_it_is(
        False,
        "Whether remote segments are deleted when remote storage is disabled.",
        NO_TIERED_STORAGE,
    )
    local_retention_ms: int = as_it_is(
        -2,
        "Time for which segments stay on the local disk, too; -2: retention.ms.",
        NO_TIERED_STORAGE,
        broker="log.local.retention.ms",
    )
    local_retention_bytes: int = as_it_is(
        -2,
        "Bytes that stay on the local disk, too; -2: retention.bytes.",
        NO_TIERED_STORAGE,
        broker="log.local.retention.bytes",
    )
    leader_replication_throttled_replicas: str = word_list(
        "",
        "Replicas whose leader sends to followers that are out of sync no faster than "
        "leader.replication.throttled.rate: * or a list of partition:node of the leader.",
    )
    follower_replication_throttled_replicas: str = word_list(
        "",
        "Replicas that are out of sync and receive no faster than "
        "follower.replication.throttled.rate: * or a list of partition:node of the follower.",
    )

    def check_together(self) -> None:
        for listed in THROTTLED:
            if not is_replica_list(getattr(self, listed)):
                raise InvalidConfig(
                    f"{kafka_name(listed)} is * or a list like 0:1,1:2 (partition:node), "
                    f"got {getattr(self, listed)!r}"
                )
        if self.segment_jitter_ms > self.segment_ms:
            raise InvalidConfig(
                f"segment.jitter.ms, {self.segment_jitter_ms}, is more than "
                f"segment.ms, {self.segment_ms}"
            )
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise InvalidConfig(
                f"min.compaction.lag.ms, {self.min_compaction_lag_ms}, is more than "
                f"max.compaction.lag.ms, {self.max_compaction_lag_ms}"
            )
        if self.compression_gzip_level == 0:
            raise InvalidConfig("compression.gzip.level is 1 to 9, or -1 for its default, got 0")

    @property
    def cleanup_policies(self) -> frozenset[str]:
        return frozenset(split_list(self.cleanup_policy))

    @property
    def is_compacted(self) -> bool:
        """Whether the last record of each key is kept; every record then needs a key."""
        return "compact" in self.cleanup_policies

    @property
    def is_log_append_time(self) -> bool:
        return self.message_timestamp_type == LOG_APPEND_TIME

    @property
    def decompressed_limit(self) -> int:
        """Most bytes that one compressed batch may decompress to: ample for real data, too few for
        decompression bombs.
        """
        return min(256 * 1024**2, max(16 * 1024**2, 64 * self.max_message_bytes))

    @classmethod
    def from_broker(cls, values: Mapping[str, Any]) -> Self:
        """Defaults for topics from a broker's settings, e.g. {"log.retention.hours": "1"}.

        Of several names of one setting the first takes precedence. The broker's other settings are
        ignored.

        Raises:
            InvalidConfig: wrong type, or out of bounds.
        """
        known = broker_keys()
        arguments: dict[str, Any] = {}
        for key, field_name in keys_of(cls).values():
            for name in key.broker_names:
                if name in values:
                    arguments[field_name] = _in_ms(name, known[name].parse(values[name]))
                    break
        return cls(**arguments)


@cache
def broker_keys() -> dict[str, ConfigKey]:
    """Settings of brokers that are the defaults of topics, by name.

    The last name of a setting has the default, the others have none. The first one is dynamic.
    Source: DynamicBrokerConfig.DynamicLogConfig.
    """
    made: dict[str, ConfigKey] = {}
    for key in LogConfig.keys().values():
        for name in key.broker_names:
            factor, unit = _UNITS.get(name.rsplit(".", 1)[-1], (1, ""))
            is_last = name == key.broker_names[-1]
            made[name] = replace(
                key,
                name=name,
                type=ConfigType.INT if unit else key.type,
                default=key.default // factor if is_last and unit else key.default,
                highest=key.highest if not unit else 2**31 - 1,
                documentation=f"The {key.name}{unit} of topics without one. {key.documentation}",
                is_dynamic=name == key.broker_names[0],
            )
            if not is_last:
                made[name] = replace(made[name], default=None)
    return made


_UNITS = {"minutes": (MINUTE_MS, ", in minutes,"), "hours": (HOUR_MS, ", in hours,")}


def _in_ms(name: str, value: Any) -> Any:
    """Value in ms; below zero stands for "no limit" in every unit."""
    factor, _ = _UNITS.get(name.rsplit(".", 1)[-1], (1, ""))
    return value * factor if factor != 1 and value > 0 else value
