"""Every API and version with no right, with each right missing, with all, by a prefix, and denied.

Requests go through the dispatcher of a running node as principals of our choice. Which rights Kafka
wants is written down here once more, from KafkaApis.scala and ControllerApis.scala of 4.1: neither
the declarations of our APIs nor their document are looked at, but compared at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import pytest

import bradbury
from bradbury.actors.node import Node
from bradbury.cluster.control.topic_control import CreateTopics, TopicToCreate
from bradbury.handlers.ports.client_session import INTERNAL_SESSION, ClientSession
from bradbury.handlers.server.access_document import PATH, document
from bradbury.handlers.server.table import APIS
from bradbury.launch.local import LocalCluster
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.principal import Principal
from bradbury.protocol.schema import Message
from bradbury.protocol.security.acl_binding import (
    AclBinding,
    AclOperation as Operation,
    AclPermission,
    PatternType,
    ResourceType,
)
from tests.live.security.access_scene import AUTHORIZER, asked, errors, set_rules, trace
from tests.support.wire.sample_requests import Sample, sample_request

ALICE = ClientSession("10.0.0.1", principal=Principal("User", "alice"))
ROOT = ClientSession("10.0.0.1", principal=Principal("User", "root"))
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
CODES = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}

Right = tuple[Operation, ResourceType]
O = Operation  # noqa: E741 -- a table of them follows
NEEDED: dict[str, list[list[Right]]] = {
    # Any one of the lists, and of it all.
    "Produce": [[(O.WRITE, TOPIC)]],
    "Fetch": [[(O.READ, TOPIC)]],
    "ListOffsets": [[(O.DESCRIBE, TOPIC)]],
    "Metadata": [[(O.DESCRIBE, TOPIC)]],
    "OffsetCommit": [[(O.READ, GROUP), (O.READ, TOPIC)]],
    "OffsetFetch": [[(O.DESCRIBE, GROUP), (O.DESCRIBE, TOPIC)]],
    "FindCoordinator": [[(O.DESCRIBE, GROUP)]],
    "JoinGroup": [[(O.READ, GROUP)]],
    "Heartbeat": [[(O.READ, GROUP)]],
    "LeaveGroup": [[(O.READ, GROUP)]],
    "SyncGroup": [[(O.READ, GROUP)]],
    "DescribeGroups": [[(O.DESCRIBE, GROUP)]],
    "CreateTopics": [[(O.CREATE, CLUSTER)], [(O.CREATE, TOPIC)]],
    "DeleteTopics": [[(O.DELETE, CLUSTER)], [(O.DELETE, TOPIC)]],
    "DeleteRecords": [[(O.DELETE, TOPIC)]],
    "InitProducerId": [[(O.IDEMPOTENT_WRITE, CLUSTER)], [(O.WRITE, TOPIC)]],
    "OffsetForLeaderEpoch": [[(O.DESCRIBE, TOPIC)], [(O.CLUSTER_ACTION, CLUSTER)]],
    "AddPartitionsToTxn": [[(O.WRITE, TRANSACTIONAL_ID), (O.WRITE, TOPIC)]],
    "AddOffsetsToTxn": [[(O.WRITE, TRANSACTIONAL_ID), (O.READ, GROUP)]],
    "EndTxn": [[(O.WRITE, TRANSACTIONAL_ID)]],
    "WriteTxnMarkers": [[(O.ALTER, CLUSTER)], [(O.CLUSTER_ACTION, CLUSTER)]],
    "TxnOffsetCommit": [[(O.WRITE, TRANSACTIONAL_ID), (O.READ, GROUP), (O.READ, TOPIC)]],
    "DescribeAcls": [[(O.DESCRIBE, CLUSTER)]],
    "CreateAcls": [[(O.ALTER, CLUSTER)]],
    "DescribeUserScramCredentials": [[(O.DESCRIBE, CLUSTER)]],
    "AlterUserScramCredentials": [[(O.ALTER, CLUSTER)]],
    "DeleteAcls": [[(O.ALTER, CLUSTER)]],
    "DescribeConfigs": [[(O.DESCRIBE_CONFIGS, TOPIC), (O.DESCRIBE_CONFIGS, CLUSTER)]],
    "AlterConfigs": [[(O.ALTER_CONFIGS, TOPIC)]],
    "IncrementalAlterConfigs": [[(O.ALTER_CONFIGS, TOPIC)]],
    "AlterReplicaLogDirs": [[(O.ALTER, CLUSTER)]],
    "DescribeLogDirs": [[(O.DESCRIBE, CLUSTER)]],
    "CreatePartitions": [[(O.ALTER, TOPIC)]],
    "DeleteGroups": [[(O.DELETE, GROUP)]],
    "ElectLeaders": [[(O.ALTER, CLUSTER)]],
    "AlterPartitionReassignments": [[(O.ALTER, CLUSTER)]],
    "ListPartitionReassignments": [[(O.DESCRIBE, CLUSTER)]],
    "OffsetDelete": [[(O.DELETE, GROUP), (O.READ, TOPIC)]],
    "DescribeQuorum": [[(O.DESCRIBE, CLUSTER)]],
    "UpdateFeatures": [[(O.ALTER, CLUSTER)]],
    "DescribeProducers": [[(O.READ, TOPIC)]],
    "UnregisterBroker": [[(O.ALTER, CLUSTER)]],
    "DescribeTransactions": [[(O.DESCRIBE, TRANSACTIONAL_ID)]],
    "ListConfigResources": [[(O.DESCRIBE_CONFIGS, CLUSTER)]],
    "DescribeTopicPartitions": [[(O.DESCRIBE, TOPIC)]],
    "DescribeClientQuotas": [[(O.DESCRIBE_CONFIGS, CLUSTER)]],
    "AlterClientQuotas": [[(O.ALTER_CONFIGS, CLUSTER)]],
    "AddRaftVoter": [[(O.ALTER, CLUSTER)]],
    "RemoveRaftVoter": [[(O.ALTER, CLUSTER)]],
}
BETWEEN_BROKERS = {("AddPartitionsToTxn", 4): [[(O.CLUSTER_ACTION, CLUSTER)]]}
"""From that version on."""
REFUSED_AS = {
    "CreateTopics": TOPIC,
    "DeleteTopics": TOPIC,
    "InitProducerId": CLUSTER,
    "OffsetForLeaderEpoch": TOPIC,
}
"""Where there are several ways."""
WITHOUT_AN_ERROR = {("DescribeLogDirs", 1), ("DescribeLogDirs", 2)}
"""These versions have no place for it: the answer is empty."""
FOR_EVERYBODY = {
    *("ApiVersions", "SaslHandshake", "SaslAuthenticate"),
    *("RenewDelegationToken", "ExpireDelegationToken"),
}
HIDING: dict[str, set[Right]] = {
    "ListGroups": {(O.DESCRIBE, CLUSTER), (O.DESCRIBE, GROUP)},
    "ListTransactions": {(O.DESCRIBE, TRANSACTIONAL_ID)},
    "DescribeCluster": {(O.DESCRIBE, CLUSTER)},
    "DescribeDelegationToken": {
        (O.DESCRIBE, ResourceType.DELEGATION_TOKEN),
        (O.DESCRIBE_TOKENS, ResourceType.USER),
    },
    # One's own are everybody's; of others see test_delegation_tokens.
    "CreateDelegationToken": {(O.CREATE_TOKENS, ResourceType.USER)},
}
"""What is not allowed is left out of an answer without an error."""
BESIDES: dict[str, set[Right]] = {
    "Produce": {(O.WRITE, TRANSACTIONAL_ID)},
    "Fetch": {(O.CLUSTER_ACTION, CLUSTER)},
    "Metadata": {(O.CREATE, CLUSTER), (O.CREATE, TOPIC), (O.DESCRIBE, CLUSTER)},
    "FindCoordinator": {(O.DESCRIBE, TRANSACTIONAL_ID)},
    "CreateTopics": {(O.DESCRIBE_CONFIGS, TOPIC)},
    "DeleteTopics": {(O.DESCRIBE, TOPIC)},
    "InitProducerId": {(O.WRITE, TRANSACTIONAL_ID)},
    "AddPartitionsToTxn": {(O.CLUSTER_ACTION, CLUSTER)},
    "DescribeConfigs": {(O.DESCRIBE_CONFIGS, GROUP)},
    "AlterConfigs": {(O.ALTER_CONFIGS, GROUP), (O.ALTER_CONFIGS, CLUSTER)},
    "IncrementalAlterConfigs": {(O.ALTER_CONFIGS, GROUP), (O.ALTER_CONFIGS, CLUSTER)},
    "DescribeTransactions": {(O.DESCRIBE, TOPIC)},
}
"""Where a request is of another kind than the sample; shown in test_authorization."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    config = {
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:root;User:ANONYMOUS",
        "auto.create.topics.enable": "false",
    }
    with bradbury.local(config=config) as cluster:
        with cluster.admin() as admin:
            admin.create_topic("matrix", 2)
        with bradbury.Producer(cluster.bootstrap_servers) as producer:
            producer.send("matrix", b"one").result(30)
        yield cluster


@pytest.fixture(scope="module")
def sample(cluster: LocalCluster) -> Sample:
    return Sample.of(cluster.bootstrap_servers, "matrix")


# --- asking ---------------------------------------------------------------------------------------


def request_of(key: int, version: int, sample: Sample) -> Any:
    """The sample's, as one that would change something."""
    request: Any = sample_request(key, version, sample)
    match APIS[key].name:
        case "DeleteTopics":
            request.topic_names = ["victim"]
            request.topics = request.topics[:1]
            request.topics[0].name = "victim"
        case "DeleteGroups":
            request.groups_names = [sample.group]
        case "DeleteRecords":
            request.topics[0].partitions[0].offset = -1
        case "AlterConfigs" | "IncrementalAlterConfigs" | "CreatePartitions":
            request.validate_only = False
    return request


def words(message: Any) -> set[str]:
    """Every text in a request: names of whatever it is about."""
    found: set[str] = set()
    for field in fields(message):
        value = getattr(message, field.name)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, str) and each:
                found.add(each)
            elif hasattr(each, "__dataclass_fields__"):
                found |= words(each)
    return found


class Trial:
    """One API at one version, asked by alice under rules of our choice."""

    def __init__(self, cluster: LocalCluster, sample: Sample, key: int, version: int) -> None:
        self.cluster, self.node = cluster, cluster.nodes[0]
        self.sample, self.key, self.version = sample, key, version

    def rules(
        self,
        rights: list[Right],
        names: set[str],
        pattern: PatternType,
        permission: AclPermission = AclPermission.ALLOW,
    ) -> set[AclBinding]:
        if pattern == PatternType.PREFIXED:
            names = {name[:2] for name in names}
        return {
            AclBinding(resource, name, pattern, "User:alice", "*", operation, permission)
            for operation, resource in rights
            for name in (names if resource != CLUSTER else {"kafka-cluster"})
        }

    def ask(self, choose: Callable[[set[str]], set[AclBinding]]) -> set[int] | None:
        """The errors in the answer; None if there was none but a closed connection."""
        request = request_of(self.key, self.version, self.sample)
        names = words(request) | {self.sample.topic}  # which may be named by its id
        return self.cluster._call(self._ask(request, choose(names)), 60)

    async def _ask(self, request: Message, rules: set[AclBinding]) -> set[int] | None:
        await set_rules(self.node, rules)
        if "victim" not in self.node.image.topics:
            await make_topic(self.node, "victim")
        before = trace(self.node)
        answer = await asked(self.node, request, self.version, ALICE)
        found = None if answer is None else errors(answer)
        if found is None or found & set(CODES.values()):
            assert trace(self.node) == before, "a refused request has left something"
        return found


async def make_topic(node: Node, name: str) -> None:
    topic = TopicToCreate(name=name, topic_id=node.new_id(), partitions=1)
    await node.controller.change(CreateTopics(topics=(topic,)), timeout_ms=5_000)


# --- the matrix -----------------------------------------------------------------------------------


def needed(name: str, version: int) -> list[list[Right]]:
    for (api, first), rights in BETWEEN_BROKERS.items():
        if name == api and version >= first:
            return rights
    return NEEDED[name]


CASES = [
    pytest.param(api.key, version, id=f"{api.name}-{version}")
    for api in APIS.values()
    if api.name in NEEDED
    for version in sorted({api.lowest, *range(api.highest - 1, api.highest + 1)})
    if version >= api.lowest
]
REFUSALS = set(CODES.values())
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


@pytest.mark.parametrize(("key", "version"), CASES)
def test_an_api_is_refused_without_its_rights_and_answered_with_them(
    cluster: LocalCluster, sample: Sample, key: int, version: int
) -> None:
    trial = Trial(cluster, sample, key, version)
    ways = needed(APIS[key].name, version)
    name = APIS[key].name
    # For any topic: a denial of one leaves others.
    denial = PREFIXED if name == "InitProducerId" else LITERAL
    possible = {CODES[resource] for way in ways for _, resource in way}
    if name in REFUSED_AS:
        possible = {CODES[REFUSED_AS[name]]}

    found = trial.ask(lambda _: set())
    assert found is not None
    if (name, version) in WITHOUT_AN_ERROR:
        assert found <= {0}
        return
    assert found & possible
    assert found <= possible | {0, ErrorCode.OPERATION_NOT_ATTEMPTED}, "it says too much"

    for way in ways:
        for number, (_, resource) in enumerate(way):
            if len(way) > 1:
                others = way[:number] + way[number + 1 :]
                found = trial.ask(lambda names, some=others: trial.rules(some, names, LITERAL))
                assert found is not None
                assert found & REFUSALS == {CODES[resource]}
            denied = way[number : number + 1]
            found = trial.ask(
                lambda names, way=way, denied=denied: (
                    trial.rules(way, names, PREFIXED)
                    | trial.rules(denied, names, denial, AclPermission.DENY)
                )
            )
            assert found is not None
            assert found & REFUSALS, "a denial counts more than what is allowed"
        for pattern in (LITERAL, PREFIXED):
            found = trial.ask(
                lambda names, way=way, pattern=pattern: (
                    trial.rules(way, names, pattern)
                    | trial.rules([(O.DESCRIBE_CONFIGS, TOPIC)], names, pattern)
                )
            )
            assert found is not None
            assert not found & REFUSALS


def test_every_api_declares_what_kafka_wants() -> None:
    for api in APIS.values():
        assert api.access is not None, f"{api.name}: say in its API who may use it"
        declared = {(need.operation, need.resource) for need in api.access.needs}
        if api.name in FOR_EVERYBODY:
            expected: set[Right] = set()
        elif api.name in HIDING:
            expected = HIDING[api.name]
        else:
            expected = {right for way in NEEDED[api.name] for right in way}
            expected |= BESIDES.get(api.name, set())
        assert declared == expected, api.name
        for need in api.access.needs:
            if need.refusal and api.name != "Fetch":
                assert ErrorCode[need.refusal] == CODES[need.resource]


def test_the_document_is_current() -> None:
    assert PATH.read_text() == document(), "run `make generate`"


@pytest.mark.parametrize("key", [api.key for api in APIS.values()])
def test_a_super_user_and_a_node_itself_are_refused_nothing(
    cluster: LocalCluster, sample: Sample, key: int
) -> None:
    async def scene() -> None:
        await set_rules(cluster.nodes[0], set())
        for session in (ROOT, INTERNAL_SESSION):
            request = request_of(key, APIS[key].highest, sample)
            answer = await asked(cluster.nodes[0], request, APIS[key].highest, session)
            assert answer is None or not errors(answer) & REFUSALS

    cluster._call(scene(), 60)


def test_an_api_that_says_nothing_is_nobody_s(
    cluster: LocalCluster, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    monkeypatch.setitem(APIS, 3, replace(APIS[3], access=None))
    request = request_of(3, 12, sample)
    assert cluster._call(asked(cluster.nodes[0], request, 12, ALICE), 30) is None
    answer = cluster._call(asked(cluster.nodes[0], request, 12, ROOT), 30)
    assert answer is None
