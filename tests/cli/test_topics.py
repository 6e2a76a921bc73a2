"""bradbury topics: against a real cluster."""

import json

import pytest

from bradbury import LocalCluster
from bradbury.tests.support.command_line import Command


@pytest.fixture(autouse=True)
def bootstrap(bradbury_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRADBURY_BOOTSTRAP", bradbury_cluster.bootstrap_servers)


def test_a_topic_that_was_created_is_listed_and_described(
    command: Command, bradbury_topic: str
) -> None:
    created = command(
        "topics", "create", bradbury_topic, "-p", "3", "-c", "retention.ms=1000", "--json"
    )
    assert json.loads(created.out)["partitions"] == 3
    assert bradbury_topic in command("topics", "list").out
    listed = {
        topic["topic"]: topic for topic in json.loads(command("topics", "list", "--json").out)
    }
    assert listed[bradbury_topic]["partitions"] == 3
    described = json.loads(command("topics", "describe", bradbury_topic, "--json").out)
    assert [one["partition"] for one in described["partitions"]] == [0, 1, 2]
    assert all(one["log_end_offset"] == 0 and one["address"] for one in described["partitions"])
    own = {one["name"]: one["value"] for one in described["configs"] if one["source"] == "topic"}
    assert own == {"retention.ms": "1000"}
    shown = command("topics", "describe", bradbury_topic).out
    assert "retention.ms" in shown
    assert described["topic_id"] in shown


def test_a_deleted_topic_is_gone(command: Command, bradbury_topic: str) -> None:
    command("topics", "create", bradbury_topic)
    assert command("topics", "delete", bradbury_topic, "--yes").code == 0
    assert bradbury_topic not in command("topics", "list").out


def test_without_topics_the_list_says_what_to_do(command: Command) -> None:
    import bradbury

    with bradbury.local() as empty:
        outcome = command("topics", "list", "-b", empty.bootstrap_servers)
        assert "topics create" in outcome.err
        assert (
            json.loads(command("topics", "list", "--json", "-b", empty.bootstrap_servers).out) == []
        )


def test_a_duplicate_topic_names_the_way_on_and_keeps_what_is_there(
    command: Command, bradbury_topic: str
) -> None:
    command("topics", "create", bradbury_topic, "-p", "2")
    error = command("topics", "create", bradbury_topic, "-p", "5").error
    assert "already exists" in error
    assert f"bradbury topics describe {bradbury_topic}" in error
    described = json.loads(command("topics", "describe", bradbury_topic, "--json").out)
    assert described["partitions"].__len__() == 2


@pytest.mark.parametrize("verb", ["describe", "delete"])
def test_an_unknown_topic_names_the_way_on(command: Command, verb: str) -> None:
    error = command("topics", verb, "unknown", *(["--yes"] if verb == "delete" else [])).error
    assert "topic 'unknown' does not exist" in error
    assert "bradbury topics list" in error


@pytest.mark.parametrize("count", ["0", "-1", "1000000000"])
def test_a_bad_partition_count_is_refused(command: Command, count: str) -> None:
    assert "--partitions" in command("topics", "create", "bad", "--partitions", count).error
    assert command("topics", "describe", "bad").code == 1


def test_bad_names_and_settings_are_refused(command: Command) -> None:
    assert "bad/name" in command("topics", "create", "bad/name").error
    assert "no.such.config" in command("topics", "create", "t", "-c", "no.such.config=1").error
    assert "--config name=value" in command("topics", "create", "t", "-c", "segment.bytes").error
    assert "replication" in command("topics", "create", "t", "--replication-factor", "3").error
