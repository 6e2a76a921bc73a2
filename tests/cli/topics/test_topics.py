"""bradbury topics: against a real cluster."""

import json
from pathlib import Path

import pytest

import bradbury
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
    assert shown.splitlines()[1].split()[4:6] == ["replicas", "isr"]


def test_a_deleted_topic_is_gone(command: Command, bradbury_topic: str) -> None:
    command("topics", "create", bradbury_topic)
    assert command("topics", "delete", bradbury_topic, "--yes").code == 0
    assert bradbury_topic not in command("topics", "list").out


def test_records_are_deleted_below_an_offset(
    command: Command, bradbury_cluster: LocalCluster, bradbury_topic: str
) -> None:
    command("topics", "create", bradbury_topic, "-p", "2")
    with bradbury.Producer(bradbury_cluster.bootstrap_servers) as producer:
        for partition in (0, 1):
            for _ in range(3):
                producer.send(bradbury_topic, b"x", partition=partition).result(60)
    delete = ("topics", "delete-records", bradbury_topic, "--yes", "--before")
    assert "add --partition" in command(*delete, "2").usage
    assert "not an offset" in command(*delete, "-1").usage
    assert "partitions 0 to 1, not 2" in command(*delete, "2", "-p", "2").error
    assert (
        "above the high watermark 3; use --before 3 or less"
        in command(*delete, "4", "-p", "1").error
    )

    done = command(*delete, "2", "-p", "1", "--json")
    assert json.loads(done.out)["partitions"] == [{"partition": 1, "log_start_offset": 2}]
    described = json.loads(command("topics", "describe", bradbury_topic, "--json").out)
    assert [one["log_start_offset"] for one in described["partitions"]] == [0, 2]
    shown = [line.split() for line in command(*delete, "latest").out.splitlines()]
    assert ["0", "3"] in shown
    assert ["1", "3"] in shown

    compacted = f"{bradbury_topic}-compacted"
    command("topics", "create", compacted, "-p", "1", "-c", "cleanup.policy=compact")
    error = command("topics", "delete-records", compacted, "--yes", "--before", "latest").error
    assert "is compacted" in error
    assert "does not exist" in command("topics", "delete-records", "no-such", "--before", "1").error


def test_what_is_there_or_is_not_may_be_passed_over(command: Command, bradbury_topic: str) -> None:
    create = ("topics", "create", bradbury_topic, "--if-not-exists")
    assert "created topic" in command(*create, "-p", "2").err
    again = command(*create, "-p", "5")
    assert (again.code, "already exists" in again.err) == (0, True)
    described = json.loads(command("topics", "describe", bradbury_topic, "--json").out)
    assert len(described["partitions"]) == 2
    delete = ("topics", "delete", "--yes", "--if-exists", "no-such-topic", bradbury_topic)
    assert command(*delete).code == 0
    assert bradbury_topic not in command("topics", "list").out


def test_without_topics_the_list_says_what_to_do(command: Command) -> None:
    import bradbury

    with bradbury.local() as empty:
        outcome = command("topics", "list", "-b", empty.bootstrap_servers)
        assert "topics create" in outcome.err
        assert (
            json.loads(command("topics", "list", "--json", "-b", empty.bootstrap_servers).out) == []
        )


def test_the_topics_of_our_own_sinks_are_shown_when_asked_for(command: Command) -> None:
    import bradbury

    with bradbury.local() as cluster, cluster.admin() as admin:
        admin.create_topic("__bradbury_spark")
        line = ("topics", "list", "-b", cluster.bootstrap_servers)
        assert "__bradbury_spark" not in command(*line).out
        assert "__bradbury_spark" in command(*line, "--internal").out


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


@pytest.mark.parametrize(("count", "code"), [("0", 2), ("-1", 2), ("1000000000", 1)])
def test_a_bad_partition_count_is_refused(command: Command, count: str, code: int) -> None:
    outcome = command("topics", "create", "bad", "--partitions", count)
    assert "--partitions" in (outcome.usage if code == 2 else outcome.error)
    assert command("topics", "describe", "bad").code == 1


def test_bad_names_and_settings_are_refused(command: Command) -> None:
    assert "bad/name" in command("topics", "create", "bad/name").usage
    error = command("topics", "create", "t", "-c", "no.such.config=1").usage
    assert "topic 't': unknown topic config 'no.such.config'" in error
    assert "`bradbury topics configs TOPIC --all`" in error
    error = command("topics", "create", "t", "-c", "retension.ms=1").usage
    assert (
        "unknown topic config 'retension.ms' (did you mean retention.ms?); no topic was created"
        in error
    )
    assert "--config name=value" in command("topics", "create", "t", "-c", "segment.bytes").usage
    assert "replication" in command("topics", "create", "t", "--replication-factor", "3").error


def test_settings_are_shown_with_where_they_are_from_and_changed(
    command: Command, bradbury_topic: str
) -> None:
    command("topics", "create", bradbury_topic, "-c", "retention.ms=1000")
    assert command("topics", "alter", bradbury_topic, "-c", "segment.bytes=5000").code == 0
    command("topics", "alter", bradbury_topic, "--append", "cleanup.policy=compact")
    own = json.loads(command("topics", "configs", bradbury_topic, "--json").out)
    assert {one["name"]: one["value"] for one in own} == {
        "retention.ms": "1000",
        "segment.bytes": "5000",
        "cleanup.policy": "delete,compact",
    }
    everything = json.loads(command("topics", "configs", bradbury_topic, "--all", "--json").out)
    assert {one["source"] for one in everything} == {"topic", "default"}
    assert "5000" in command("topics", "configs", bradbury_topic).out
    command(
        "topics",
        "alter",
        bradbury_topic,
        *("-u", "retention.ms", "-u", "segment.bytes", "-u", "cleanup.policy"),
    )
    assert "--all" in command("topics", "configs", bradbury_topic).err


def test_a_change_that_is_refused_says_why_and_changes_nothing(
    command: Command, bradbury_topic: str
) -> None:
    command("topics", "create", bradbury_topic)
    error = command(
        "topics", "alter", bradbury_topic, "-c", "retention.ms=1", "-c", "preallocate=true"
    ).usage
    assert "preallocate is not available: files grow as they are written" in error
    assert "nothing was changed" in error
    assert json.loads(command("topics", "configs", bradbury_topic, "--json").out) == []
    assert "--config name=value" in command("topics", "alter", bradbury_topic).usage
    assert "does not exist" in command("topics", "alter", "nowhere", "-u", "retention.ms").error
    assert "does not exist" in command("topics", "configs", "nowhere").error
    command("topics", "alter", bradbury_topic, "-c", "retention.ms=1", "--dry-run")
    assert json.loads(command("topics", "configs", bradbury_topic, "--json").out) == []


def test_partitions_are_added_and_never_removed(command: Command, bradbury_topic: str) -> None:
    command("topics", "create", bradbury_topic, "-p", "2")
    assert (
        "could have 5 partitions"
        in command("topics", "add-partitions", bradbury_topic, "5", "--dry-run").err
    )
    assert "has 3 partitions" in command("topics", "add-partitions", bradbury_topic, "3").err
    described = json.loads(command("topics", "describe", bradbury_topic, "--json").out)
    assert len(described["partitions"]) == 3
    error = command("topics", "add-partitions", bradbury_topic, "1").error
    assert "has 3 partitions already" in error
    assert "use a greater TOTAL" in error
    assert "does not exist" in command("topics", "add-partitions", "nowhere", "3").error


def test_without_numbers_a_topic_gets_those_of_the_brokers(
    command: Command, tmp_path: Path
) -> None:
    config = {"num.partitions": 3, "default.replication.factor": 2}
    with bradbury.local(data_dir=str(tmp_path), nodes=2, config=config) as cluster:
        servers = cluster.bootstrap_servers
        made = command("topics", "create", "t", "--bootstrap", servers)
        assert "created topic 't' with 3 partitions" in made.err
        with cluster.admin() as admin:
            (found,) = admin.describe_topics(["t"])
            assert [len(one.replicas) for one in found.partitions] == [2] * 3
            assert len(admin.create_topic("one", 1).partitions) == 1
