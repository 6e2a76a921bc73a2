"""Small scenes in which odd requests follow each other, and every answer counts.

Each is a list of (what is asked, request, version); both brokers of a comparison are asked the same.
What single requests can get wrong is in raw_requests.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bradbury.protocol.records.records import encode_records
from bradbury.protocol.schema import Message
from tests.support.wire.sample_requests import (
    NOW,
    Sample,
    add_partitions_to_txn,
    make,
    of_producer,
)

Step = tuple[str, Message, int]
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def scenes(sample: Sample, node_id: int) -> Iterator[Step]:
    yield from _twice_in_a_produce(sample)
    yield from _many_partitions(sample)
    yield from _settings_that_change_nothing(sample)
    yield from _a_group_of_offsets_alone(sample)
    yield from _settings_of_groups(sample)
    yield from _settings_of_subscriptions()
    yield from _loggers(node_id)
    yield from _settings_of_brokers(node_id)
    yield from _features()
    yield from _transactions(sample)


def _twice_in_a_produce(s: Sample) -> Iterator[Step]:
    def part(value: bytes) -> Any:
        records = bytes(encode_records([(NOW, None, value, ())]))
        return make("produce", "PartitionProduceData", index=0, records=records)

    topic = make(
        "produce", "TopicProduceData", name=s.topic, partition_data=[part(b"1st"), part(b"2nd")]
    )
    request = make("produce", "ProduceRequest", acks=-1, timeout_ms=9_000, topic_data=[topic])
    yield "two batches for one partition", request, 9
    wanted = make("list_offsets", "ListOffsetsPartition", partition_index=0, timestamp=-1)
    asked = make("list_offsets", "ListOffsetsTopic", name=s.topic, partitions=[wanted])
    yield "how many are there", make("list_offsets", "ListOffsetsRequest", topics=[asked]), 7
    part0 = make("fetch", "FetchPartition", partition=0, partition_max_bytes=1 << 20)
    topic = make("fetch", "FetchTopic", topic=s.topic, partitions=[part0])
    yield "which one is there", make("fetch", "FetchRequest", max_wait_ms=0, topics=[topic]), 11


def _create(name: str, count: int = 1, **configs: str) -> Any:
    return make(
        "create_topics",
        "CreatableTopic",
        name=name,
        num_partitions=count,
        replication_factor=1,
        configs=[
            make("create_topics", "CreatableTopicConfig", name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def _creation(*topics: Any, validate_only: bool = False) -> Message:
    request: Message = make(
        "create_topics",
        "CreateTopicsRequest",
        topics=list(topics),
        timeout_ms=30_000,
        validate_only=validate_only,
    )
    return request


def _many_partitions(s: Sample) -> Iterator[Step]:
    yield "10,001 partitions", _creation(_create("many", 10_001), _create("few")), 7
    some = (_create("some", 6_000), _create("others", 4_001))
    yield "6,000 and 4,001 partitions", _creation(*some, validate_only=True), 7
    for total in (10_002, 10_003):
        more = make(
            "create_partitions",
            "CreatePartitionsTopic",
            name=s.topic,
            count=total,
            assignments=None,
        )
        request = make(
            "create_partitions",
            "CreatePartitionsRequest",
            topics=[more],
            timeout_ms=30_000,
            validate_only=True,
        )
        yield f"{total} partitions instead of 2", request, 3


def _settings_that_change_nothing(s: Sample) -> Iterator[Step]:
    for number, (name, value) in enumerate(
        (
            ("preallocate", "false"),
            ("remote_storage_enable", "false"),
            ("remote_storage_enable", "true"),
            ("local_retention_ms", "-2"),
            ("local_retention_bytes", "-2"),
            ("cleanup_policy", ""),
            ("cleanup_policy", "archive"),
            ("no_such", "1"),
        )
    ):
        topic = _create(f"as-it-is-{number}", **{name: value})
        yield f"a topic with {name}={value}", _creation(topic, validate_only=True), 4
    yield "a policy less", _alter(TOPIC, s.topic, ("cleanup.policy", SUBTRACT, "delete")), 1
    yield "what is left of it", _describe(TOPIC, s.topic, "cleanup.policy"), 4


def _a_group_of_offsets_alone(s: Sample) -> Iterator[Step]:
    group = f"alone-{s.topic}"

    def offsets(*partitions: int) -> Message:
        deleted = [
            make("offset_delete", "OffsetDeleteRequestPartition", partition_index=n)
            for n in partitions
        ]
        topic = make("offset_delete", "OffsetDeleteRequestTopic", name=s.topic, partitions=deleted)
        request: Message = make(
            "offset_delete", "OffsetDeleteRequest", group_id=group, topics=[topic]
        )
        return request

    part = make(
        "offset_commit", "OffsetCommitRequestPartition", partition_index=0, committed_offset=3
    )
    topic = make("offset_commit", "OffsetCommitRequestTopic", name=s.topic, partitions=[part])
    commit = make("offset_commit", "OffsetCommitRequest", group_id=group, topics=[topic])
    describe = make("describe_groups", "DescribeGroupsRequest", groups=[group])
    listing = make("list_groups", "ListGroupsRequest", states_filter=["Empty"])
    yield "a commit without members", commit, 8
    yield "the group of it", describe, 6
    yield "offsets of partitions that are there and not", offsets(0, 1, 2, -1), 0
    yield "the group without offsets", describe, 6
    yield "the same again", offsets(0), 0
    yield "groups that are empty", listing, 5
    delete = make("delete_groups", "DeleteGroupsRequest", groups_names=[group])
    yield "the group is deleted", delete, 2
    yield "and again", delete, 2
    yield "the group that is gone", describe, 6
    yield "offsets of a group that is gone", offsets(0), 0


def _alter(kind: int, name: str, *changes: tuple[str, int, str | None]) -> Message:
    module = "incremental_alter_configs"
    configs = [
        make(module, "AlterableConfig", name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = make(
        module, "AlterConfigsResource", resource_type=kind, resource_name=name, configs=configs
    )
    request: Message = make(module, "IncrementalAlterConfigsRequest", resources=[resource])
    return request


def _replace(kind: int, name: str, key: str, value: str) -> Message:
    config = make("alter_configs", "AlterableConfig", name=key, value=value)
    resource = make(
        "alter_configs",
        "AlterConfigsResource",
        resource_type=kind,
        resource_name=name,
        configs=[config],
    )
    request: Message = make("alter_configs", "AlterConfigsRequest", resources=[resource])
    return request


def _describe(kind: int, name: str, *keys: str) -> Message:
    resource = make(
        "describe_configs",
        "DescribeConfigsResource",
        resource_type=kind,
        resource_name=name,
        configuration_keys=list(keys) or None,
    )
    request: Message = make(
        "describe_configs", "DescribeConfigsRequest", resources=[resource], include_synonyms=True
    )
    return request


def _listing(*kinds: int) -> Message:
    request: Message = make(
        "list_config_resources", "ListConfigResourcesRequest", resource_types=list(kinds)
    )
    return request


def _settings_of_groups(s: Sample) -> Iterator[Step]:
    name, timeout = "group-with-settings", "consumer.session.timeout.ms"
    yield "settings of a group", _describe(GROUP, name), 4
    yield "settings of no group", _describe(GROUP, ""), 4
    for what, change in {
        "a timeout": (timeout, SET, "50000"),
        "a timeout that is too short": (timeout, SET, "1"),
        "a timeout that is not a number": (timeout, SET, "soon"),
        "an unknown setting": ("no.such", SET, "1"),
        "a number as a list": (timeout, APPEND, "1"),
    }.items():
        yield f"{what} for a group", _alter(GROUP, name, change), 1
    yield "a timeout for no group", _alter(GROUP, "", (timeout, SET, "50000")), 1
    yield "the timeout of a group", _describe(GROUP, name, timeout), 4
    yield "groups with settings", _listing(GROUP), 1
    yield "a group's timeout goes", _alter(GROUP, name, (timeout, DELETE, None)), 1
    yield "groups with settings again", _listing(GROUP), 1
    yield "a group's settings replaced", _replace(GROUP, name, timeout, "55000"), 2


def _settings_of_subscriptions() -> Iterator[Step]:
    name = "subscription"
    yield "a subscription that is not there", _describe(CLIENT_METRICS, name), 4
    yield "a subscription without a name", _describe(CLIENT_METRICS, ""), 4
    for what, change in {
        "an interval": ("interval.ms", SET, "60000"),
        "an interval that is too short": ("interval.ms", SET, "99"),
        "an interval that is not a number": ("interval.ms", SET, "soon"),
        "two metrics": ("metrics", APPEND, "a.b,c.d"),
        "a metric less": ("metrics", SUBTRACT, "a.b"),
        "a pattern": ("match", SET, "client_id=a.*"),
        "a pattern of what is not known": ("match", SET, "client_shoe_size=43"),
        "a pattern that is none": ("match", SET, "client_id=("),
        "an unknown setting": ("no.such", SET, "1"),
    }.items():
        yield f"{what} for a subscription", _alter(CLIENT_METRICS, name, change), 1
    yield "the subscription", _describe(CLIENT_METRICS, name), 4
    yield "all subscriptions", _listing(CLIENT_METRICS), 1
    yield "all subscriptions as of version 0", _listing(), 0


def _loggers(node_id: int) -> Iterator[Step]:
    here, elsewhere = str(node_id), "77"
    yield "the levels of no broker's loggers", _describe(BROKER_LOGGER, ""), 4
    yield "the levels of another broker's loggers", _describe(BROKER_LOGGER, elsewhere), 4
    yield "the level of a logger that is not there", _describe(BROKER_LOGGER, here, "no.such"), 4
    for what, change in {
        "a level": ("root", SET, "ERROR"),
        "an unknown level": ("root", SET, "LOUD"),
        "a level added": ("root", APPEND, "ERROR"),
        "no level": ("root", DELETE, None),
        "the level of an unknown logger": ("no.such", SET, "INFO"),
    }.items():
        yield f"{what} for a logger", _alter(BROKER_LOGGER, here, change), 1
    yield "the level of a logger", _describe(BROKER_LOGGER, here, "root"), 4
    yield "a level elsewhere", _alter(BROKER_LOGGER, elsewhere, ("root", SET, "ERROR")), 1
    yield "levels replaced", _replace(BROKER_LOGGER, here, "root", "ERROR"), 2
    yield "brokers with loggers", _listing(BROKER_LOGGER), 1


def _settings_of_brokers(node_id: int) -> Iterator[Step]:
    here = str(node_id)
    for name, value in (
        ("log.cleaner.threads", "2"),
        ("log.cleaner.threads", "none"),
        ("log.cleaner.dedupe.buffer.size", "20000000"),
        ("log.cleaner.io.max.bytes.per.second", "1000000.0"),
        ("log.cleaner.backoff.ms", "1000"),
        ("log.preallocate", "false"),
        ("log.cleaner.enable", "false"),
        ("background.threads", "5"),
    ):
        yield f"{name}={value} for a broker", _alter(BROKER, here, (name, SET, value)), 1
    for key in ("log.cleaner.threads", "log.cleaner.backoff.ms"):
        yield f"{key} of a broker", _describe(BROKER, here, key), 4
        yield f"{key} goes", _alter(BROKER, here, (key, DELETE, None)), 1
    yield "a setting of a broker that is not there", _alter(BROKER, "77", ("x", SET, "1")), 1


def _features() -> Iterator[Step]:
    for feature, level in (("metadata.version", 27), ("metadata.version", 3), ("no.such", 1)):
        update = make(
            "update_features",
            "FeatureUpdateKey",
            feature=feature,
            max_version_level=level,
            upgrade_type=1,
        )
        request = make(
            "update_features",
            "UpdateFeaturesRequest",
            feature_updates=[update],
            validate_only=True,
        )
        for version in (1, 2):
            yield f"{feature} at {level}", request, version


def _transactions(s: Sample) -> Iterator[Step]:
    """Of one id: both generations of the protocol, fencing, recovery; then what is known of it."""
    epoch = s.producer_epoch

    def begin(name: str, timeout_ms: int = 60_000, epoch: int | None = None) -> Message:
        asked: Message = make(
            "init_producer_id",
            "InitProducerIdRequest",
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            producer_id=-1 if epoch is None else s.producer_id,
            producer_epoch=-1 if epoch is None else epoch,
        )
        return asked

    def in_epoch(epoch: int) -> Sample:
        return replace(s, producer_epoch=epoch)

    def add(epoch: int, version: int, *indexes: int) -> Message:
        return add_partitions_to_txn(in_epoch(epoch), version, *indexes)

    def end(epoch: int, version: int, *, is_commit: bool) -> Message:
        return of_producer("end_txn", "EndTxnRequest", committed=is_commit)(
            in_epoch(epoch), version
        )

    def offsets(epoch: int, version: int) -> Message:
        return of_producer("add_offsets_to_txn", "AddOffsetsToTxnRequest", group_id=s.group)(
            in_epoch(epoch), version
        )

    name = s.transactional_id
    describe = make(
        "describe_transactions", "DescribeTransactionsRequest", transactional_ids=[name, "none"]
    )

    def listing(**filters: Any) -> Message:
        asked: Message = make("list_transactions", "ListTransactionsRequest", **filters)
        return asked

    yield "a timeout of no time", begin(name, 0), 5
    yield "a timeout of an hour", begin(name, 3_600_000), 5
    yield "an id that is empty", begin(""), 5
    yield "what is known of an id without a transaction", describe, 0
    for version in (0, 5):
        yield "commit of nothing", end(epoch, version, is_commit=True), version
    yield "abort of nothing by an old client", end(epoch, 4, is_commit=False), 4
    yield "two partitions", add(epoch, 3, 0, 1), 3
    yield "one of them again", add(epoch, 0, 1), 0
    yield "one more that is not there", add(epoch, 3, 0, 2), 3
    yield "those of a group", offsets(epoch, 4), 4
    for version in (1, 2):
        yield "a partition of a later epoch", add(epoch + 1, version, 0), version
        yield "those of a group of a later epoch", offsets(epoch + 1, version), version
        yield "commit of a later epoch", end(epoch + 1, version, is_commit=True), version
    yield "what is known of an open transaction", describe, 0
    mine = {"state_filters": ["Ongoing"], "producer_id_filters": [s.producer_id]}
    yield "open transactions", listing(**mine), 0
    yield "open transactions of states that are none", listing(state_filters=["Open"]), 0
    yield "open for an hour", listing(**mine, duration_filter=3_600_000), 1
    yield "by a pattern", listing(transactional_id_pattern=f"id-of-.*{name[-4:]}"), 2
    yield "by a pattern that does not match all of it", listing(transactional_id_pattern="id"), 2
    yield "by a pattern that is none", listing(transactional_id_pattern="(id"), 2
    asked: Any = add(epoch, 5, 0)
    asked.transactions[0].verify_only = True
    yield "whether a partition is in it", asked, 5
    yield "the same by an older broker", asked, 4
    asked = add(epoch + 1, 5, 0)
    asked.transactions[0].verify_only = True
    yield "whether a partition is in it, of a later epoch", asked, 5
    yield "commit", end(epoch, 4, is_commit=True), 4
    yield "commit again", end(epoch, 4, is_commit=True), 4
    yield "abort what was committed", end(epoch, 4, is_commit=False), 4
    yield "what is known of what was committed", describe, 0
    yield "a partition by a leader", add(epoch, 5, 0), 5
    yield "commit with an epoch for the next", end(epoch, 5, is_commit=True), 5
    yield "the same again", end(epoch, 5, is_commit=True), 5
    yield "a partition of the former epoch", add(epoch, 5, 0), 5
    yield "abort of nothing", end(epoch + 1, 5, is_commit=False), 5
    yield "abort of nothing again", end(epoch + 1, 5, is_commit=False), 5
    yield "commit of nothing then", end(epoch + 2, 5, is_commit=True), 5
    yield "a partition of the next one", add(epoch + 2, 5, 1), 5
    yield "another producer begins", begin(name), 5
    yield "the former one commits when it was aborted", end(epoch + 2, 5, is_commit=True), 5
    yield "the former one aborts when it was aborted", end(epoch + 2, 5, is_commit=False), 5
    yield "the same by an old client", end(epoch + 2, 4, is_commit=False), 4
    yield "what is known of what was aborted", describe, 0
    yield "the former one recovers when it was aborted", begin(name, epoch=epoch + 2), 5
    yield "another one begins at last", begin(name), 5
    yield "the former one commits", end(epoch + 2, 5, is_commit=True), 5
    yield "the former one recovers", begin(name, epoch=epoch + 2), 5
    yield "the former one recovers, as of version 3", begin(name, epoch=epoch + 2), 3
    yield "the present one recovers", begin(name, epoch=epoch + 4), 5
    yield "what is known in the end", describe, 0
