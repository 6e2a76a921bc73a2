"""bradbury bench: what it counts is what happened."""

import json
from pathlib import Path

import pytest

import bradbury
from bradbury import LocalCluster
from bradbury.tests.support.command_line import Command


@pytest.fixture(autouse=True)
def bootstrap(bradbury_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("BRADBURY_BOOTSTRAP", bradbury_cluster.bootstrap_servers)
    return bradbury_cluster.bootstrap_servers


def measured(command: Command, *arguments: str) -> dict:
    outcome = command("bench", *arguments, "--json")
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


@pytest.fixture
def topic(command: Command, bradbury_topic: str) -> str:
    command("topics", "create", bradbury_topic)
    return bradbury_topic


@pytest.mark.parametrize("columns", [[], ["--columns"]])
def test_what_was_produced_is_in_the_topic(
    command: Command, topic: str, bootstrap: str, columns: list[str]
) -> None:
    found = measured(command, "produce", topic, "-n", "12345", "-s", "64", *columns)
    assert (found["records"], found["bytes"]) == (12345, 12345 * 64)
    times = found["latency_ms"]
    assert 0 < times["p50"] <= times["p95"] <= times["p99"] <= times["p99.9"] <= times["max"]
    assert found["records_per_second"] == pytest.approx(12345 / found["seconds"], rel=0.01)
    with bradbury.Admin(bootstrap) as admin:
        (end,) = admin.list_offsets([(topic, 0)]).values()
    assert end.offset == 12345


def test_a_throughput_is_kept(command: Command, topic: str) -> None:
    found = measured(command, "produce", topic, "-n", "300", "--throughput", "1000")
    assert found["seconds"] >= 0.29


def test_what_is_consumed_is_counted_with_its_bytes(command: Command, topic: str) -> None:
    measured(command, "produce", topic, "-n", "5000", "-s", "10")
    found = measured(command, "consume", topic)
    assert (found["records"], found["bytes"]) == (5000, 50_000)
    assert found["poll_ms"]["max"] >= found["poll_ms"]["p50"] > 0
    assert 2000 <= measured(command, "consume", topic, "-n", "2000")["records"] <= 5000


def test_a_round_trip_takes_longer_than_its_first_half(command: Command, bootstrap: str) -> None:
    found = measured(command, "latency", "-n", "200", "--throughput", "500")
    assert found["records"] == 200
    assert found["round_trip_ms"]["mean"] > 0
    assert found["produce_ms"]["p50"] > 0
    with bradbury.Admin(bootstrap) as admin:
        assert not [name for name in admin.list_topics() if name.startswith("bench-")]


def test_a_picture_and_a_table_come_out(command: Command, tmp_path: Path) -> None:
    picture = tmp_path / "latency.png"
    outcome = command("bench", "latency", "-n", "100", "--plot", str(picture))
    assert outcome.code == 0, outcome.err
    assert picture.read_bytes().startswith(b"\x89PNG")
    for word in ("p50", "p99.9", "round trip", "records/s"):
        assert word in outcome.out
    assert (
        "cannot be written"
        in command("bench", "produce", "-n", "10", "--plot", str(tmp_path / "x.unknown")).error
    )


def test_what_cannot_be_measured_is_refused(command: Command, topic: str) -> None:
    assert "is empty" in command("bench", "consume", topic).error
    measured(command, "produce", topic, "-n", "10")
    assert "has 10 records" in command("bench", "consume", topic, "-n", "11").error
    assert "does not exist" in command("bench", "produce", "absent", "-n", "1").error
    assert "--acks" in command("bench", "produce", topic, "--acks", "2").usage
    assert "--size" in command("bench", "latency", "--size", "3").usage
