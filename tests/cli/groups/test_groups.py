"""bradbury groups list, describe, members, delete and their kin: against a real cluster."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer

import bradbury
from bradbury import LocalCluster
from bradbury.tests.support.child_process import ChildProcess
from bradbury.tests.support.command_line import Command


@pytest.fixture(autouse=True)
def bootstrap(bradbury_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("BRADBURY_BOOTSTRAP", bradbury_cluster.bootstrap_servers)
    return bradbury_cluster.bootstrap_servers


@pytest.fixture
def topic(bootstrap: str, bradbury_topic: str) -> str:
    """Two partitions; the first has records of 1,000, 2,000 and 3,000 ms, the second none."""
    with bradbury.Admin(bootstrap) as admin:
        admin.create_topic(bradbury_topic, 2)
    with bradbury.Producer(bootstrap) as producer:
        for timestamp in (1_000, 2_000, 3_000):
            producer.send(bradbury_topic, b"x", partition=0, timestamp_ms=timestamp).result()
    return bradbury_topic


@pytest.fixture
def group(bootstrap: str, topic: str) -> str:
    """It has read one record of the first partition, and nothing else. It has no members."""
    with bradbury.Admin(bootstrap) as admin:
        admin.alter_group_offsets(f"{topic}-group", {(topic, 0): 1, (topic, 1): 0})
    return f"{topic}-group"


@contextmanager
def member(bootstrap: str, group: str, topic: str, **settings: object) -> Iterator[None]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "reader",
            "enable.auto.commit": False,
            **settings,
        }
    )
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    try:
        yield
    finally:
        consumer.close()


def test_groups_are_listed_by_state_and_type(command: Command, group: str) -> None:
    def listed(*arguments: str) -> dict[str, str]:
        outcome = command("groups", "list", *arguments, "--json")
        assert outcome.code == 0, outcome.err
        return {one["group"]: one["state"] for one in json.loads(outcome.out)}

    assert listed()[group] == "Empty"
    assert group in listed("--state", "empty", "--type", "classic")
    assert group not in listed("--state", "Stable", "--state", "Dead")
    assert group in command("groups", "list").out
    assert "use one of Empty" in command("groups", "list", "--state", "Asleep").usage
    assert "use one of classic" in command("groups", "list", "--type", "modern").usage


def test_a_description_has_the_lag_in_records_and_in_time(
    command: Command, topic: str, group: str
) -> None:
    (found,) = json.loads(command("groups", "describe", group, "--json").out)
    first, second = found["partitions"]
    assert (first["offset"], first["log_end_offset"], first["lag"]) == (1, 3, 2)
    assert first["lag_ms"] == found["time"] - 2_000
    assert (second["offset"], second["lag"], second["lag_ms"]) == (0, 0, 0)
    assert (found["state"], found["lag"], found["lag_ms"]) == ("Empty", 2, first["lag_ms"])
    shown = command("groups", "describe", group)
    assert f"{group}  (Empty, 0 members, lag 2, " in shown.out
    assert topic in shown.out
    quick = json.loads(command("groups", "describe", group, "--no-times", "--json").out)
    assert quick[0]["partitions"][0]["lag_ms"] is None


def test_lag_is_a_line_for_each_group_in_records_and_in_seconds(
    command: Command, group: str
) -> None:
    (found,) = json.loads(command("groups", "lag", group, "--json").out)
    assert (found["group"], found["state"], found["partitions"]) == (group, "Empty", 2)
    assert found["lag"] == 2
    assert found["lag_s"] == (found["time"] - 2_000) / 1000
    shown = command("groups", "lag").out
    assert any(line.split()[:5] == [group, "Empty", "0", "2", "2"] for line in shown.splitlines())
    (quick,) = json.loads(command("groups", "lag", group, "--no-times", "--json").out)
    assert (quick["lag"], quick["lag_s"]) == (2, None)
    assert "absent" in command("groups", "lag", "absent").error


def test_a_group_that_has_committed_nothing_has_no_lag_that_could_be_known(
    command: Command, bootstrap: str, topic: str
) -> None:
    name = f"{topic}-uncommitted"
    with member(bootstrap, name, topic):
        shown = command("groups", "lag", name).out
        assert any(
            line.split() == [name, "Stable", "1", "2", "-", "-"] for line in shown.split("\n")
        )
        (found,) = json.loads(command("groups", "lag", name, "--json").out)
        assert (found["partitions"], found["lag"], found["lag_s"]) == (2, None, None)
        assert f"{name}  (Stable, 1 member, lag -)" in command("groups", "describe", name).out


def test_without_a_name_all_groups_are_described(command: Command, group: str) -> None:
    found = json.loads(command("groups", "describe", "--json").out)
    assert group in {one["group"] for one in found}


def test_a_group_that_is_not_there_is_named_with_the_remedy(command: Command, topic: str) -> None:
    for words in (
        ("describe", "absent"),
        ("members", "absent"),
        ("delete", "absent", "--yes"),
        ("export", "absent"),
        ("remove-members", "absent", "--all"),
        ("delete-offsets", "absent", "-t", topic, "--yes"),
        ("reset-offsets", "absent", "-t", topic, "--to-latest"),
    ):
        assert "'absent' does not exist; `bradbury groups list`" in command("groups", *words).error


def test_members_are_shown_with_what_they_read(
    command: Command, bootstrap: str, topic: str, group: str
) -> None:
    with member(bootstrap, group, topic, **{"group.instance.id": "one"}):
        (found,) = json.loads(command("groups", "members", group, "--json").out)
        shown = command("groups", "members", group).out
        (described,) = json.loads(command("groups", "describe", group, "--json").out)
    (only,) = found["members"]
    assert (found["state"], found["protocol"]) == ("Stable", "range")
    assert (only["client"], only["instance"], only["topics"]) == ("reader", "one", [topic])
    assert [one["partition"] for one in only["assignment"]] == [0, 1]
    assert f"{topic}-0 {topic}-1" in shown
    assert [one["member"]["client"] for one in described["partitions"]] == ["reader"] * 2


def test_static_members_that_are_gone_can_be_sent_away(
    command: Command, bootstrap: str, topic: str, group: str
) -> None:
    with member(bootstrap, group, topic, **{"group.instance.id": "gone"}):
        pass
    assert "use --instance ID" in command("groups", "remove-members", group).usage
    assert "'other'" in command("groups", "remove-members", group, "-i", "other").error
    outcome = command("groups", "remove-members", group, "-i", "gone")
    assert (outcome.code, outcome.err) == (0, f"group {group!r}: removed gone\n")
    assert "has no members (state Empty)" in command("groups", "members", group).err


def test_groups_with_members_are_not_deleted(
    command: Command, bootstrap: str, topic: str, group: str
) -> None:
    with member(bootstrap, group, topic):
        assert "has members; stop them" in command("groups", "delete", group, "--yes").error
    assert command("groups", "delete", group, "--yes").code == 0
    assert group not in command("groups", "list").out


def test_offsets_of_a_topic_are_forgotten(
    command: Command, bootstrap: str, topic: str, group: str
) -> None:
    with member(bootstrap, group, topic):
        outcome = command("groups", "delete-offsets", group, "--topic", topic, "--yes")
        assert "a live member of the group reads it" in outcome.error
    outcome = command("groups", "delete-offsets", group, "-t", f"{topic}:1", "-y")
    assert outcome.err == f"group {group!r}: deleted 1 offset of {topic}:1\n"
    (found,) = json.loads(command("groups", "describe", group, "--json").out)
    assert [one["partition"] for one in found["partitions"]] == [0]
    assert (
        "does not exist" in command("groups", "delete-offsets", group, "-t", "absent", "-y").error
    )
    assert (
        "0 to 1, not 7"
        in command("groups", "delete-offsets", group, "-t", f"{topic}:7", "-y").error
    )


def test_a_watch_gives_a_line_forevery_look(command: Command, group: str) -> None:
    outcome = command(
        "groups", "describe", group, "--watch", "--every", "0.1", "--count", "3", "--json"
    )
    looks = [json.loads(line) for line in outcome.out.splitlines()]
    assert [one["lag"] for one in looks] == [2, 2, 2]
    assert looks[0]["time"] < looks[2]["time"]
    outcome = command("groups", "describe", group, "-w", "--every", "0.1", "--count", "2")
    assert outcome.out.count("lag 2") == 2


@pytest.mark.slow
def test_a_watch_ends_well_with_ctrl_c(
    environment: dict[str, str], bootstrap: str, group: str
) -> None:
    command = [sys.executable, "-m", "bradbury.cli", "groups", "describe", group, "--watch"]
    command += ["--json", "--every", "0.2", "--bootstrap", bootstrap]
    with ChildProcess(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["group"] == group
        assert json.loads(process.stdout.readline())["group"] == group
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    assert (process.returncode, said) == (0, "")


@pytest.mark.slow
def test_a_watch_on_a_terminal_draws_over_itself(
    environment: dict[str, str], bootstrap: str, group: str
) -> None:
    terminal, theirs = pty.openpty()
    command = [sys.executable, "-m", "bradbury.cli", "groups", "describe", group, "--watch"]
    command += ["--every", "0.2", "--count", "3", "--bootstrap", bootstrap]
    with ChildProcess(
        command,
        env={**environment, "TERM": "xterm", "COLUMNS": "160", "LINES": "40"},
        stdout=theirs,
    ) as process:
        os.close(theirs)
        drawn = b""
        while True:
            try:
                part = os.read(terminal, 65536)
            except OSError:  # Linux's end of file of a terminal that nobody has open any more
                break
            if not part:
                break
            drawn += part
        assert process.wait(60) == 0
    os.close(terminal)
    text = drawn.decode()
    assert text.count("lag 2") >= 3
    assert text.count("\x1b[1A") >= 2 * 3, "the cursor never went back up"
    assert "Ctrl-C to end" in text
