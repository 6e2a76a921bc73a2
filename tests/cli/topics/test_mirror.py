"""`bradbury mirror` as people and scripts run it."""

import json
import signal
from collections.abc import Iterator

import pytest

import bradbury
from bradbury.tests.support.command_line import Command, command_under_way
from bradbury.tests.support.ray.ray_nodes import wait_for


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
            producer.send(bradbury_topic, value=b"%d" % number, partition=number % 2)
    return bradbury_topic


def test_it_says_what_it_has_done_and_adds_what_is_new(
    process: Command, command: Command, source: bradbury.LocalCluster, topic: str
) -> None:
    line = ("mirror", topic, "--from", source.bootstrap_servers, "--alias", "west")
    assert "copied 10 records of 1 topic in" in process(*line).err
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
        assert "copied 10 records of 1 topic in" in said.read()
    assert running.returncode == 0


def test_interrupted_where_nothing_is_new_it_says_how_many_topics_it_follows(
    command: Command, environment: dict[str, str], source: bradbury.LocalCluster, topic: str
) -> None:
    line = ["mirror", topic, "--from", source.bootstrap_servers, "--alias", "still"]
    command(*line)
    line += ["--continuous", "--groups", "still-.*", "--sync-groups-interval", "0.1"]
    with source.admin() as admin:
        admin.alter_group_offsets("still-here", {(topic, 0): 0})
    with command_under_way(line, environment) as (running, said):
        with bradbury.Admin(environment["BRADBURY_BOOTSTRAP"]) as here:  # a sync: it is under way
            wait_for(lambda: bool(here.group_offsets("still-here")), 60, "no group is synced")
        running.send_signal(signal.SIGINT)
        assert "copied 0 records of 1 topic in" in said.read()
    assert running.returncode == 0


def test_a_topic_that_is_not_there_yet_is_said(
    environment: dict[str, str], source: bradbury.LocalCluster
) -> None:
    line = ["mirror", "later", "--from", source.bootstrap_servers, "--alias", "yet", "--continuous"]
    with command_under_way(line, environment) as (running, said):
        with bradbury.Admin(environment["BRADBURY_BOOTSTRAP"]) as here:
            positions = "mirror-offsets.yet.internal"
            wait_for(lambda: positions in here.list_topics(include_internal=True), 60)
        running.send_signal(signal.SIGINT)
        assert "no topic to copy was found yet" in said.read()
    assert running.returncode == 0
