"""kafka-acls.sh of Apache Kafka on a Bradbury cluster with an authorizer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

import bradbury
from bradbury import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from bradbury.tests.compatibility.support.compatibility import Ran, Tool

pytestmark = [pytest.mark.slow, pytest.mark.java]

ACLS = "org.apache.kafka.tools.AclCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
Acls = Callable[..., str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[bradbury.LocalCluster]:
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with bradbury.local(config=config) as cluster:
        yield cluster


@pytest.fixture
def acls(java: Callable[..., Ran], cluster: bradbury.LocalCluster) -> Acls:
    """Run the tool; it must end well. Its output."""

    def call(*arguments: str) -> str:
        ran = java(ACLS, "--bootstrap-server", cluster.bootstrap_servers, *arguments)
        assert ran.code == 0, f"{ran.code}\n{ran.out}\n{ran.err}"
        return ran.out

    return call


def rules(cluster: bradbury.LocalCluster) -> set[AclBinding]:
    with cluster.admin() as admin:
        return set(admin.describe_acls())


def allow(
    resource: ResourceType,
    name: str,
    operation: AclOperation,
    pattern: PatternType = PatternType.LITERAL,
) -> AclBinding:
    return AclBinding(resource, name, pattern, "User:alice", "*", operation, AclPermission.ALLOW)


def test_rules_are_added_listed_and_removed(
    acls: Acls, cluster: bradbury.LocalCluster, kafka_tools: Tool
) -> None:
    topic, group = ResourceType.TOPIC, ResourceType.GROUP
    alice = ("--allow-principal", "User:alice")
    with kafka_tools.call("kafka-acls --add --producer --consumer (authorizer)"):
        acls("--add", *alice, "--producer", "--consumer", "--topic", "fli", "--group", "g",
             "--resource-pattern-type", "prefixed", "--transactional-id", "x")  # fmt: skip
        prefixed = PatternType.PREFIXED
        expected = {
            allow(topic, "fli", operation, prefixed)
            for operation in (
                AclOperation.WRITE,
                AclOperation.DESCRIBE,
                AclOperation.CREATE,
                AclOperation.READ,
            )
        }
        expected |= {
            allow(ResourceType.TRANSACTIONAL_ID, "x", operation, prefixed)
            for operation in (AclOperation.WRITE, AclOperation.DESCRIBE)
        }
        expected.add(allow(group, "g", AclOperation.READ, prefixed))
        assert rules(cluster) == expected
    with kafka_tools.call("kafka-acls --add --deny-principal --cluster (authorizer)"):
        acls("--add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1",
             "--operation", "AlterConfigs", "--cluster")  # fmt: skip
        denied = AclBinding(
            ResourceType.CLUSTER,
            "kafka-cluster",
            PatternType.LITERAL,
            "User:bob",
            "10.0.0.1",
            AclOperation.ALTER_CONFIGS,
            AclPermission.DENY,
        )
        assert denied in rules(cluster)
    with kafka_tools.call("kafka-acls --list (authorizer)"):
        listed = acls("--list")
        assert len(re.findall(r"principal=User:alice", listed)) == len(expected)
        assert "principal=User:bob, host=10.0.0.1, operation=ALTER_CONFIGS" in listed
        matched = acls("--list", "--topic", "flights", "--resource-pattern-type", "match")
        assert len(re.findall(r"principal=User:alice", matched)) == 4
        assert "User:bob" not in matched
        assert "principal" not in acls("--list", "--topic", "flights")
    with kafka_tools.call("kafka-acls --remove --force (authorizer)"):
        acls("--remove", "--force", "--topic", "fli", "--resource-pattern-type", "prefixed")
        assert rules(cluster) == {each for each in expected if each.resource_type != topic} | {
            denied
        }


def test_a_rule_that_cannot_be_is_refused_as_kafka_refuses_it(
    java: Callable[..., Ran], cluster: bradbury.LocalCluster, kafka_tools: Tool
) -> None:
    servers = cluster.bootstrap_servers
    before = rules(cluster)
    with kafka_tools.call("kafka-acls: errors (authorizer)"):
        ran = java(
            ACLS, "--bootstrap-server", servers, "--add", "--allow-principal", "User:alice",
            "--operation", "Fly", "--topic", "t",
        )  # fmt: skip
        assert ran.code == 1
        assert rules(cluster) == before
    with kafka_tools.call("kafka-topics --describe: authorized operations (authorizer)"):
        with cluster.admin() as admin:
            admin.create_topic("described")
        ran = java(TOPICS, "--bootstrap-server", servers, "--describe", "--topic", "described")
        assert "Topic: described" in ran.out, ran.err
