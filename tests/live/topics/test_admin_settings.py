"""Do settings changed by real clients take effect at once, and outlive restarts?"""

import asyncio
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import (
    ConfigResource as AioConfigResource,
    ConfigResourceType as AioConfigResourceType,
)
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from kafka.admin import (
    ConfigResource as PythonConfigResource,
    ConfigResourceType as PythonConfigResourceType,
    KafkaAdminClient,
)

import bradbury
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.messages.alter_configs import (
    AlterableConfig as ReplacedConfig,
    AlterConfigsRequest,
    AlterConfigsResource as ReplacedResource,
    AlterConfigsResponse,
)
from bradbury.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from bradbury.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from bradbury.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tests.support.wire.raw_client import RawClient

TOPIC, BROKER = 2, 4


def describe(servers: str, kind: int, name: str, version: int = 4, **options):
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=kind,
                resource_name=name,
                configuration_keys=options.pop("keys", None),
            )
        ],
        **options,
    )
    with RawClient(servers) as client:
        (result,) = client.call(request, DescribeConfigsResponse, version).results
    return result


def value_of(servers: str, topic: str, name: str) -> str | None:
    (config,) = describe(servers, TOPIC, topic, keys=[name]).configs
    return config.value


def alter(servers: str, *resources: AlterConfigsResource, version: int = 1, **options):
    request = IncrementalAlterConfigsRequest(resources=list(resources), **options)
    with RawClient(servers) as client:
        answer = client.call(request, IncrementalAlterConfigsResponse, version)
    return [(ErrorCode(each.error_code), each.error_message) for each in answer.responses]


def changes(kind: int, name: str, *configs: tuple[str, int, str | None]) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[AlterableConfig(*config) for config in configs],
    )


def test_confluent_kafka_sets_adds_and_unsets(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})

    def change(operation: AlterConfigOpType, name: str, value: str | None) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource("topic", topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(60)

    change(AlterConfigOpType.SET, "retention.ms", "777")
    change(AlterConfigOpType.APPEND, "cleanup.policy", "compact")
    assert value_of(servers, topic, "retention.ms") == "777"
    assert value_of(servers, topic, "cleanup.policy") == "delete,compact"
    change(AlterConfigOpType.SUBTRACT, "cleanup.policy", "delete")
    change(AlterConfigOpType.DELETE, "retention.ms", None)
    resource = ConfigResource("topic", topic)
    found = admin.describe_configs([resource])[resource].result(60)
    assert (found["retention.ms"].value, found["retention.ms"].is_default) == ("604800000", True)
    assert (found["cleanup.policy"].value, found["cleanup.policy"].is_default) == ("compact", False)
    assert list(found["cleanup.policy"].synonyms) == ["cleanup.policy", "log.cleanup.policy"]
    with pytest.raises(KafkaException, match="unknown topic config"):
        change(AlterConfigOpType.SET, "no.such", "1")


def test_confluent_kafka_replaces_all_settings(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for configs in ({"retention.ms": "5", "segment.bytes": "99"}, {"retention.ms": "6"}):
        resource = ConfigResource("topic", topic, set_config=configs)
        admin.alter_configs([resource])[resource].result(60)
    assert value_of(servers, topic, "retention.ms") == "6"
    assert value_of(servers, topic, "segment.bytes") == "1073741824"


def test_kafka_python_alters_and_describes(servers: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=servers)
    kind = PythonConfigResourceType.TOPIC
    admin.alter_configs([PythonConfigResource(kind, topic, configs={"retention.ms": "888"})])
    assert value_of(servers, topic, "retention.ms") == "888"
    assert "888" in str(admin.describe_configs([PythonConfigResource(kind, topic)]))
    admin.close()


def test_aiokafka_alters_and_describes(servers: str, topic: str) -> None:
    async def scenario() -> str:
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        try:
            kind = AioConfigResourceType.TOPIC
            resource = AioConfigResource(kind, topic, configs={"retention.ms": "999"})
            await admin.alter_configs([resource])
            return str(await admin.describe_configs([AioConfigResource(kind, topic)]))
        finally:
            await admin.close()

    assert "999" in asyncio.run(scenario())


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_version_describes(servers: str, topic: str, version: int) -> None:
    result = describe(
        servers, TOPIC, topic, version, include_synonyms=True, include_documentation=True
    )
    shown = {config.name: config for config in result.configs}
    entry = shown["retention.ms"]
    assert (entry.value, entry.config_source, entry.read_only) == ("604800000", 5, False)
    assert [synonym.name for synonym in entry.synonyms] == ["log.retention.hours"]
    if version >= 3:
        assert entry.config_type == 5
        assert entry.documentation == (
            "Segments whose newest record is older are deleted; -1 keeps all."
        )
    all_of_them = describe(servers, TOPIC, topic, version, keys=[]).configs
    assert len(all_of_them) == len(shown)


def test_resources_that_are_not_there(servers: str) -> None:
    codes = [
        ErrorCode(describe(servers, kind, name).error_code)
        for kind, name in [
            (TOPIC, "no-such-topic"),
            (TOPIC, "no/topic"),
            (BROKER, "99"),
            (BROKER, "first"),
            (77, "x"),
        ]
    ]
    assert codes == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]


@pytest.mark.parametrize("version", [0, 1])
def test_a_request_that_contradicts_itself_is_refused_where_it_does(
    servers: str, topic: str, version: int
) -> None:
    good = ("retention.ms", 0, "5")
    answers = alter(
        servers,
        changes(TOPIC, topic, good, ("retention.ms", 1, None)),
        changes(TOPIC, "twice", good),
        changes(TOPIC, "twice", good),
        changes(BROKER, "99", ("max.connections", 0, "5")),
        changes(TOPIC, "no-such-topic", good),
        changes(64, "a-thing", good),
        version=version,
    )
    assert [code for code, _ in answers] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    ]
    refused = alter(servers, changes(TOPIC, topic, ("retention.ms", 0, None)))
    assert refused[0][0] is ErrorCode.INVALID_REQUEST
    checked = alter(servers, changes(TOPIC, topic, good), validate_only=True)
    assert checked == [(ErrorCode.NONE, None)]
    assert value_of(servers, topic, "retention.ms") == "604800000"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_version_replaces(servers: str, topic: str, version: int) -> None:
    request = AlterConfigsRequest(
        resources=[
            ReplacedResource(
                resource_type=TOPIC,
                resource_name=topic,
                configs=[ReplacedConfig(name="retention.ms", value="12")],
            )
        ]
    )
    with RawClient(servers) as client:
        (answer,) = client.call(request, AlterConfigsResponse, version).responses
    assert ErrorCode(answer.error_code) is ErrorCode.NONE
    assert value_of(servers, topic, "retention.ms") == "12"


def test_topics_and_brokers_are_listed_as_having_settings(servers: str, topic: str) -> None:
    with RawClient(servers) as client:
        everything = client.call(ListConfigResourcesRequest(), ListConfigResourcesResponse, 1)
        brokers = client.call(
            ListConfigResourcesRequest(resource_types=[BROKER]), ListConfigResourcesResponse, 1
        )
        unknown = client.call(
            ListConfigResourcesRequest(resource_types=[99]), ListConfigResourcesResponse, 1
        )
        metrics = client.call(ListConfigResourcesRequest(), ListConfigResourcesResponse, 0)
    named = {(each.resource_name, each.resource_type) for each in everything.config_resources}
    assert {(topic, TOPIC), ("1", BROKER)} <= named
    assert {each.resource_type for each in brokers.config_resources} == {BROKER}
    assert ErrorCode(unknown.error_code) is ErrorCode.UNSUPPORTED_VERSION
    assert metrics.config_resources == []


def is_taken(servers: str, topic: str, size: int) -> bool:
    seen = []
    producer = Producer({"bootstrap.servers": servers, "message.max.bytes": 10**7})
    producer.produce(topic, b"x" * size, on_delivery=lambda error, _: seen.append(error))
    assert producer.flush(10) == 0
    (error,) = seen
    return error is None


def test_a_new_limit_counts_for_the_next_record(servers: str, topic: str) -> None:
    assert is_taken(servers, topic, 5_000)
    assert alter(servers, changes(TOPIC, topic, ("max.message.bytes", 0, "1000")))[0][0] == 0
    assert not is_taken(servers, topic, 5_000)
    assert alter(servers, changes(TOPIC, topic, ("max.message.bytes", 1, None)))[0][0] == 0
    assert is_taken(servers, topic, 5_000)


def test_a_default_of_brokers_reaches_topics_that_say_nothing_of_their_own(tmp_path: Path) -> None:
    with bradbury.local(str(tmp_path), config={"message.max.bytes": "9000"}) as cluster:
        servers = cluster.bootstrap_servers
        admin = cluster.admin()
        admin.create_topic("plain")
        admin.create_topic("own", configs={"max.message.bytes": "8000"})
        assert value_of(servers, "plain", "max.message.bytes") == "9000"
        admin.alter_configs(broker="all", changes={"message.max.bytes": 1000})
        assert not is_taken(servers, "plain", 5_000)
        assert is_taken(servers, "own", 5_000)
        found = describe(servers, TOPIC, "plain", keys=["max.message.bytes"]).configs[0]
        assert (found.value, found.config_source) == ("1000", 3)
        admin.close()
    with bradbury.local(str(tmp_path), config={"message.max.bytes": "9000"}) as cluster:
        servers = cluster.bootstrap_servers
        assert value_of(servers, "plain", "max.message.bytes") == "1000"
        assert value_of(servers, "own", "max.message.bytes") == "8000"
        assert not is_taken(servers, "plain", 5_000)
        admin = cluster.admin()
        admin.alter_configs(broker="all", unset=["message.max.bytes"])
        assert value_of(servers, "plain", "max.message.bytes") == "9000"
        assert is_taken(servers, "plain", 5_000)
        admin.close()


def test_a_limit_of_connections_is_changed_while_the_broker_runs() -> None:
    with bradbury.local() as cluster:
        admin = cluster.admin()
        held = [RawClient(cluster.bootstrap_servers) for _ in range(3)]
        admin.alter_configs(broker="all", changes={"max.connections": 2})
        with RawClient(cluster.bootstrap_servers) as refused:
            assert refused.is_closed_by_peer()
        admin.alter_configs(broker="all", unset=["max.connections"])
        with RawClient(cluster.bootstrap_servers) as client:
            client.call(ListConfigResourcesRequest(), ListConfigResourcesResponse, 1)
        for client in held:
            client.socket.close()
        admin.close()


def test_each_of_several_nodes_has_its_own_settings() -> None:
    with bradbury.local(nodes=2) as cluster:
        admin = cluster.admin()
        first, second = (broker.node_id for broker in admin.describe_cluster().brokers)
        admin.alter_configs(broker="all", changes={"log.segment.bytes": 1000})
        admin.alter_configs(broker=second, changes={"log.segment.bytes": 2000})
        values = [
            admin.describe_configs(broker=node)["log.segment.bytes"].value
            for node in (first, second)
        ]
        assert values == ["1000", "2000"]
        admin.close()
