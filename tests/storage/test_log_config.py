"""Which topic settings are accepted, and how are they described?"""

from dataclasses import fields

import pytest

from bradbury.protocol.errors import InvalidConfig
from bradbury.storage.log_config import LogConfig, kafka_name


def test_defaults_are_kafkas() -> None:
    shown = {entry.name: entry.value for entry in LogConfig().describe()}
    assert shown == {
        "cleanup.policy": "delete",
        "delete.retention.ms": "86400000",
        "max.compaction.lag.ms": "9223372036854775807",
        "min.cleanable.dirty.ratio": "0.5",
        "min.compaction.lag.ms": "0",
        "segment.jitter.ms": "0",
        "compression.gzip.level": "-1",
        "compression.lz4.level": "9",
        "compression.type": "producer",
        "compression.zstd.level": "3",
        "file.delete.delay.ms": "60000",
        "flush.messages": "9223372036854775807",
        "flush.ms": "9223372036854775807",
        "index.interval.bytes": "4096",
        "max.message.bytes": "1048588",
        "message.timestamp.after.max.ms": "3600000",
        "message.timestamp.before.max.ms": "9223372036854775807",
        "message.timestamp.type": "CreateTime",
        "min.insync.replicas": "1",
        "retention.bytes": "-1",
        "retention.ms": "604800000",
        "segment.bytes": "1073741824",
        "segment.index.bytes": "10485760",
        "segment.ms": "604800000",
    }


def test_what_is_described_can_be_given_back() -> None:
    config = LogConfig(segment_bytes=4096, retention_ms=-1, message_timestamp_type="LogAppendTime")
    assert LogConfig.from_kafka({e.name: e.value for e in config.describe()}) == config
    changed = {entry.name for entry in config.describe() if not entry.is_default}
    assert changed == {"segment.bytes", "retention.ms", "message.timestamp.type"}


def test_every_setting_has_a_type_and_a_sentence() -> None:
    for entry in LogConfig().describe():
        assert entry.type in {"int", "long", "double", "string", "list"}
        assert entry.documentation.endswith(".")


@pytest.mark.parametrize(
    ("props", "message"),
    [
        ({"segment.size": "1"}, "unknown topic config 'segment.size'"),
        ({"segment_bytes": "4096"}, "unknown topic config"),
        ({"segment.bytes": "big"}, "segment.bytes must be an integer, got 'big'"),
        ({"segment.bytes": "1.5"}, "must be an integer"),
        ({"segment.bytes": None}, "segment.bytes needs a value"),
        ({"segment.bytes": "13"}, "segment.bytes must be at least 14, got 13"),
        ({"segment.bytes": str(2**31)}, "segment.bytes must be at most 2147483647"),
        ({"retention.ms": "-2"}, "retention.ms must be at least -1"),
        ({"retention.ms": str(2**63)}, "retention.ms must be at most"),
        ({"segment.ms": "0"}, "segment.ms must be at least 1"),
        ({"flush.messages": "0"}, "flush.messages must be at least 1"),
        ({"min.insync.replicas": "0"}, "min.insync.replicas must be at least 1"),
        ({"message.timestamp.type": "createtime"}, "message.timestamp.type must be CreateTime or"),
        ({"min.cleanable.dirty.ratio": "1.1"}, "min.cleanable.dirty.ratio must be at most 1"),
        ({"min.cleanable.dirty.ratio": "nan"}, "min.cleanable.dirty.ratio must be at least 0"),
        ({"min.cleanable.dirty.ratio": "half"}, "min.cleanable.dirty.ratio must be a number"),
        ({"max.compaction.lag.ms": "0"}, "max.compaction.lag.ms must be at least 1"),
        (
            {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
            "min.compaction.lag.ms, 2, is more than max.compaction.lag.ms, 1",
        ),
        ({"cleanup.policy": "forget"}, "cleanup.policy is a list of delete and compact"),
        ({"cleanup.policy": ""}, "cleanup.policy is a list of delete and compact"),
        ({"compression.type": "none"}, "compression.type is one of producer, uncompressed, gzip"),
        ({"compression.gzip.level": "0"}, "compression.gzip.level is 1 to 9, or -1"),
        ({"compression.gzip.level": "10"}, "compression.gzip.level must be at most 9"),
        ({"compression.lz4.level": "18"}, "compression.lz4.level must be at most 17"),
        ({"compression.zstd.level": "23"}, "compression.zstd.level must be at most 22"),
    ],
)
def test_what_would_not_be_acted_on_is_refused(props: dict[str, str | None], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        LogConfig.from_kafka(props)


def test_every_bound_itself_is_allowed() -> None:
    for each in fields(LogConfig):
        if "lowest" in each.metadata:
            lowest = each.metadata["lowest"]
            config = LogConfig.from_kafka({kafka_name(each.name): f" {lowest} "})
            assert getattr(config, each.name) == lowest
            with pytest.raises(InvalidConfig):
                LogConfig(**{each.name: lowest - 1})


def test_a_topic_may_be_compacted_and_deleted() -> None:
    config = LogConfig.from_kafka({"cleanup.policy": "compact, delete"})
    assert config.cleanup_policies == {"compact", "delete"}
    assert config.is_compacted
    assert not LogConfig().is_compacted
