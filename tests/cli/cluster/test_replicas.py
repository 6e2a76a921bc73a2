"""bradbury replicas: against a cluster of three nodes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import bradbury
from bradbury.tests.support.command_line import Command
from bradbury.tests.support.ray.three_nodes import until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[bradbury.LocalCluster]:
    disks = [str(tmp_path_factory.mktemp(name)) for name in ("one", "two")]
    with bradbury.local(disks, nodes=3) as running:
        yield running


@pytest.fixture(autouse=True)
def bootstrap(cluster: bradbury.LocalCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("BRADBURY_BOOTSTRAP", cluster.bootstrap_servers)
    return cluster.bootstrap_servers


@pytest.fixture
def topic(bradbury_topic: str, command: Command) -> str:
    assert command("topics", "create", bradbury_topic).code == 0
    return bradbury_topic


@pytest.fixture
def nodes(cluster: bradbury.LocalCluster) -> list[int]:
    return [node.node_id for node in cluster.nodes]


def test_a_partition_is_on_the_nodes_that_were_said(
    command: Command, topic: str, nodes: list[int]
) -> None:
    one, two, three = nodes
    done = command("replicas", "assign", topic, "0", f"{three},{one},{two}")
    assert (done.code, done.err) == (0, f"{topic}-0 is on {three},{one},{two}\n")
    shown = json.loads(command("topics", "describe", topic, "--json").out)
    assert sorted(shown["partitions"][0]["isr"]) == sorted(nodes)
    assert command("replicas", "assign", topic, "0", str(two), "--no-wait").code == 0
    assert command("replicas", "assign", topic, "0", str(one)).code == 0
    assert json.loads(command("replicas", "list", "--json").out) == []
    assert "no reassignment is in progress" in command("replicas", "list").err


def test_invalid_arguments_are_refused_with_the_remedy(command: Command, topic: str) -> None:
    assert "does not exist" in command("replicas", "assign", "absent", "0", "1").error
    assert "has partitions 0 to 0, not 7" in command("replicas", "assign", topic, "7", "1").error
    assert "are not node ids" in command("replicas", "assign", topic, "0", "one").usage
    assert "bradbury status" in command("replicas", "assign", topic, "0", "1,99").error
    assert "no reassignment in progress" in command("replicas", "cancel", topic, "0").error
    assert "give the TOPIC" in command("replicas", "elect", "--unclean").usage


def test_leaders_are_elected_where_it_is_due(command: Command, topic: str) -> None:
    assert "has its preferred leader" in command("replicas", "elect", topic).err
    assert json.loads(command("replicas", "elect", topic, "--json").out) == []


def test_a_replica_moves_to_the_other_disk(
    command: Command, topic: str, nodes: list[int], tmp_path: Path
) -> None:
    assert command("replicas", "assign", topic, "0", str(nodes[0])).code == 0

    def directories() -> dict[str, list[str]]:
        found = json.loads(command("dirs", "--broker", str(nodes[0]), "-t", topic, "--json").out)
        return {one["path"]: [part["topic"] for part in one["partitions"]] for one in found}

    before = directories()
    (empty,) = [path for path, topics in before.items() if not topics]
    assert command("replicas", "move-dir", topic, "0", str(nodes[0]), empty).code == 0
    until(lambda: directories()[empty] and sum(map(len, directories().values())) == 1)
    absent = command("replicas", "move-dir", topic, "0", str(nodes[0]), str(tmp_path))
    assert f"has no log directory {tmp_path}; `bradbury dirs --broker" in absent.error
