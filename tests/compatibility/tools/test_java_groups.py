"""kafka-consumer-groups, from Apache Kafka's jars, in all its modes."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer

import bradbury
from bradbury.protocol.topic_partition import TopicPartitionPair
from bradbury.tests.compatibility.support.compatibility import Ran, Tool

pytestmark = [pytest.mark.slow, pytest.mark.java]

Java = Callable[..., Ran]
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
HOUR_MS = 3_600_000


@pytest.fixture
def groups(java: Java, servers: str) -> Java:
    """Run kafka-consumer-groups; it must end well. Its output."""

    def call(*arguments: str) -> str:
        ran = java(TOOL, "--bootstrap-server", servers, *arguments)
        assert ran.code == 0, f"{ran.code}\n{ran.out}\n{ran.err}"
        assert "Error: " not in ran.out + ran.err, ran
        return ran.out

    return call


@pytest.fixture
def said(java: Java, servers: str) -> Java:
    """What it says where it cannot do it: some errors come with exit code 0."""

    def call(*arguments: str) -> str:
        ran = java(TOOL, "--bootstrap-server", servers, *arguments)
        assert ran.code != 124, f"it hangs: {ran}"
        return ran.out + ran.err

    return call


@pytest.fixture
def group(servers: str, filled: str) -> str:
    """A group at 4 of the ten records of partition 0, at 0 of the empty partition 1."""
    with bradbury.Admin(servers) as admin:
        admin.alter_group_offsets(f"{filled}-group", {(filled, 0): 4, (filled, 1): 0})
    return f"{filled}-group"


@contextmanager
def members(servers: str, group: str, topic: str, count: int = 1) -> Iterator[list[Consumer]]:
    """librdkafka consumers that share the partitions, one each."""
    consumers = [
        Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "client.id": f"reader-{number}",
                "enable.auto.commit": False,
                "session.timeout.ms": 10_000,
            }
        )
        for number in range(count)
    ]
    try:
        for consumer in consumers:
            consumer.subscribe([topic])
        deadline = time.monotonic() + 30
        while not all(consumer.assignment() for consumer in consumers):
            assert time.monotonic() < deadline
            for consumer in consumers:
                consumer.poll(0.1)
        yield consumers
    finally:
        for consumer in consumers:
            consumer.close()


def offsets(servers: str, group: str) -> dict[TopicPartitionPair, int]:
    with bradbury.Admin(servers) as admin:
        return {tuple(key): one.offset for key, one in admin.group_offsets(group).items()}


# --- list ----------------------------------------------------------------------------------------


def test_list(groups: Java, said: Java, kafka_tools: Tool, group: str, servers: str) -> None:
    name = "kafka-consumer-groups --list"
    with kafka_tools.call(name):
        assert group in groups("--list").split()
    with kafka_tools.call(f"{name} --state"):
        assert re.search(rf"{group}\s+Empty", groups("--list", "--state"))
    with kafka_tools.call(f"{name} --state Empty,Dead"):
        assert re.search(rf"{group}\s+Empty", groups("--list", "--state", "empty,dead"))
        assert group not in groups("--list", "--state", "Stable,PreparingRebalance").split()
    with kafka_tools.call(f"{name} --type"):
        assert re.search(rf"{group}\s+Classic", groups("--list", "--type"))
    with kafka_tools.call(f"{name} --type classic"):
        assert re.search(rf"{group}\s+Classic", groups("--list", "--type", "classic"))
        assert group not in groups("--list", "--type", "consumer").split()
    with kafka_tools.call(f"{name} --state --type"):
        both = groups("--list", "--state", "Empty", "--type", "classic")
        assert re.search(rf"{group}\s+Classic\s+Empty", both)
    with kafka_tools.call(f"{name}: errors"):
        assert "Invalid state list" in said("--list", "--state", "asleep")
        assert "Invalid types list" in said("--list", "--type", "modern")


def test_what_the_console_consumer_read_is_committed(
    java: Java, groups: Java, kafka_tools: Tool, servers: str, filled: str
) -> None:
    group = f"{filled}-console"
    with kafka_tools.call("kafka-console-consumer --group"):
        ran = java(
            "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", servers,
            "--topic", filled, "--group", group, "--from-beginning", "--max-messages", "10",
            "--timeout-ms", "20000",
        )  # fmt: skip
        assert ran.code == 0, ran
        assert ran.out.count("value") == 10
        shown = groups("--describe", "--group", group)
        assert re.search(rf"{group}\s+{filled}\s+0\s+10\s+10\s+0", shown), shown


# --- describe ------------------------------------------------------------------------------------


def test_describe_a_group_without_members(
    groups: Java, said: Java, kafka_tools: Tool, filled: str, group: str
) -> None:
    name = "kafka-consumer-groups --describe"
    with kafka_tools.call(name, f"{name} --offsets"):
        for words in (("--describe",), ("--describe", "--offsets")):
            shown = groups(*words, "--group", group)
            assert re.search(rf"{group}\s+{filled}\s+0\s+4\s+10\s+6\s+-\s+-\s+-", shown), shown
            assert re.search(rf"{group}\s+{filled}\s+1\s+0\s+0\s+0\s+-\s+-\s+-", shown), shown
    with kafka_tools.call(f"{name} --state"):
        shown = groups("--describe", "--group", group, "--state")
        assert re.search(rf"{group}\s+\S+:\d+\s+\(\d+\)\s+-\s+Empty\s+0", shown), shown
    with kafka_tools.call(f"{name} --members"):
        assert "no active members" in said("--describe", "--group", group, "--members")
    with kafka_tools.call(f"{name}: a group that is not there"):
        assert "Group absent not found" in said("--describe", "--group", "absent")


def test_describe_a_group_with_members(
    groups: Java, kafka_tools: Tool, servers: str, filled: str, group: str
) -> None:
    name = "kafka-consumer-groups --describe"
    with members(servers, group, filled, 2):
        with kafka_tools.call(f"{name} --offsets --verbose"):
            shown = groups("--describe", "--group", group, "--offsets", "--verbose")
            row = rf"{group}\s+{filled}\s+0\s+\S+\s+4\s+10\s+6\s+reader-\d-\S+\s+/\S+\s+reader-\d"
            assert re.search(row, shown), shown
        with kafka_tools.call(f"{name} --members (of a live group)"):
            shown = groups("--describe", "--group", group, "--members")
            rows = re.findall(rf"{group}\s+reader-\d-\S+\s+/\S+\s+(reader-\d)\s+1", shown)
            assert sorted(rows) == ["reader-0", "reader-1"], shown
        with kafka_tools.call(f"{name} --members --verbose"):
            shown = groups("--describe", "--group", group, "--members", "--verbose")
            assert sorted(re.findall(rf"{filled}[(:](\d)", shown)) == ["0", "1"], shown
        with kafka_tools.call(f"{name} --state (of a live group)"):
            shown = groups("--describe", "--group", group, "--state")
            assert re.search(rf"{group}\s+\S+:\d+\s+\(\d+\)\s+range\s+Stable\s+2", shown), shown
        with kafka_tools.call(f"{name} --state --verbose"):
            shown = groups("--describe", "--group", group, "--state", "--verbose")
            assert re.search(r"range\s+Stable\s+\S+\s+\S+\s+2", shown), shown
    with kafka_tools.call(f"{name} --all-groups"):
        assert group in groups("--describe", "--all-groups")
        assert re.search(rf"{group}\s+.*Empty", groups("--describe", "--all-groups", "--state"))


# --- reset ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--to-earliest",), 0),
        (("--to-latest",), 10),
        (("--to-current",), 4),
        (("--to-offset", "7"), 7),
        (("--to-offset", "99"), 10),
        (("--shift-by", "2"), 6),
        (("--shift-by", "-1"), 3),
        (("--shift-by", "-99"), 0),
        (("--to-datetime", "1970-01-01T00:00:06.500"), 6),
        (("--to-datetime", "2100-01-01T00:00:00.000"), 10),
        (("--by-duration", "PT1H"), 10),
    ],
)
def test_reset_offsets(
    groups: Java,
    kafka_tools: Tool,
    servers: str,
    filled: str,
    group: str,
    words: tuple[str, ...],
    expected: int,
) -> None:
    reset = ("--reset-offsets", "--group", group, "--topic", f"{filled}:0", *words)
    with kafka_tools.call(f"kafka-consumer-groups --reset-offsets {words[0]}"):
        shown = groups(*reset, "--dry-run")
        assert re.search(rf"{group}\s+{filled}\s+0\s+{expected}\b", shown), shown
        assert offsets(servers, group)[filled, 0] == 4
        shown = groups(*reset, "--execute")
        assert re.search(rf"{group}\s+{filled}\s+0\s+{expected}\b", shown), shown
        assert offsets(servers, group) == {(filled, 0): expected, (filled, 1): 0}


def test_reset_by_duration_finds_the_record_of_an_hour_ago(
    groups: Java, kafka_tools: Tool, servers: str, topic: str
) -> None:
    now_ms = round(datetime.now(UTC).timestamp() * 1000)
    with bradbury.Producer(servers) as producer:
        for ago_ms in (3 * HOUR_MS, HOUR_MS, 0):
            producer.send(topic, b"x", partition=0, timestamp_ms=now_ms - ago_ms).result()
    group = f"{topic}-group"
    scope = ("--reset-offsets", "--group", group, "--topic", f"{topic}:0")
    with kafka_tools.call("kafka-consumer-groups --reset-offsets --by-duration (between records)"):
        groups(*scope, "--by-duration", "PT2H", "--execute")
        assert offsets(servers, group) == {(topic, 0): 1}
    with kafka_tools.call("kafka-consumer-groups --reset-offsets --to-datetime (with a zone)"):
        moment = datetime.now(UTC) - timedelta(minutes=30)
        text = moment.strftime("%Y-%m-%dT%H:%M:%S.000+00:00")
        groups(*scope, "--to-datetime", text, "--execute")
        assert offsets(servers, group) == {(topic, 0): 2}


def test_reset_from_a_file_that_was_exported(
    groups: Java, kafka_tools: Tool, servers: str, filled: str, group: str, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.csv"
    reset = ("--reset-offsets", "--group", group)
    with kafka_tools.call("kafka-consumer-groups --reset-offsets --all-topics --export"):
        exported = groups(*reset, "--all-topics", "--to-latest", "--dry-run", "--export")
        lines = [line for line in exported.splitlines() if filled in line]
        assert sorted(lines) == [f"{filled},0,10", f"{filled},1,0"], exported
        plan.write_text("\n".join(lines) + "\n")
        assert offsets(servers, group)[filled, 0] == 4
    with kafka_tools.call("kafka-consumer-groups --reset-offsets --from-file"):
        groups(*reset, "--from-file", str(plan), "--dry-run")
        assert offsets(servers, group)[filled, 0] == 4
        groups(*reset, "--from-file", str(plan), "--execute")
        assert offsets(servers, group) == {(filled, 0): 10, (filled, 1): 0}


def test_reset_of_several_groups_and_of_one_that_is_not_there(
    groups: Java, kafka_tools: Tool, servers: str, filled: str, group: str, tmp_path: Path
) -> None:
    new = f"{filled}-new"
    with kafka_tools.call("kafka-consumer-groups --reset-offsets (a new group)"):
        reset = ("--reset-offsets", "--group", new, "--topic", filled)
        groups(*reset, "--to-offset", "3", "--execute")
        assert offsets(servers, new) == {(filled, 0): 3, (filled, 1): 0}
    with kafka_tools.call("kafka-consumer-groups --reset-offsets --group A --group B"):
        both = ("--reset-offsets", "--group", group, "--group", new, "--all-topics")
        groups(*both, "--to-earliest", "--execute")
        assert offsets(servers, group) == offsets(servers, new) == {(filled, 0): 0, (filled, 1): 0}
    with kafka_tools.call("kafka-consumer-groups --reset-offsets --from-file (several groups)"):
        plan = tmp_path / "plan.csv"
        plan.write_text(f"{group},{filled},0,5\n{new},{filled},0,6\n")
        two = ("--reset-offsets", "--group", group, "--group", new, "--from-file", str(plan))
        groups(*two, "--execute")
        assert offsets(servers, group)[filled, 0] == 5
        assert offsets(servers, new)[filled, 0] == 6


def test_a_group_with_members_is_not_moved_nor_deleted(
    groups: Java, said: Java, kafka_tools: Tool, servers: str, filled: str, group: str
) -> None:
    reset = ("--reset-offsets", "--group", group, "--topic", filled, "--to-earliest")
    with kafka_tools.call("kafka-consumer-groups: errors of live groups"):
        with members(servers, group, filled):
            assert "current state is Stable" in said(*reset, "--execute")
            assert "GroupNotEmptyException" in said("--delete", "--group", group)
            refused = said("--delete-offsets", "--group", group, "--topic", filled)
            assert "actively subscribed" in refused, refused
        assert offsets(servers, group)[filled, 0] == 4


# --- delete --------------------------------------------------------------------------------------


def test_delete_offsets(
    groups: Java, said: Java, kafka_tools: Tool, servers: str, filled: str, group: str
) -> None:
    delete = ("--delete-offsets", "--group", group, "--topic")
    with kafka_tools.call("kafka-consumer-groups --delete-offsets --topic TOPIC:PARTITION"):
        assert "Successful" in groups(*delete, f"{filled}:1")
        assert offsets(servers, group) == {(filled, 0): 4}
    with kafka_tools.call("kafka-consumer-groups --delete-offsets"):
        assert re.search(rf"{filled}\s+0\s+Successful", groups(*delete, filled))
        assert offsets(servers, group) == {}
    with kafka_tools.call("kafka-consumer-groups --delete-offsets: errors"):
        refused = said("--delete-offsets", "--group", "absent", "--topic", filled)
        assert "The group id does not exist" in refused, refused


def test_delete(groups: Java, said: Java, kafka_tools: Tool, servers: str, filled: str) -> None:
    names = [f"{filled}-{letter}" for letter in "ab"]
    with bradbury.Admin(servers) as admin:
        for name in names:
            admin.alter_group_offsets(name, {(filled, 0): 1})
    with kafka_tools.call("kafka-consumer-groups --delete"):
        out = groups("--delete", "--group", names[0], "--group", names[1])
        assert "was successful" in out
        assert not set(names) & set(groups("--list").split())
    with kafka_tools.call("kafka-consumer-groups --delete: errors"):
        assert "GroupIdNotFoundException" in said("--delete", "--group", "absent")


# --- what needs no cluster -----------------------------------------------------------------------


def test_validate_regex(java: Java, kafka_tools: Tool) -> None:
    with kafka_tools.call("kafka-consumer-groups --validate-regex"):
        assert "valid" in java(TOOL, "--validate-regex", "flights-.*").out
        bad = java(TOOL, "--validate-regex", "flights-(")
        assert "not valid" in bad.out + bad.err or "missing" in bad.out + bad.err, bad
