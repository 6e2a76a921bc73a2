"""Can topics, settings and offsets be asked and changed from outside?"""

import time
from collections.abc import Callable

import pytest

import bradbury
from bradbury.clients.admin.admin import NewTopic as TopicToCreate
from bradbury.clients.admin.topics_admin import ensure_topic
from bradbury.clients.wire.cluster_client import ClientConfig, ClusterClient
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import (
    BrokerNotAvailable,
    ConnectionFailed,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    InvalidTopicException,
    OffsetOutOfRange,
    RequestTimedOut,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from bradbury.protocol.messages.api_versions import ApiVersionsRequest
from bradbury.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from bradbury.protocol.messages.metadata import MetadataRequest
from bradbury.tests.support.wire.scripted_broker import HANG_UP, SILENCE, ScriptedBroker

NewTopic = Callable[..., str]


def test_a_topic_is_created_described_listed_and_deleted(admin: bradbury.Admin) -> None:
    created = admin.create_topic("life", 3, configs={"max.message.bytes": "5000"})
    assert (created.name, len(created.partitions), created.is_internal) == ("life", 3, False)
    assert admin.describe_topics(["life"]) == [created]
    assert "life" in admin.list_topics()
    assert admin.describe_configs("life")["max.message.bytes"].value == "5000"
    admin.delete_topic("life")
    assert "life" not in admin.list_topics()


def test_what_others_change_is_described(admin: bradbury.Admin, new_topic: NewTopic) -> None:
    topic = new_topic()
    with bradbury.Admin(admin.bootstrap_servers) as other:
        assert len(other.describe_topics([topic])[0].partitions) == 1
        admin.create_partitions(topic, 3)
        assert len(other.describe_topics([topic])[0].partitions) == 3
        held = {
            one.partition for each in other.describe_log_dirs([topic]) for one in each.partitions
        }
        assert held == {0, 1, 2}
        admin.delete_topic(topic)
        with pytest.raises(UnknownTopicOrPartition, match=topic):
            other.describe_topics([topic])


def test_several_topics_at_once(admin: bradbury.Admin) -> None:
    created = admin.create_topics(["one", TopicToCreate("two", partitions=2)])
    assert [(topic.name, len(topic.partitions)) for topic in created] == [("one", 1), ("two", 2)]
    admin.delete_topics(["one", "two"])


def test_refusals_name_the_topic_and_the_reason(admin: bradbury.Admin, new_topic: NewTopic) -> None:
    topic = new_topic()
    with pytest.raises(TopicAlreadyExists, match=f"{topic}.*delete_topic"):
        admin.create_topic(topic)
    with pytest.raises(InvalidPartitions):
        admin.create_topic("none", 0)
    for refused in (admin.create_topic, lambda name: admin.describe_topics([name])):
        with pytest.raises(InvalidTopicException, match="'no spaces please' has characters other"):
            refused("no spaces please")
    with pytest.raises(InvalidConfig):
        admin.create_topic("odd", configs={"no.such.setting": "1"})
    with pytest.raises(UnknownTopicOrPartition):
        admin.delete_topic("nowhere")
    with pytest.raises(UnknownTopicOrPartition, match="nowhere"):
        admin.describe_topics(["nowhere"])


def test_the_cluster_says_who_it_is(admin: bradbury.Admin, bootstrap: str) -> None:
    cluster = admin.describe_cluster()
    assert cluster.cluster_id
    assert [str(broker.address) for broker in cluster.brokers] == [bootstrap]
    assert cluster.controller_id in {broker.node_id for broker in cluster.brokers}
    assert admin.bootstrap_servers == bootstrap


def test_the_settings_of_a_node_are_described(admin: bradbury.Admin) -> None:
    node = admin.describe_cluster().brokers[0].node_id
    assert admin.describe_configs(broker=node)
    with pytest.raises(BrokerNotAvailable, match="no live broker 999"):
        admin.describe_configs(broker=999)
    with pytest.raises(ValueError, match="use a topic"):
        admin.describe_configs()


def test_settings_are_changed_one_by_one_and_all_or_none(
    admin: bradbury.Admin, new_topic: NewTopic
) -> None:
    topic = new_topic()
    admin.alter_configs(
        topic, {"retention.ms": 5, "segment.bytes": "99"}, append={"cleanup.policy": "compact"}
    )
    shown = admin.describe_configs(topic, documentation=True)
    assert [shown[name].value for name in ("retention.ms", "segment.bytes", "cleanup.policy")] == [
        "5",
        "99",
        "delete,compact",
    ]
    entry = shown["retention.ms"]
    assert (entry.source, [each.source for each in entry.synonyms]) == (1, [1, 5])
    assert entry.documentation
    admin.alter_configs(topic, unset=["segment.bytes"], subtract={"cleanup.policy": "delete"})
    shown = admin.describe_configs(topic)
    assert (shown["segment.bytes"].source, shown["cleanup.policy"].value) == (5, "compact")
    with pytest.raises(InvalidConfig, match="unknown topic config 'no.such'"):
        admin.alter_configs(topic, {"retention.ms": 6, "no.such": 1})
    admin.alter_configs(topic, {"retention.ms": 7}, validate_only=True)
    assert admin.describe_configs(topic)["retention.ms"].value == "5"
    with pytest.raises(UnknownTopicOrPartition):
        admin.alter_configs("nowhere", {"retention.ms": 6})


def test_settings_of_all_brokers_reach_each_of_them(admin: bradbury.Admin) -> None:
    node = admin.describe_cluster().brokers[0].node_id
    admin.alter_configs(broker="all", changes={"max.connections": 5000})
    assert admin.describe_configs(broker="all")["max.connections"].value == "5000"
    assert admin.describe_configs(broker=node)["max.connections"].source == 3
    admin.alter_configs(broker=node, changes={"max.connections": 6000})
    assert admin.describe_configs(broker=node)["max.connections"].source == 2
    admin.alter_configs(broker=node, unset=["max.connections"])
    admin.alter_configs(broker="all", unset=["max.connections"])
    assert admin.describe_configs(broker=node)["max.connections"].source == 5
    with pytest.raises(InvalidRequest, match="cannot be changed while brokers run"):
        admin.alter_configs(broker="all", changes={"num.partitions": 3})
    with pytest.raises(ValueError, match="node id"):
        admin.describe_configs(broker="some")


def test_partitions_are_added_and_seen_at_once(admin: bradbury.Admin, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    admin.describe_topics([topic])
    admin.create_partitions(topic, 5, validate_only=True)
    assert len(admin.describe_topics([topic])[0].partitions) == 2
    admin.create_partitions(topic, 3)
    assert len(admin.describe_topics([topic])[0].partitions) == 3
    node = admin.describe_cluster().brokers[0].node_id
    admin.create_partitions(topic, 4, assignments=[[node]])
    with pytest.raises(InvalidPartitions, match="has 4 partitions already"):
        admin.create_partitions(topic, 4)
    with pytest.raises(InvalidReplicaAssignment, match="77: there is no such node"):
        admin.create_partitions(topic, 5, assignments=[[77]])
    with pytest.raises(UnknownTopicOrPartition):
        admin.create_partitions("nowhere", 5)


def test_records_are_deleted_up_to_an_offset(
    admin: bradbury.Admin, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    with bradbury.Producer(bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"", partition=number % 2).result(60)
    left = admin.delete_records({(topic, 0): 2, (topic, 1): "latest"})
    assert left == {(topic, 0): 2, (topic, 1): 5}
    starts = admin.list_offsets([(topic, 0), (topic, 1)], "earliest")
    assert [starts[topic, partition].offset for partition in (0, 1)] == [2, 5]
    with pytest.raises(OffsetOutOfRange, match=f"{topic}-0"):
        admin.delete_records({(topic, 0): 99})
    with pytest.raises(UnknownTopicOrPartition, match="partitions 0 to 1, not 2"):
        admin.delete_records({(topic, 2): 0})
    with pytest.raises(ValueError, match="latest"):
        admin.delete_records({(topic, 0): "all"})


def test_offsets_at_the_ends_and_at_a_time(
    admin: bradbury.Admin, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    with bradbury.Producer(bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"", partition=0, timestamp_ms=10**12 + number).result(60)
    ends = admin.list_offsets([(topic, 0), (topic, 1)])
    assert [ends[topic, partition].offset for partition in (0, 1)] == [10, 0]
    assert admin.list_offsets([(topic, 0)], "earliest")[topic, 0].offset == 0
    found = admin.list_offsets({(topic, 0): 10**12 + 4, (topic, 1): "latest"})
    assert (found[topic, 0].offset, found[topic, 0].timestamp) == (4, 10**12 + 4)
    assert admin.list_offsets([(topic, 0)], 10**12 + 99)[topic, 0].offset == -1
    with pytest.raises(UnknownTopicOrPartition, match="partitions 0 to 1, not 2"):
        admin.list_offsets([(topic, 2)])
    with pytest.raises(ValueError, match="earliest"):
        admin.list_offsets([(topic, 0)], "first")


def test_a_topic_that_is_ensured_is_asked_for_once(bootstrap: str, admin: bradbury.Admin) -> None:
    """Who waits before it asks again waits longer than this test."""
    wanted = TopicToCreate("ensured", 2, configs={"cleanup.policy": "compact"})
    for _ in range(2):
        client = ClusterClient(bootstrap, config=ClientConfig(retry_backoff_ms=600_000))
        try:
            client.run(ensure_topic(client, wanted, timeout_ms=30_000), 60_000)
        finally:
            client.close()
    assert len(admin.describe_topics(["ensured"])[0].partitions) == 2
    admin.delete_topic("ensured")


def test_a_topic_is_ensured_where_others_have_just_created_it(bootstrap: str) -> None:
    """The broker that is asked does not know it yet; the controller does."""
    with ScriptedBroker({}, [ApiVersionsRequest, MetadataRequest, CreateTopicsRequest]) as broker:
        exists = CreatableTopicResult(name="t", error_code=ErrorCode.TOPIC_ALREADY_EXISTS)
        broker.on(CreateTopicsRequest, CreateTopicsResponse(topics=[exists]))
        client = ClusterClient(broker.address)
        try:
            client.run(ensure_topic(client, TopicToCreate("t"), timeout_ms=30_000), 60_000)
        finally:
            client.close()
        assert len(broker.wait_for(CreateTopicsRequest)) == 1


def test_a_change_whose_answer_is_lost_is_not_made_again() -> None:
    spoken = [ApiVersionsRequest, MetadataRequest, CreateTopicsRequest]
    with ScriptedBroker({}, spoken) as broker:
        broker.on(CreateTopicsRequest, HANG_UP)
        with bradbury.Admin(broker.address) as admin:
            with pytest.raises(ConnectionFailed, match="may have been made"):
                admin.create_topic("t")
        assert len(broker.wait_for(CreateTopicsRequest)) == 1


def test_a_question_is_asked_again_elsewhere(bootstrap: str) -> None:
    with ScriptedBroker({}) as broker:
        broker.on(MetadataRequest, HANG_UP)
        with bradbury.Admin(f"{broker.address},{bootstrap}") as admin:
            assert isinstance(admin.list_topics(), list)
        broker.wait_for(MetadataRequest)


def test_a_silent_broker_is_not_waited_for_longer_than_asked() -> None:
    with ScriptedBroker({}) as broker:
        broker.on(MetadataRequest, SILENCE)
        with bradbury.Admin(broker.address, timeout_ms=300) as admin:
            started = time.monotonic()
            with pytest.raises((RequestTimedOut, ConnectionFailed)):
                admin.list_topics()
            assert time.monotonic() - started < 20
