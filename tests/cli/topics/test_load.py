"""`bradbury load` as people and scripts run it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from bradbury import LocalCluster
from bradbury.tests.support.command_line import Command


@pytest.fixture(autouse=True)
def servers(
    bradbury_cluster: LocalCluster, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> str:
    environment["BRADBURY_BOOTSTRAP"] = bradbury_cluster.bootstrap_servers
    monkeypatch.setenv("BRADBURY_BOOTSTRAP", bradbury_cluster.bootstrap_servers)
    return bradbury_cluster.bootstrap_servers


@pytest.fixture
def topic(bradbury_cluster: LocalCluster, bradbury_topic: str) -> str:
    with bradbury_cluster.admin() as admin:
        admin.create_topic(bradbury_topic, partitions=2)
    return bradbury_topic


def rows(table: Path) -> list[str]:
    found = ds.dataset(table, format="parquet", partitioning="hive").to_table()
    return sorted(found["value"].to_pylist())


def test_it_says_what_it_has_done_and_adds_what_is_new(
    process: Command, command: Command, topic: str, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    line = ("load", topic, "--to", str(table), "--value", "utf8", "--partition-by", "hour")
    process("produce", topic, stdin=b"a\nb\n")
    done = command(*line)
    assert done.code == 0, done.err
    assert f"2 records into {table}" in done.err
    process("produce", topic, stdin=b"c\n")
    assert json.loads(command(*line, "--json").out) == {
        "records": 1,
        "commits": 1,
        "to": str(table),
    }
    assert rows(table) == ["a", "b", "c"]
    assert command("load", topic, "--to", str(table)).error.startswith(f"{table} has other columns")


def test_what_cannot_be_is_said_in_a_line(command: Command, topic: str, tmp_path: Path) -> None:
    to = str(tmp_path / "table")
    assert "does not exist" in command("load", "nowhere", "--to", to).error
    assert (
        "there is no column 'price'"
        in command("load", topic, "--to", to, "--columns", "price").usage
    )
    assert "--format" in command("load", topic, "--to", to, "--format", "csv").usage
    assert "use the format delta" in command("load", topic, "--to", "s3://bucket/table").usage
    assert not Path("s3:").exists()


def test_ctrl_c_ends_a_continuous_load_after_its_commit(
    process: Command, environment: dict[str, str], topic: str, tmp_path: Path
) -> None:
    process("produce", topic, stdin=b"a\nb\n")
    table = tmp_path / "table"
    line = ["load", topic, "--to", str(table), "--value", "utf8", "--continuous"]
    with subprocess.Popen(
        [sys.executable, "-m", "bradbury.cli", *line, "--commit-interval", "1"],
        env=environment,
        cwd=environment["HOME"],
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stderr is not None
        assert "2 records so far" in running.stderr.readline()
        process("produce", topic, stdin=b"c\n")
        assert "3 records so far" in running.stderr.readline()
        os.kill(running.pid, signal.SIGINT)
        assert "3 records into" in running.stderr.readline()
        assert running.wait(60) == 0
    assert rows(table) == ["a", "b", "c"]
