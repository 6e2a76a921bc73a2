"""bradbury dirs: against a real cluster."""

import json

import pytest

import bradbury
from bradbury import LocalCluster
from bradbury.tests.support.command_line import Command


@pytest.fixture(autouse=True)
def bootstrap(bradbury_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("BRADBURY_BOOTSTRAP", bradbury_cluster.bootstrap_servers)
    return bradbury_cluster.bootstrap_servers


@pytest.fixture
def topic(bootstrap: str, command: Command, bradbury_topic: str) -> str:
    """Two partitions, with records in the first."""
    command("topics", "create", bradbury_topic, "-p", "2")
    with bradbury.Producer(bootstrap) as producer:
        producer.send(bradbury_topic, b"x" * 100, partition=0).result()
    return bradbury_topic


def test_a_directory_has_the_sizes_of_its_partitions(
    command: Command, topic: str, bradbury_cluster: LocalCluster
) -> None:
    (found,) = json.loads(command("dirs", "--topic", topic, "--json").out)
    assert found["path"].startswith(bradbury_cluster.data_dir)
    assert found["state"] == "online"
    assert found["total_bytes"] >= found["usable_bytes"] > 0
    sizes = {one["partition"]: one["size"] for one in found["partitions"]}
    assert sizes[1] == 0
    assert sizes[0] > 0
    shown = command("dirs", "--partitions").out
    assert topic in shown
    assert "online" in shown


def test_an_unknown_broker_or_topic_is_an_error(command: Command) -> None:
    assert "no live broker 99" in command("dirs", "--broker", "99").error
    assert "does not exist" in command("dirs", "--topic", "absent").error
