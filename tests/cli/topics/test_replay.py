"""`bradbury replay` as people and scripts run it."""

import json
from pathlib import Path

import pytest

from bradbury import LocalCluster
from bradbury.tests.support.command_line import Command

pytestmark = pytest.mark.usefixtures("found_cluster")


@pytest.fixture
def topics(bradbury_cluster: LocalCluster, bradbury_topic: str) -> tuple[str, str]:
    with bradbury_cluster.admin() as admin:
        admin.create_topic(bradbury_topic, partitions=2)
        admin.create_topic(f"{bradbury_topic}-again", partitions=2)
    return bradbury_topic, f"{bradbury_topic}-again"


def test_it_says_what_it_has_done_and_brings_what_is_new(
    process: Command, command: Command, topics: tuple[str, str], tmp_path: Path
) -> None:
    topic, again = topics
    table = str(tmp_path / "table")
    process("produce", topic, stdin=b"a\nb\n")
    assert command("load", topic, "--to", table, "--partition-by", "hour").code == 0
    done = command("replay", table, "--to", again, "--keep-partitions")
    assert done.code == 0, done.err
    assert f"2 records into {again}" in done.err
    process("produce", topic, stdin=b"c\n")
    assert command("load", topic, "--to", table, "--partition-by", "hour").code == 0
    more = json.loads(command("replay", table, "--to", again, "--json").out)
    assert more == {"records": 1, "commits": 1, "to": again, "name": more["name"]}
    read = command("consume", again, "--from-beginning", "--until-end")
    assert sorted(read.out.split()) == ["a", "b", "c"], read.err


def test_what_cannot_be_is_said_in_a_line(
    command: Command, topics: tuple[str, str], tmp_path: Path
) -> None:
    topic, again = topics
    table = str(tmp_path / "table")
    assert "there is no such file" in command("replay", table, "--to", again).usage
    (tmp_path / "empty").mkdir()
    empty = command("replay", str(tmp_path / "empty"), "--to", again)
    assert "has no Parquet files" in empty.error
    command("load", topic, "--to", table)
    assert "nothing is loaded into" in command("replay", table, "--to", again).error
    assert "--format" in command("replay", table, "--to", again, "--format", "csv").usage
    assert "--to" in command("replay", table).usage
