"""What clients see of a cluster with an authorizer: what is hidden, what is half allowed, what is
written down. Through the dispatcher as anybody, and with clients of others by their certificates.
"""

from __future__ import annotations

import logging
import resource
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import cramjam
import pytest

import bradbury
from bradbury.handlers.ports.authorized_operations import NOT_ASKED
from bradbury.handlers.ports.client_session import ClientSession
from bradbury.launch.local import LocalCluster
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from bradbury.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from bradbury.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from bradbury.protocol.messages.describe_cluster import DescribeClusterRequest
from bradbury.protocol.messages.describe_groups import DescribeGroupsRequest
from bradbury.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from bradbury.protocol.messages.describe_transactions import DescribeTransactionsRequest
from bradbury.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from bradbury.protocol.messages.find_coordinator import FindCoordinatorRequest
from bradbury.protocol.messages.list_groups import ListGroupsRequest
from bradbury.protocol.messages.list_transactions import ListTransactionsRequest
from bradbury.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from bradbury.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from bradbury.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from bradbury.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from bradbury.protocol.principal import Principal
from bradbury.protocol.records.record_batch import build_batch
from bradbury.protocol.records.records import encode_records
from bradbury.protocol.schema import Message
from bradbury.protocol.security.acl_binding import (
    AclBinding,
    AclFilter,
    AclOperation as Operation,
    AclPermission,
    PatternType,
    ResourceType,
)
from tests.live.security.access_scene import AUTHORIZER, asked, set_rules, trace
from tests.support.wire.sample_requests import NOW, Sample

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
PATIENCE = 60
Ask = Callable[..., Any]


def allow(operation: Operation, resource: ResourceType, name: str, **more: Any) -> AclBinding:
    rule = AclBinding(
        resource,
        name,
        PatternType.LITERAL,
        "User:alice",
        "*",
        operation,
        AclPermission.ALLOW,
    )
    return rule._replace(**more)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    config = {"authorizer.class.name": AUTHORIZER, "super.users": "User:root;User:ANONYMOUS"}
    with bradbury.local(config=config) as cluster:
        with cluster.admin() as admin:
            for topic in ("open", "closed"):
                admin.create_topic(topic, 2)
        yield cluster


@pytest.fixture(scope="module")
def sample(cluster: LocalCluster) -> Sample:
    return Sample.of(cluster.bootstrap_servers, "open")


@pytest.fixture
def ask(cluster: LocalCluster) -> Ask:
    """Ask as alice, who is allowed what is given, or what she was before."""
    node = cluster.nodes[0]

    def call(request: Message, version: int, *rules: AclBinding) -> Any:
        async def scene() -> Any:
            await set_rules(node, set(rules))
            session = ClientSession("10.0.0.1", principal=Principal("User", "alice"))
            return await asked(node, request, version, session)

        return cluster._call(scene(), PATIENCE)

    return call


def topic_id(cluster: LocalCluster, name: str) -> UUID:
    return cluster.nodes[0].image.topics[name].topic_id


def codes(things: list[Any], name: str = "name") -> dict[str, int]:
    return {getattr(each, name): each.error_code for each in things}


REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


# --- Metadata -------------------------------------------------------------------------------------


def test_all_topics_are_those_that_may_be_described(cluster: LocalCluster, ask: Ask) -> None:
    rule = allow(Operation.READ, TOPIC, "open")
    for version, topics in ((0, []), (1, None), (12, None)):
        request = MetadataRequest(topics=topics)
        assert [topic.name for topic in ask(request, version, rule).topics] == ["open"]
        answer = ask(request, version)
        assert answer.topics == []
        assert len(answer.brokers) == 1


def test_a_hidden_topic_and_none_at_all_have_the_same_answer(
    cluster: LocalCluster, ask: Ask
) -> None:
    offset = cluster.nodes[0].image.offset
    names = [MetadataRequestTopic(name=name) for name in ("closed", "none", "open")]
    request = MetadataRequest(topics=names, allow_auto_topic_creation=True)
    for version in (0, 4, 12):
        answer = ask(request, version, allow(Operation.DESCRIBE, TOPIC, "open"))
        assert [(each.name, each.error_code) for each in answer.topics] == [
            ("closed", REFUSED),
            ("none", REFUSED),
            ("open", 0),
        ]
        assert all(not each.partitions for each in answer.topics if each.error_code)
        assert all(each.topic_id.int == 0 for each in answer.topics if each.error_code)
    assert "none" not in cluster.nodes[0].image.topics
    assert cluster.nodes[0].image.offset > offset  # rules were made, and nothing else


def test_a_topic_asked_for_by_id_has_no_name_for_those_who_may_not_describe_it(
    cluster: LocalCluster, ask: Ask
) -> None:
    ids = [topic_id(cluster, "closed"), UUID(int=5), topic_id(cluster, "open")]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=i) for i in ids])
    answer = ask(request, 12, allow(Operation.DESCRIBE, TOPIC, "open"))
    assert [(each.name, each.topic_id, each.error_code) for each in answer.topics] == [
        (None, ids[0], REFUSED),
        (None, ids[1], ErrorCode.UNKNOWN_TOPIC_ID),
        ("open", ids[2], 0),
    ]


@pytest.mark.parametrize("on", [(TOPIC, "new-1"), (CLUSTER, "kafka-cluster")])
def test_asking_makes_a_topic_for_those_who_may_make_it(
    cluster: LocalCluster, ask: Ask, on: tuple[ResourceType, str]
) -> None:
    name = "new-1" if on[0] == TOPIC else "new-2"
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
    )
    describe = allow(Operation.DESCRIBE, TOPIC, name)
    assert codes(ask(request, 12, describe).topics) == {name: REFUSED}
    assert name not in cluster.nodes[0].image.topics
    answer = ask(request, 12, describe, allow(Operation.CREATE, *on))
    assert codes(answer.topics)[name] in (0, ErrorCode.LEADER_NOT_AVAILABLE)
    assert name in cluster.nodes[0].image.topics


def test_operations_are_those_that_are_allowed(ask: Ask) -> None:
    rules = [
        allow(Operation.WRITE, TOPIC, "open"),
        allow(Operation.ALTER_CONFIGS, CLUSTER, "kafka-cluster"),
    ]
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="open"), MetadataRequestTopic(name="closed")],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    answer = ask(request, 8, *rules)
    seen = {topic.name: topic.topic_authorized_operations for topic in answer.topics}
    assert seen == {"open": 1 << Operation.WRITE | 1 << Operation.DESCRIBE, "closed": NOT_ASKED}
    assert answer.cluster_authorized_operations == 0  # which only a DESCRIBE shows
    both = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert ask(both, 1, *rules).cluster_authorized_operations == 0
    describe = allow(Operation.DESCRIBE, CLUSTER, "kafka-cluster")
    expected = sum(
        1 << each
        for each in (Operation.DESCRIBE, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS)
    )
    assert ask(both, 1, *rules, describe).cluster_authorized_operations == expected
    unasked = DescribeClusterRequest()
    assert ask(unasked, 1, *rules, describe).cluster_authorized_operations == NOT_ASKED


def test_a_page_of_topics_has_those_that_may_be_described(ask: Ask) -> None:
    rule = allow(Operation.ALTER, TOPIC, "open")
    everything = ask(DescribeTopicPartitionsRequest(response_partition_limit=100), 0, rule)
    assert [topic.name for topic in everything.topics] == ["open"]
    operations = everything.topics[0].topic_authorized_operations
    assert operations == 1 << Operation.ALTER | 1 << Operation.DESCRIBE
    names = [TopicRequest(name=name) for name in ("closed", "none", "open")]
    answer = ask(DescribeTopicPartitionsRequest(topics=names), 0, rule)
    assert codes(answer.topics) == {"open": 0, "closed": REFUSED, "none": REFUSED}


# --- topics ---------------------------------------------------------------------------------------


def test_topics_are_made_that_may_be_and_their_settings_shown_to_those_who_may(
    cluster: LocalCluster, ask: Ask
) -> None:
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        for name in ("mine-1", "other", "mine-2", "twice", "twice")
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=5_000)
    rules = [
        allow(Operation.CREATE, TOPIC, "mine", pattern=PatternType.PREFIXED),
        allow(Operation.DESCRIBE_CONFIGS, TOPIC, "mine-2"),
    ]
    found = {topic.name: topic for topic in ask(request, 7, *rules).topics}
    assert {name: topic.error_code for name, topic in found.items()} == {
        "mine-1": 0,
        "other": REFUSED,
        "mine-2": 0,
        "twice": ErrorCode.INVALID_REQUEST,
    }
    assert found["mine-1"].topic_config_error_code == REFUSED
    assert (found["mine-1"].num_partitions, found["mine-1"].configs) == (-1, [])
    assert found["mine-2"].topic_config_error_code == 0
    assert found["mine-2"].configs
    assert "other" not in cluster.nodes[0].image.topics


def test_a_topic_is_deleted_by_those_who_may_and_hidden_from_others(
    cluster: LocalCluster, ask: Ask
) -> None:
    with cluster.admin() as admin:
        for name in ("d-1", "d-2", "d-3"):
            admin.create_topic(name)
    ids = {name: topic_id(cluster, name) for name in ("d-1", "d-2", "d-3")}
    rules = [
        allow(Operation.DELETE, TOPIC, "d-1"),
        allow(Operation.DESCRIBE, TOPIC, "d-2"),
        allow(Operation.DESCRIBE, TOPIC, "d-none"),
    ]
    states = [DeleteTopicState(name=None, topic_id=each) for each in ids.values()]
    states += [DeleteTopicState(name=None, topic_id=UUID(int=9))]
    names = [DeleteTopicState(name=name) for name in ("d-none", "d-gone", "d-3")]
    request = DeleteTopicsRequest(topics=states + names, timeout_ms=5_000)
    answer = ask(request, 6, *rules).responses
    assert [(each.name, each.topic_id, each.error_code) for each in answer] == [
        ("d-1", ids["d-1"], 0),
        ("d-2", ids["d-2"], REFUSED),
        (None, ids["d-3"], REFUSED),
        (None, UUID(int=9), ErrorCode.UNKNOWN_TOPIC_ID),
        ("d-none", UUID(int=0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("d-gone", UUID(int=0), REFUSED),
        ("d-3", UUID(int=0), REFUSED),
    ]
    assert {"d-2", "d-3"} <= set(cluster.nodes[0].image.topics)
    assert "d-1" not in cluster.nodes[0].image.topics


# --- records --------------------------------------------------------------------------------------


def produce(*topics: str, cluster: LocalCluster, **options: Any) -> ProduceRequest:
    transactional = options.pop("transactional", False)
    batch = bytearray(encode_records([(NOW, b"k", b"v", ())]))
    if transactional:
        import crc32c

        batch[22] |= 0x10
        batch[17:21] = crc32c.crc32c(bytes(batch[21:])).to_bytes(4, "big")
    data = [PartitionProduceData(index=0, records=bytes(batch))]
    return ProduceRequest(
        acks=options.pop("acks", 1),
        timeout_ms=5_000,
        topic_data=[
            TopicProduceData(name=name, topic_id=topic_id(cluster, name), partition_data=data)
            for name in topics
        ],
        **options,
    )


@pytest.mark.parametrize("unfolded", [20, 2_000_000_000])
def test_what_may_not_be_written_is_not_unfolded(
    cluster: LocalCluster, ask: Ask, unfolded: int
) -> None:
    """Who may write is told what is wrong with it: then it was opened."""
    zeros = cramjam.zstd.compress(bytes(min(unfolded, 20_000_000)))
    block = bytes(zeros) * max(1, unfolded // 20_000_000)  # frames, one after the other
    header = build_batch(block, record_count=1, base_timestamp=NOW, max_timestamp=NOW, attributes=4)
    data = [PartitionProduceData(index=0, records=bytes(header))]
    topic = TopicProduceData(name="open", partition_data=data)
    request = ProduceRequest(acks=1, timeout_ms=5_000, topic_data=[topic])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def error(*rules: AclBinding) -> int:
        return int(ask(request, 9, *rules).responses[0].partition_responses[0].error_code)

    assert error() == REFUSED
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10_000  # KiB
    assert error(allow(Operation.WRITE, TOPIC, "open")) in (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.MESSAGE_TOO_LARGE,
    )


@pytest.mark.parametrize("version", [3, 9, 13])
def test_records_are_appended_where_they_may_be(
    cluster: LocalCluster, ask: Ask, version: int
) -> None:
    before = end_offsets(cluster)
    request = produce("closed", "open", cluster=cluster)
    answer = ask(request, version, allow(Operation.WRITE, TOPIC, "open")).responses
    assert [each.partition_responses[0].error_code for each in answer] == [REFUSED, 0]
    assert answer[0].partition_responses[0].base_offset == -1
    after = end_offsets(cluster)
    assert after["open"] == before["open"] + 1
    assert after["closed"] == before["closed"]


def test_a_producer_that_waits_for_no_answer_loses_its_connection(
    cluster: LocalCluster, ask: Ask
) -> None:
    before = end_offsets(cluster)
    request = produce("open", "closed", cluster=cluster, acks=0)
    assert ask(request, 9, allow(Operation.WRITE, TOPIC, "open")) is None
    after = end_offsets(cluster)
    assert (after["open"], after["closed"]) == (before["open"] + 1, before["closed"])


def test_records_of_a_transaction_want_its_id(cluster: LocalCluster, ask: Ask) -> None:
    before = end_offsets(cluster)
    rule = allow(Operation.WRITE, TOPIC, "open")
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    for own in (None, "tx"):
        request = produce("open", cluster=cluster, transactional=True, transactional_id=own)
        answer = ask(request, 9, rule).responses[0].partition_responses[0]
        assert answer.error_code == refused
    answer = ask(request, 9, rule, allow(Operation.WRITE, TRANSACTIONAL_ID, "tx"))
    assert answer.responses[0].partition_responses[0].error_code != refused
    assert end_offsets(cluster)["open"] == before["open"]


def end_offsets(cluster: LocalCluster) -> dict[str, int]:
    partitions = cluster.nodes[0].partitions
    return {name: partitions.leader_of(name, 0).log.log_end_offset for name in ("open", "closed")}


def fetch(cluster: LocalCluster, *, replica_id: int = -1, **session: int) -> FetchRequest:
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        topics=[
            FetchTopic(
                topic=name,
                topic_id=topic_id(cluster, name),
                partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)],
            )
            for name in ("open", "closed")
        ],
        **session,
    )


def test_a_follower_is_one_who_may_act_for_the_cluster(cluster: LocalCluster, ask: Ask) -> None:
    request = fetch(cluster, replica_id=1)
    read = allow(Operation.READ, TOPIC, "*")
    act = allow(Operation.CLUSTER_ACTION, CLUSTER, "kafka-cluster")
    marker = REFUSED.to_bytes(2, "big") + bytes([255] * 8)
    assert ask(request, 11, read).count(marker) == 2
    assert ask(request, 11, act).count(marker) == 0
    assert ask(fetch(cluster), 11, act).count(marker) == 2


@pytest.mark.parametrize("version", [11, 17])
def test_a_right_that_is_taken_away_ends_a_session_s_reading(
    cluster: LocalCluster, ask: Ask, version: int
) -> None:
    marker = REFUSED.to_bytes(2, "big") + bytes([255] * 8)
    both = [allow(Operation.READ, TOPIC, "open"), allow(Operation.READ, TOPIC, "closed")]
    begun = ask(fetch(cluster, session_epoch=0), version, *both)
    assert marker not in begun
    start = 9 if version >= 12 else 8  # of the body: throttle time, error, session
    session_id = int.from_bytes(begun[start + 6 : start + 10], "big")
    again = FetchRequest(
        max_wait_ms=0, max_bytes=1 << 20, session_id=session_id, session_epoch=1, replica_id=-1
    )
    found = ask(again, version, *both)
    assert marker not in found
    again.session_epoch = 2
    found = ask(again, version, both[0])
    assert found.count(marker) == 1


# --- groups and transactions ----------------------------------------------------------------------


def test_groups_are_listed_and_described_to_those_who_may(sample: Sample, ask: Ask) -> None:
    assert ask(ListGroupsRequest(), 4).groups == []
    for rule in (
        allow(Operation.READ, GROUP, sample.group),
        allow(Operation.DESCRIBE, CLUSTER, "kafka-cluster"),
    ):
        listed = ask(ListGroupsRequest(), 4, rule).groups
        assert [group.group_id for group in listed] == [sample.group]
    request = DescribeGroupsRequest(
        groups=["hidden", sample.group], include_authorized_operations=True
    )
    rule = allow(Operation.DELETE, GROUP, sample.group)
    hidden, shown = ask(request, 5, rule).groups
    assert (hidden.group_id, hidden.error_code) == (
        "hidden",
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    )
    assert hidden.authorized_operations == NOT_ASKED
    assert len(shown.members) == 1
    assert shown.authorized_operations == 1 << Operation.DELETE | 1 << Operation.DESCRIBE


def test_offsets_are_committed_for_topics_that_may_be_read_and_shown_for_those(
    cluster: LocalCluster, sample: Sample, ask: Ask
) -> None:
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=7)],
        )
        for name in ("closed", "open")
    ]
    request = OffsetCommitRequest(group_id="simple", topics=topics)
    group, one = allow(Operation.READ, GROUP, "simple"), allow(Operation.READ, TOPIC, "open")
    answer = ask(request, 7, group, one).topics
    assert [(each.name, each.partitions[0].error_code) for each in answer] == [
        ("closed", REFUSED),
        ("open", 0),
    ]
    everything = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id="simple", topics=None)]
    )
    assert [each.name for each in ask(everything, 8, group, one).groups[0].topics] == ["open"]
    assert ask(everything, 8, group).groups[0].topics == []
    old = OffsetFetchRequest(group_id="simple", topics=None)
    assert [each.name for each in ask(old, 5, group, one).topics] == ["open"]


def test_transactions_are_shown_to_those_who_may_with_topics_that_they_may_see(
    cluster: LocalCluster, sample: Sample, ask: Ask
) -> None:
    own = sample.transactional_id
    write, topic = (
        allow(Operation.WRITE, TRANSACTIONAL_ID, own),
        allow(Operation.WRITE, TOPIC, "open"),
    )
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=own,
        v3_and_below_producer_id=sample.producer_id,
        v3_and_below_producer_epoch=sample.producer_epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name="open", partitions=[0]),
            AddPartitionsToTxnTopic(name="closed", partitions=[0]),
            AddPartitionsToTxnTopic(name="open", partitions=[99]),
        ],
    )
    before = trace(cluster.nodes[0])[1:]
    results = ask(request, 3, write, topic).results_by_topic_v3_and_below
    assert [each.results_by_partition[0].partition_error_code for each in results] == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        REFUSED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert trace(cluster.nodes[0])[1:] == before
    request.v3_and_below_topics = request.v3_and_below_topics[:1]
    results = ask(request, 3, write, topic).results_by_topic_v3_and_below
    assert results[0].results_by_partition[0].partition_error_code == 0

    described = DescribeTransactionsRequest(transactional_ids=[own])
    assert [
        each.topic for each in ask(described, 0, write, topic).transaction_states[0].topics
    ] == ["open"]
    assert ask(described, 0, write).transaction_states[0].topics == []
    listed = ask(ListTransactionsRequest(), 0, write).transaction_states
    assert [each.transactional_id for each in listed] == [own]
    assert ask(ListTransactionsRequest(), 0).transaction_states == []


def test_looking_for_the_coordinator_of_an_id_wants_to_describe_it(ask: Ask) -> None:
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=["mine", "other"], key="other")
    rule = allow(Operation.DESCRIBE, TRANSACTIONAL_ID, "mine")
    found = codes(ask(request, 4, rule).coordinators, "key")
    assert found == {"mine": 0, "other": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    old = ask(request, 3, rule)
    assert old.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


# --- what is written down -------------------------------------------------------------------------


def test_denials_are_logged_as_kafka_logs_them(ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    name = "bradbury.actors.security.node_authorizer"
    request = MetadataRequest(topics=[MetadataRequestTopic(name="closed")])
    with caplog.at_level(logging.INFO, name):
        ask(request, 12, allow(Operation.READ, TOPIC, "open"))
        ask(MetadataRequest(topics=None), 12)  # nobody was refused anything
    (line,) = [record.message for record in caplog.records if record.name == name]
    assert line == (
        "Principal = User:alice is Denied operation = DESCRIBE from host = 10.0.0.1 on resource = "
        "Topic:LITERAL:closed for request = Metadata with resourceRefCount = 1 based on rule "
        "DefaultDeny"
    )
    caplog.clear()
    request.topics = [MetadataRequestTopic(name="open")]
    with caplog.at_level(logging.DEBUG, name):
        ask(request, 12, allow(Operation.READ, TOPIC, "open"))
    (allowed,) = [record for record in caplog.records if record.name == name]
    assert allowed.levelno == logging.DEBUG
    assert "User:alice is Allowed operation = DESCRIBE" in allowed.message
    assert "based on rule MatchingAcl(acl=StandardAcl(resourceType=TOPIC" in allowed.message


def test_a_flood_of_denials_is_a_few_lines(ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    name = "bradbury.actors.security.node_authorizer"
    topics = [MetadataRequestTopic(name=f"no-{number}") for number in range(1_000)]
    with caplog.at_level(logging.INFO, name):
        ask(MetadataRequest(topics=topics), 12)
    assert len([record for record in caplog.records if record.name == name]) < 100


# --- nodes ----------------------------------------------------------------------------------------


def test_every_node_goes_by_a_rule_when_it_is_made_and_after_a_restart() -> None:
    config = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
    alice = ClientSession("10.0.0.1", principal=Principal("User", "alice"))
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    rule = allow(Operation.WRITE, TOPIC, "t")

    with bradbury.local(nodes=3, config=config) as cluster:

        def answers() -> list[int]:
            async def scene() -> list[int]:
                found = [await asked(node, request, 12, alice) for node in cluster.nodes]
                return [answer.topics[0].error_code for answer in found]

            return cluster._call(scene(), PATIENCE)

        with cluster.admin() as admin:
            admin.create_topic("t", 1, 3, {"min.insync.replicas": "2"})
            with bradbury.Producer(cluster.bootstrap_servers, acks="all") as producer:
                producer.send("t", b"v").result(PATIENCE)  # followers are super users
            assert answers() == [REFUSED] * 3
            admin.create_acls([rule])
            assert answers() == [0] * 3
        cluster.stop_node(0)
        cluster.start_node(0)
        assert answers() == [0] * 3
        with cluster.admin() as admin:
            assert admin.describe_acls() == [rule]
            admin.delete_acls([AclFilter()])
            assert answers() == [REFUSED] * 3
