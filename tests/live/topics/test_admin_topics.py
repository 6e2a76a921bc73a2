"""Are topics made, grown, described and deleted as clients of every age expect of Kafka?"""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest
from aiokafka.admin import (
    AIOKafkaAdminClient,
    NewPartitions as AioNewPartitions,
    NewTopic as AioNewTopic,
)
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions
from kafka.admin import KafkaAdminClient, NewTopic as PythonNewTopic

import bradbury
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from bradbury.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from bradbury.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from bradbury.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from bradbury.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from bradbury.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from bradbury.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from bradbury.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from bradbury.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from bradbury.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.support.wire.raw_client import RawClient

NOT_ASKED = -(2**31)
TOPIC_BITS, CLUSTER_BITS = 0b110111111000, 0b1111110100000


def call(servers: str, request, response, version: int):
    with RawClient(servers) as client:
        return client.call(request, response, version)


def create(servers: str, *topics: CreatableTopic, version: int = 7, **options):
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=5_000, **options)
    return call(servers, request, CreateTopicsResponse, version).topics


def plain(name: str, partitions: int = 1, **options) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, **options)


def metadata(servers: str, *names: str, version: int = 13, **options):
    options.setdefault("allow_auto_topic_creation", False)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **options)
    return call(servers, request, MetadataResponse, version)


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_creates_and_from_5_on_shows_what_was_made(
    servers: str, version: int
) -> None:
    config = CreatableTopicConfig(name="retention.ms", value="77")
    (made,) = create(servers, plain(f"made-by-{version}", 2, configs=[config]), version=version)
    assert (ErrorCode(made.error_code), made.error_message) == (ErrorCode.NONE, None)
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (2, 1)
        shown = {each.name: (each.value, each.config_source) for each in made.configs or []}
        assert shown["retention.ms"] == ("77", 1)
        assert shown["segment.bytes"] == ("1073741824", 5)
    if version == 7:
        (found,) = metadata(servers, made.name).topics
        assert found.topic_id == made.topic_id != UUID(int=0)


def test_what_is_wrong_with_one_topic_of_a_request_hinders_no_other(servers: str) -> None:
    node = metadata(servers).brokers[0].node_id

    def assigned(name: str, *replicas: tuple[int, list[int]], partitions: int = -1):
        return CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(*each) for each in replicas],
        )

    answers = create(
        servers,
        plain("twice"),
        plain("twice"),
        plain("zero", 0),
        CreatableTopic(name="no-replica", num_partitions=1, replication_factor=0),
        CreatableTopic(name="two-replicas", num_partitions=1, replication_factor=2),
        assigned("both", (0, [node]), partitions=1),
        assigned("hole", (1, [node])),
        assigned("repeated", (0, [node]), (0, [node])),
        assigned("nobody", (0, [99])),
        assigned("given", (0, [node]), (1, [node])),
        plain("null", configs=[CreatableTopicConfig(name="retention.ms", value=None)]),
        plain("odd", configs=[CreatableTopicConfig(name="retention.ms", value="x")]),
        plain("a.b"),
        plain("a_b"),
        plain("__cluster_metadata"),
    )
    assert {each.name: ErrorCode(each.error_code).name for each in answers} == {
        "twice": "INVALID_REQUEST",
        "zero": "INVALID_PARTITIONS",
        "no-replica": "INVALID_REPLICATION_FACTOR",
        "two-replicas": "INVALID_REPLICATION_FACTOR",
        "both": "INVALID_REQUEST",
        "hole": "INVALID_REPLICA_ASSIGNMENT",
        "repeated": "INVALID_REPLICA_ASSIGNMENT",
        "nobody": "INVALID_REPLICA_ASSIGNMENT",
        "given": "NONE",
        "null": "INVALID_REQUEST",
        "odd": "INVALID_CONFIG",
        "a.b": "NONE",
        "a_b": "INVALID_TOPIC_EXCEPTION",
        "__cluster_metadata": "INVALID_TOPIC_EXCEPTION",
    }
    made = {each.name: each for each in answers}
    assert made["given"].num_partitions == 2
    assert "collides with existing topic 'a.b'" in (made["a_b"].error_message or "")


def test_a_check_shows_what_would_be_made_and_makes_nothing(servers: str) -> None:
    (checked,) = create(servers, plain("only-checked", 3), validate_only=True)
    assert (checked.error_code, checked.num_partitions) == (0, 3)
    (found,) = metadata(servers, "only-checked").topics
    assert ErrorCode(found.error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topics_without_numbers_get_the_brokers_defaults() -> None:
    with bradbury.local(config={"num.partitions": "4"}) as cluster:
        topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1)
        (made,) = create(cluster.bootstrap_servers, topic)
        assert (made.num_partitions, made.replication_factor) == (4, 1)


def delete(servers: str, *topics: DeleteTopicState, version: int = 6):
    request = DeleteTopicsRequest(
        topics=list(topics),
        topic_names=[topic.name for topic in topics if topic.name],
        timeout_ms=5_000,
    )
    answers = call(servers, request, DeleteTopicsResponse, version).responses
    return [(each.name, ErrorCode(each.error_code).name) for each in answers]


@pytest.mark.parametrize("version", range(1, 7))
def test_every_version_deletes(servers: str, version: int) -> None:
    name = f"deleted-by-{version}"
    create(servers, plain(name))
    assert delete(servers, DeleteTopicState(name=name), version=version) == [(name, "NONE")]
    gone = delete(servers, DeleteTopicState(name=name), version=version)
    assert gone == [(name, "UNKNOWN_TOPIC_OR_PARTITION")]


def test_topics_are_deleted_by_id_and_duplicates_are_refused(servers: str) -> None:
    made = create(servers, plain("by-id"), plain("by-name"), plain("both-ways"))
    ids = {each.name: each.topic_id for each in made}
    answers = delete(
        servers,
        DeleteTopicState(name=None, topic_id=ids["by-id"]),
        DeleteTopicState(name="by-name"),
        DeleteTopicState(name="by-name"),
        DeleteTopicState(name="both-ways", topic_id=ids["both-ways"]),
        DeleteTopicState(name=None),
        DeleteTopicState(name=None, topic_id=UUID(int=99)),
    )
    assert sorted(answers, key=str) == sorted(
        [
            ("by-id", "NONE"),
            ("by-name", "INVALID_REQUEST"),
            ("both-ways", "INVALID_REQUEST"),
            (None, "INVALID_REQUEST"),
            (None, "UNKNOWN_TOPIC_ID"),
        ],
        key=str,
    )
    left = {topic.name: topic.error_code for topic in metadata(servers, *ids).topics}
    assert {name for name, code in left.items() if not code} == {"by-name", "both-ways"}


def test_deletion_can_be_switched_off() -> None:
    with bradbury.local(config={"delete.topic.enable": "false"}) as cluster:
        servers = cluster.bootstrap_servers
        create(servers, plain("stays"))
        state = DeleteTopicState(name="stays")
        assert delete(servers, state) == [("stays", "TOPIC_DELETION_DISABLED")]
        assert delete(servers, state, version=2) == [("stays", "INVALID_REQUEST")]
        assert metadata(servers, "stays").topics[0].error_code == 0


@pytest.mark.parametrize("version", range(4))
def test_every_version_adds_partitions(servers: str, topic: str, version: int) -> None:
    node = metadata(servers).brokers[0].node_id

    def grow(count: int, assignments=None, **options):
        wanted = CreatePartitionsTopic(name=topic, count=count, assignments=assignments)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=5_000, **options)
        (answer,) = call(servers, request, CreatePartitionsResponse, version).results
        return ErrorCode(answer.error_code)

    assert grow(5, validate_only=True) is ErrorCode.NONE
    assert grow(3) is ErrorCode.NONE
    assert grow(3) is ErrorCode.INVALID_PARTITIONS
    assigned = [CreatePartitionsAssignment(broker_ids=[node])]
    assert grow(5, assigned) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(4, assigned) is ErrorCode.NONE
    (found,) = metadata(servers, topic).topics
    assert [(each.partition_index, each.leader_id) for each in found.partitions] == [
        (index, node) for index in range(4)
    ]


def test_real_clients_add_partitions_and_produce_into_them(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(60)
    with bradbury.Producer(servers) as producer:
        assert producer.send(topic, b"x", partition=3).result(60).offset == 0
    with pytest.raises(KafkaException, match="has 4 partitions already"):
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(60)


def test_kafka_python_and_aiokafka_manage_topics(servers: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.create_topics([PythonNewTopic("python-topic", 1, 1)])
    assert "python-topic" in admin.list_topics()
    admin.delete_topics(["python-topic"])
    admin.close()

    async def scenario() -> list[str]:
        aio = AIOKafkaAdminClient(bootstrap_servers=servers)
        await aio.start()
        try:
            await aio.create_topics([AioNewTopic("aio-topic", 1, 1)])
            await aio.create_partitions({"aio-topic": AioNewPartitions(3)})
            return [str(each) for each in await aio.describe_topics(["aio-topic"])]
        finally:
            await aio.delete_topics(["aio-topic"])
            await aio.close()

    (described,) = asyncio.run(scenario())
    assert described.count("'partition':") == 3 or described.count("partition_index") == 3


@pytest.mark.parametrize("version", range(3))
def test_there_is_nothing_to_elect(servers: str, topic: str, version: int) -> None:
    asked = [TopicPartitions(topic=topic, partitions=[0, 9])]
    answer = call(
        servers, ElectLeadersRequest(topic_partitions=asked), ElectLeadersResponse, version
    )
    (result,) = answer.replica_election_results
    assert [ErrorCode(each.error_code) for each in result.partition_result] == [
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    everywhere = call(
        servers, ElectLeadersRequest(topic_partitions=None), ElectLeadersResponse, version
    )
    assert (everywhere.error_code, everywhere.replica_election_results) == (0, [])


@pytest.mark.parametrize("version", range(2))
def test_there_is_nowhere_to_move_a_replica(servers: str, topic: str, version: int) -> None:
    node = metadata(servers).brokers[0].node_id
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=topic,
                partitions=[
                    ReassignablePartition(partition_index=0, replicas=[node]),
                    ReassignablePartition(partition_index=1, replicas=None),
                    ReassignablePartition(partition_index=2, replicas=[node]),
                ],
            )
        ]
    )
    answer = call(servers, request, AlterPartitionReassignmentsResponse, version)
    (result,) = answer.responses
    assert [ErrorCode(each.error_code) for each in result.partitions] == [
        ErrorCode.NONE,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    under_way = call(
        servers,
        ListPartitionReassignmentsRequest(topics=None),
        ListPartitionReassignmentsResponse,
        0,
    )
    assert (under_way.error_code, under_way.topics) == (0, [])


def test_topics_are_described_page_by_page() -> None:
    config = {"max.request.partition.size.limit": "4"}
    with bradbury.local(config=config) as cluster:
        servers = cluster.bootstrap_servers
        create(servers, plain("c", 1), plain("a", 3), plain("b", 5))
        pages, cursor = [], None
        while True:
            request = DescribeTopicPartitionsRequest(
                topics=[TopicRequest(name=name) for name in ("a", "b", "c", "none", "b")],
                response_partition_limit=100,
                cursor=cursor,
            )
            answer = call(servers, request, DescribeTopicPartitionsResponse, 0)
            pages.append(
                [
                    (
                        topic.name,
                        topic.error_code,
                        [each.partition_index for each in topic.partitions],
                    )
                    for topic in answer.topics
                ]
            )
            cursor = answer.next_cursor
            if cursor is None:
                break
        unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert pages == [
            [("a", 0, [0, 1, 2]), ("b", 0, [0])],
            [("b", 0, [1, 2, 3, 4])],
            [("c", 0, [0]), ("none", unknown, [])],
        ]
        everything = call(
            servers,
            DescribeTopicPartitionsRequest(response_partition_limit=2),
            DescribeTopicPartitionsResponse,
            0,
        )
        assert everything.topics[0].topic_authorized_operations == TOPIC_BITS
        assert sum(len(topic.partitions) for topic in everything.topics) == 2


@pytest.mark.parametrize("version", range(14))
def test_every_version_of_metadata(servers: str, topic: str, version: int) -> None:
    answer = metadata(
        servers,
        topic,
        "no-such-topic",
        "no/topic",
        version=version,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    found = {each.name: each for each in answer.topics}
    codes = {name: ErrorCode(each.error_code).name for name, each in found.items()}
    missing = codes.pop("no-such-topic")
    assert codes == {topic: "NONE", "no/topic": "INVALID_TOPIC_EXCEPTION"}
    # Below version 4 a client cannot say no: it asked for the topic to be made.
    made = ("NONE", "LEADER_NOT_AVAILABLE")
    assert missing in (("UNKNOWN_TOPIC_OR_PARTITION",) if version >= 4 else made)
    assert len(found[topic].partitions) == 2
    assert found[topic].topic_authorized_operations == (TOPIC_BITS if version >= 8 else NOT_ASKED)
    asked = 8 <= version <= 10
    assert answer.cluster_authorized_operations == (CLUSTER_BITS if asked else NOT_ASKED)
    if version < 4:
        delete(servers, DeleteTopicState(name="no-such-topic"))


def test_topics_are_asked_for_by_id(servers: str, topic: str) -> None:
    (known,) = metadata(servers, topic).topics

    def ask(version: int, *topics: MetadataRequestTopic):
        request = MetadataRequest(topics=list(topics), allow_auto_topic_creation=False)
        answer = call(servers, request, MetadataResponse, version)
        return [(each.name, ErrorCode(each.error_code).name) for each in answer.topics]

    by_id = MetadataRequestTopic(name=None, topic_id=known.topic_id)
    unknown = MetadataRequestTopic(name=None, topic_id=UUID(int=5))
    for version in (12, 13):
        assert ask(version, by_id, unknown) == [(topic, "NONE"), (None, "UNKNOWN_TOPIC_ID")]
    named = MetadataRequestTopic(name="x", topic_id=known.topic_id)
    for version in (10, 11):
        assert ask(version, named, MetadataRequestTopic(name=None)) == [
            ("x", "INVALID_REQUEST"),
            ("", "INVALID_REQUEST"),
        ]


def test_a_topic_is_made_when_it_is_asked_for_and_both_sides_allow_it() -> None:
    with bradbury.local(config={"num.partitions": "3"}) as cluster:
        servers = cluster.bootstrap_servers
        (refused,) = metadata(servers, "auto").topics
        assert ErrorCode(refused.error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        code = ErrorCode.LEADER_NOT_AVAILABLE
        while code is ErrorCode.LEADER_NOT_AVAILABLE:
            (made,) = metadata(servers, "auto", allow_auto_topic_creation=True).topics
            code = ErrorCode(made.error_code)
        assert (code, len(made.partitions)) == (ErrorCode.NONE, 3)
        create(servers, plain("dots.and"))
        (collides,) = metadata(servers, "dots_and", allow_auto_topic_creation=True).topics
        assert ErrorCode(collides.error_code) is ErrorCode.INVALID_TOPIC_EXCEPTION
    with bradbury.local(config={"auto.create.topics.enable": "false"}) as cluster:
        (refused,) = metadata(
            cluster.bootstrap_servers, "auto", allow_auto_topic_creation=True
        ).topics
        assert ErrorCode(refused.error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(3))
def test_every_version_describes_the_cluster(servers: str, version: int) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    answer = call(servers, request, DescribeClusterResponse, version)
    assert answer.cluster_authorized_operations == CLUSTER_BITS
    assert answer.controller_id in {broker.broker_id for broker in answer.brokers}
    if version >= 1:
        for endpoint_type, code in ((2, 114), (7, 115)):
            asked = DescribeClusterRequest(endpoint_type=endpoint_type)
            assert call(servers, asked, DescribeClusterResponse, version).error_code == code


@pytest.mark.parametrize("version", range(6))
def test_every_version_gives_out_producer_ids(servers: str, version: int) -> None:
    def ask(**options) -> InitProducerIdResponse:
        request = InitProducerIdRequest(transactional_id=None, **options)
        return call(servers, request, InitProducerIdResponse, version)

    first, second = ask(), ask()
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert second.producer_id > first.producer_id
    if version >= 3:
        again = ask(producer_id=first.producer_id, producer_epoch=0)
        assert again.producer_id > second.producer_id
        assert ErrorCode(ask(producer_id=5).error_code) is ErrorCode.INVALID_REQUEST
    empty = call(
        servers, InitProducerIdRequest(transactional_id=""), InitProducerIdResponse, version
    )
    assert ErrorCode(empty.error_code) is ErrorCode.INVALID_REQUEST


def test_what_was_made_and_added_outlives_a_restart(tmp_path: Path) -> None:
    with bradbury.local(str(tmp_path), nodes=2) as cluster:
        admin = cluster.admin()
        admin.create_topic("t", 2, configs={"retention.ms": "5"})
        admin.create_partitions("t", 5)
        admin.alter_configs("t", {"segment.bytes": 99}, unset=["retention.ms"])
        before = admin.describe_topics(["t"])[0]
        admin.close()
    with bradbury.local(str(tmp_path), nodes=2) as cluster:
        admin = cluster.admin()
        after = admin.describe_topics(["t"])[0]
        assert after.topic_id == before.topic_id
        places = [(one.partition, one.leader) for one in before.partitions]
        assert [(one.partition, one.leader) for one in after.partitions] == places
        configs = admin.describe_configs("t")
        assert (configs["segment.bytes"].value, configs["retention.ms"].source) == ("99", 5)
        admin.close()
