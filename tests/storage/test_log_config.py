"""Which topic settings are accepted, and how are they described?"""

import pytest
from hypothesis import given, strategies as st

from bradbury.protocol.config_key import ConfigType, keys_of
from bradbury.protocol.errors import InvalidConfig
from bradbury.storage.log_config import LogConfig, broker_keys


def test_defaults_are_kafkas() -> None:
    assert LogConfig().to_kafka() == {
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
        "unclean.leader.election.enable": "false",
        "retention.bytes": "-1",
        "retention.ms": "604800000",
        "segment.bytes": "1073741824",
        "segment.index.bytes": "10485760",
        "segment.ms": "604800000",
        "leader.replication.throttled.replicas": "",
        "follower.replication.throttled.replicas": "",
        "preallocate": "false",
        "remote.storage.enable": "false",
        "remote.log.copy.disable": "false",
        "remote.log.delete.on.disable": "false",
        "local.retention.ms": "-2",
        "local.retention.bytes": "-2",
        "bradbury.damaged.segment": "error",
        "bradbury.validate.records": "all",
    }


def test_what_is_shown_can_be_given_back() -> None:
    config = LogConfig(segment_bytes=4096, retention_ms=-1, message_timestamp_type="LogAppendTime")
    shown = config.to_kafka()
    assert LogConfig.from_kafka(shown) == config
    changed = {name for name, value in shown.items() if value != LogConfig().to_kafka()[name]}
    assert changed == {"segment.bytes", "retention.ms", "message.timestamp.type"}


def test_every_setting_has_a_sentence_and_a_brokers_setting_for_its_default() -> None:
    for name, key in LogConfig.keys().items():
        assert key.documentation.endswith(".")
        # Which replicas are throttled is a topic's own matter, in Kafka too, and so is a tier.
        assert bool(key.broker_names) == ("throttled" not in name and "remote" not in name)
        assert all(name in broker_keys() for name in key.broker_names)


@pytest.mark.parametrize(
    ("props", "message"),
    [
        ({"segment.size": "1"}, "unknown topic config 'segment.size'"),
        ({"segment_bytes": "4096"}, "unknown topic config 'segment_bytes' .did you mean segment"),
        ({"retension.ms": "1"}, "did you mean retention.ms"),
        ({"foo": "bar"}, "unknown topic config 'foo'; docs/configs.md lists those there are$"),
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
        (
            {"message.timestamp.type": "createtime"},
            "message.timestamp.type must be one of CreateTime",
        ),
        ({"min.cleanable.dirty.ratio": "1.1"}, "min.cleanable.dirty.ratio must be at most 1"),
        ({"min.cleanable.dirty.ratio": "nan"}, "min.cleanable.dirty.ratio must be at least 0"),
        ({"min.cleanable.dirty.ratio": "half"}, "min.cleanable.dirty.ratio must be a number"),
        ({"max.compaction.lag.ms": "0"}, "max.compaction.lag.ms must be at least 1"),
        (
            {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
            "min.compaction.lag.ms, 2, is more than max.compaction.lag.ms, 1",
        ),
        ({"cleanup.policy": "forget"}, "cleanup.policy is a list of delete and compact"),
        ({"compression.type": "none"}, "compression.type must be one of producer, uncomp"),
        ({"compression.gzip.level": "0"}, "compression.gzip.level is 1 to 9, or -1"),
        ({"compression.gzip.level": "10"}, "compression.gzip.level must be at most 9"),
        ({"compression.lz4.level": "18"}, "compression.lz4.level must be at most 17"),
        ({"compression.zstd.level": "23"}, "compression.zstd.level must be at most 22"),
        ({"preallocate": "true"}, "preallocate is not available: files grow"),
        ({"remote.storage.enable": "true"}, "not available: there is no tiered storage"),
        ({"local.retention.ms": "60000"}, "not available: .* can only be -2"),
        ({"remote.log.copy.disable": "true"}, "not available: there is no tiered storage"),
        ({"segment.jitter.ms": "2", "segment.ms": "1"}, "segment.jitter.ms, 2, is more than"),
    ],
)
def test_what_would_not_be_acted_on_is_refused(props: dict[str, str | None], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        LogConfig.from_kafka(props)


def test_every_bound_itself_is_allowed() -> None:
    for name, (key, field_name) in keys_of(LogConfig).items():
        if key.lowest is not None:
            extra = {"segment.jitter.ms": "0"}
            config = LogConfig.from_kafka(extra | {name: f" {key.lowest} "})
            assert getattr(config, field_name) == key.lowest
            with pytest.raises(InvalidConfig):
                LogConfig(**{field_name: key.lowest - 1})


def test_a_topic_may_be_compacted_and_deleted() -> None:
    config = LogConfig.from_kafka({"cleanup.policy": "compact, delete"})
    assert config.cleanup_policies == {"compact", "delete"}
    assert config.is_compacted
    assert not LogConfig().is_compacted


def test_a_topic_takes_from_the_broker_what_it_does_not_say_itself() -> None:
    defaults = LogConfig.from_broker({"log.retention.ms": "5", "log.segment.bytes": 100})
    config = LogConfig.from_kafka({"segment.bytes": "200"}, defaults=defaults)
    assert (config.retention_ms, config.segment_bytes) == (5, 200)
    assert config.segment_ms == LogConfig().segment_ms


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.minutes": "3", "log.retention.hours": "2"}, 180_000),
        ({"log.retention.ms": "7", "log.retention.minutes": "3"}, 7),
        ({"log.retention.hours": "-1"}, -1),
        ({}, 604_800_000),
        ({"num.partitions": "3"}, 604_800_000),
    ],
)
def test_of_the_names_of_one_setting_the_finest_counts(
    given: dict[str, str], expected: int
) -> None:
    assert LogConfig.from_broker(given).retention_ms == expected


def test_a_brokers_defaults_are_the_ones_of_its_topics() -> None:
    shown = {
        name: key.format(key.default)
        for name, key in broker_keys().items()
        if key.default is not None
    }
    assert LogConfig.from_broker(shown) == LogConfig()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"log.retention.hours": "1.5"}, "log.retention.hours must be an integer"),
        ({"log.roll.hours": "0"}, "log.roll.hours must be at least 1"),
        ({"log.segment.bytes": "1"}, "log.segment.bytes must be at least 14"),
        ({"log.cleanup.policy": "keep"}, "log.cleanup.policy is a list of delete and compact"),
    ],
)
def test_a_brokers_default_is_checked_like_a_topics(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        LogConfig.from_broker(given)


@pytest.mark.parametrize(("largest_mb", "limit_mb"), [(0.1, 16), (1, 64), (4, 256), (64, 256)])
def test_a_batch_may_become_much_larger_but_within_bounds(largest_mb: float, limit_mb: int) -> None:
    config = LogConfig(max_message_bytes=int(largest_mb * 1024**2))
    assert config.decompressed_limit == limit_mb * 1024**2


@given(
    name=st.sampled_from(sorted(LogConfig.keys())),
    text=st.text(max_size=8) | st.integers().map(str) | st.floats().map(str),
)
def test_any_text_is_either_a_value_or_an_invalid_config(name: str, text: str) -> None:
    try:
        config = LogConfig.from_kafka({name: text})
    except InvalidConfig:
        return
    key, field_name = keys_of(LogConfig)[name]
    assert LogConfig.from_kafka({name: config.to_kafka()[name]}) == config
    if key.type in (ConfigType.INT, ConfigType.LONG):
        assert getattr(config, field_name) == int(
            text.strip()
        )  # int() itself keeps what strip() removes: "0\x1f"
