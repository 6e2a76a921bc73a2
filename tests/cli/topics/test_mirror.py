"""`bradbury mirror` as people and scripts run it."""

import json
import signal
from collections.abc import Iterator

import pytest

import bradbury
from bradbury.tests.support.command_line import Command, command_under_way


@pytest.fixture(autouse=True)
def servers(
    bradbury_cluster: bradbury.LocalCluster,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    monkeypatch.setenv("BRADBURY_BOOTSTRAP", bradbury_cluster.bootstrap_servers)
    environment["BRADBURY_BOOTSTRAP"] = bradbury_cluster.bootstrap_servers
    return bradbury_cluster.bootstrap_servers


@pytest.fixture(scope="module")
def source() -> Iterator[bradbury.LocalCluster]:
    with bradbury.local() as running:
        yield running


@pytest.fixture
def topic(source: bradbury.LocalCluster, bradbury_topic: str) -> str:
    with source.admin() as admin, bradbury.Producer(source.bootstrap_servers) as producer:
        admin.create_topic(bradbury_topic, 2)
        for number in range(10):
            producer.send(bradbury_topic, value=b"%d" % number)
    return bradbury_topic


def test_it_says_what_it_has_done_and_adds_what_is_new(
    process: Command, command: Command, source: bradbury.LocalCluster, topic: str
) -> None:
    line = ("mirror", topic, "--from", source.bootstrap_servers, "--alias", "west")
    assert "10 records of 1 topic in" in process(*line).err
    with bradbury.Producer(source.bootstrap_servers) as producer, source.admin() as admin:
        producer.send(topic, value=b"10", partition=0).result(60)
        admin.alter_group_offsets("billing", {(topic, 0): 0})
    line = (*line, "--groups", "bill.*", "--at-least-once")
    done = json.loads(command(*line, "--json").out)
    assert (done["topics"], done["records"], done["behind"]) == (1, 1, 0)
    assert f"west.{topic}" in command("topics", "list").out
    assert f"west.{topic}" in command("groups", "describe", "billing").out


def test_what_cannot_be_is_said_in_one_line(
    command: Command, source: bradbury.LocalCluster, servers: str, topic: str
) -> None:
    line = ("mirror", topic, "--from", source.bootstrap_servers)
    assert "--alias" in command(*line).usage
    assert "alias is 'a.b'" in command(*line, "--alias", "a.b").usage
    absent = command("mirror", "nowhere", "--from", source.bootstrap_servers, "--alias", "east")
    assert absent.error.startswith(f"no topic of {source.bootstrap_servers} matches")
    away = command("mirror", topic, "--from", "127.0.0.1:1", "--alias", "east").error
    assert away.startswith("the source cluster: no broker of 127.0.0.1:1 answers")
    assert "bradbury status" not in away  # which knows of the cluster here
    command(*line, "--alias", "north", "--policy", "identity")
    back = ("mirror", topic, "--from", servers, "--bootstrap", source.bootstrap_servers)
    assert "cycle" in command(*back, "--alias", "south", "--policy", "identity").error


def test_what_is_left_out_is_said_and_what_would_stay_behind_is_refused(
    command: Command, source: bradbury.LocalCluster, servers: str, topic: str
) -> None:
    keep = ("--policy", "identity")
    command("mirror", topic, "--from", source.bootstrap_servers, "--alias", "there", *keep)
    with bradbury.Admin(servers) as admin:
        admin.create_topic(f"{topic}-own", 1)
    back = ("mirror", f"{topic}.*", "--from", servers, "--bootstrap", source.bootstrap_servers)
    back = (*back, "--alias", "back", *keep)
    assert f"left out, since a mirror fills it from here: {topic}\n" in command(*back).err
    assert json.loads(command(*back, "--json").out)["left_out"] == [topic]
    with bradbury.Producer(servers) as producer:
        producer.send(topic, value=b"own", partition=0).result(60)
    refused = command(*back).error  # exit code 1
    assert refused.startswith(f"topic '{topic}' of {servers} cannot go to")
    assert "use the policy prefix, in both mirrors" in refused


def test_interrupted_it_ends_after_a_transaction(
    environment: dict[str, str], source: bradbury.LocalCluster, topic: str
) -> None:
    line = ["mirror", topic, "--from", source.bootstrap_servers, "--alias", "on", "--continuous"]
    with command_under_way(line, environment) as (running, said):
        assert "copied:" in said.readline()
        running.send_signal(signal.SIGINT)
        assert "of 1 topic in" in said.read()
    assert running.returncode == 0
