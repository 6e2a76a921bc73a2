"""Settings of groups, of subscriptions to clients' metrics, and the levels of a node's loggers."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import bradbury
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.messages.alter_configs import (
    AlterableConfig as PlainConfig,
    AlterConfigsRequest,
    AlterConfigsResource as PlainResource,
    AlterConfigsResponse,
)
from bradbury.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
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
from bradbury.tests.support.wire.raw_client import RawClient

BROKER_LOGGER, CLIENT_METRICS, GROUP = 8, 16, 32
SET, DELETE, APPEND = range(3)
TIMEOUT = "consumer.session.timeout.ms"


def alter(
    client: RawClient, kind: int, name: str, *changes: tuple[str, int, str | None], **options: bool
) -> int:
    resource = AlterConfigsResource(kind, name, [AlterableConfig(*change) for change in changes])
    request = IncrementalAlterConfigsRequest(resources=[resource], **options)
    [reported] = client.call(request, IncrementalAlterConfigsResponse, 1).responses
    return reported.error_code


def described(
    client: RawClient, kind: int, name: str
) -> tuple[int, dict[str, DescribeConfigsResourceResult]]:
    resource = DescribeConfigsResource(kind, name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    [reported] = client.call(request, DescribeConfigsResponse, 4).results
    return reported.error_code, {each.name: each for each in reported.configs}


def values(client: RawClient, kind: int, name: str) -> dict[str, tuple[str | None, int]]:
    return {
        key: (each.value, each.config_source)
        for key, each in described(client, kind, name)[1].items()
    }


def listed(client: RawClient, *kinds: int, version: int = 1) -> set[tuple[int, str]]:
    request = ListConfigResourcesRequest(resource_types=list(kinds))
    reported = client.call(request, ListConfigResourcesResponse, version)
    return {(each.resource_type, each.resource_name) for each in reported.config_resources}


def test_a_group_has_settings_of_its_own_which_survive_a_restart(tmp_path: Path) -> None:
    with (
        bradbury.local(data_dir=str(tmp_path)) as cluster,
        RawClient(cluster.bootstrap_servers) as client,
    ):
        before = values(client, GROUP, "g")
        assert len(before) == 10
        assert before[TIMEOUT] == ("45000", 5)
        assert listed(client, GROUP) == set()
        assert alter(client, GROUP, "g", (TIMEOUT, SET, "50000")) == 0
        for wrong in ((TIMEOUT, SET, "1"), ("no.such", SET, "1"), (TIMEOUT, APPEND, "1")):
            assert alter(client, GROUP, "g", wrong) == ErrorCode.INVALID_CONFIG
        assert alter(client, GROUP, "", (TIMEOUT, SET, "50000")) == ErrorCode.INVALID_REQUEST
        assert described(client, GROUP, "")[0] == ErrorCode.INVALID_REQUEST
    with (
        bradbury.local(data_dir=str(tmp_path)) as cluster,
        RawClient(cluster.bootstrap_servers) as client,
    ):
        assert listed(client, GROUP) == {(GROUP, "g")}
        _, found = described(client, GROUP, "g")
        synonyms = [(each.value, each.source) for each in found[TIMEOUT].synonyms]
        assert synonyms == [("50000", 8)]
        assert alter(client, GROUP, "g", (TIMEOUT, DELETE, None)) == 0
        assert values(client, GROUP, "g") == before
        assert listed(client, GROUP) == set()


@pytest.fixture(scope="module")
def cluster() -> Iterator[bradbury.LocalCluster]:
    with bradbury.local() as cluster:
        yield cluster


@pytest.fixture
def client(cluster: bradbury.LocalCluster) -> Iterator[RawClient]:
    with RawClient(cluster.bootstrap_servers) as client:
        yield client


def test_a_subscription_to_metrics_of_clients_is_kept_and_listed(client: RawClient) -> None:
    name = "every-java-client"
    before = {"interval.ms": ("300000", 5), "match": ("", 5), "metrics": ("", 5)}
    assert values(client, CLIENT_METRICS, name) == before
    changes = [
        ("interval.ms", SET, "60000"),
        ("metrics", SET, "org.apache.kafka.consumer.,org.apache.kafka.producer."),
        ("match", SET, "client_software_name=apache-kafka-java, client_id=a.*"),
    ]
    assert alter(client, CLIENT_METRICS, name, *changes) == 0
    assert values(client, CLIENT_METRICS, name) == {
        "interval.ms": ("60000", 7),
        "metrics": (changes[1][2], 7),
        "match": (changes[2][2], 7),
    }
    for change, code in (
        (("interval.ms", SET, "99"), ErrorCode.INVALID_REQUEST),
        (("interval.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (("no.such", SET, "1"), ErrorCode.INVALID_REQUEST),
        (("metrics", APPEND, "a"), ErrorCode.INVALID_CONFIG),
        (("match", SET, "client_shoe_size=43"), ErrorCode.INVALID_CONFIG),
        (("match", SET, "client_id=("), ErrorCode.INVALID_CONFIG),
    ):
        assert alter(client, CLIENT_METRICS, name, change) == code
    assert listed(client, CLIENT_METRICS) == {(CLIENT_METRICS, name)}
    assert {found for _, found in listed(client, version=0)} == {name}
    for change in changes:
        assert alter(client, CLIENT_METRICS, name, (change[0], DELETE, None)) == 0
    assert listed(client, CLIENT_METRICS) == set()


def test_loggers_of_a_node_are_shown_and_their_levels_changed(
    cluster: bradbury.LocalCluster, client: RawClient
) -> None:
    node = str(cluster.nodes[0].node_id)
    assert (BROKER_LOGGER, node) in listed(client, BROKER_LOGGER)
    logger = logging.getLogger("bradbury.actors.node")
    assert values(client, BROKER_LOGGER, node)["root"][1] == 6
    try:
        for word, level in (("TRACE", 5), ("DEBUG", 10), ("ERROR", 40), ("FATAL", 50)):
            assert alter(client, BROKER_LOGGER, node, ("bradbury.actors.node", SET, word)) == 0
            assert logger.level == level
            assert values(client, BROKER_LOGGER, node)["bradbury.actors.node"] == (word, 6)
        tried = alter(
            client, BROKER_LOGGER, node, ("bradbury.actors.node", SET, "INFO"), validate_only=True
        )
        assert (tried, logger.level) == (0, 50)
        for change, code in (
            (("no.such.logger", SET, "INFO"), ErrorCode.INVALID_CONFIG),
            (("bradbury.actors.node", SET, "LOUD"), ErrorCode.INVALID_CONFIG),
            (("bradbury.actors.node", APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
            (("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        ):
            assert alter(client, BROKER_LOGGER, node, change) == code
        assert (
            alter(client, BROKER_LOGGER, "77", ("root", SET, "INFO")) == ErrorCode.INVALID_REQUEST
        )
        plain = PlainResource(BROKER_LOGGER, node, [PlainConfig("bradbury.actors.node", "INFO")])
        request = AlterConfigsRequest(resources=[plain])
        [reported] = client.call(request, AlterConfigsResponse, 2).responses
        assert reported.error_code == ErrorCode.INVALID_REQUEST
        assert logger.level == 50
        assert alter(client, BROKER_LOGGER, node, ("bradbury.actors.node", DELETE, None)) == 0
        assert logger.level == logging.NOTSET
    finally:
        logger.setLevel(logging.NOTSET)


def test_an_unknown_kind_of_resource_refuses_the_whole_question(client: RawClient) -> None:
    resources = [DescribeConfigsResource(kind, "", None) for kind in (4, 77)]
    request = DescribeConfigsRequest(resources=resources)
    reported = client.call(request, DescribeConfigsResponse, 4).results
    assert [each.error_code for each in reported] == [ErrorCode.INVALID_REQUEST] * 2
