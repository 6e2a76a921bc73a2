"""bradbury offsets get: against a real cluster."""

import json
from collections.abc import Callable

import pytest
from kafka import KafkaConsumer, TopicPartition

import bradbury
from bradbury import LocalCluster
from bradbury.tests.support.command_line import Command


@pytest.fixture(autouse=True)
def bootstrap(bradbury_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("BRADBURY_BOOTSTRAP", bradbury_cluster.bootstrap_servers)
    return bradbury_cluster.bootstrap_servers


@pytest.fixture
def topic(bootstrap: str, command: Command, bradbury_topic: str) -> str:
    """Two partitions; the first has records of 1,000, 3,000 and 2,000 ms, the second none."""
    command("topics", "create", bradbury_topic, "-p", "2")
    with bradbury.Producer(bootstrap) as producer:
        for timestamp in (1_000, 3_000, 2_000):
            producer.send(bradbury_topic, b"x", partition=0, timestamp_ms=timestamp).result()
    return bradbury_topic


@pytest.fixture
def offsets(command: Command, topic: str) -> Callable[..., list]:
    def get(*arguments: str) -> list:
        outcome = command("offsets", "get", topic, *arguments, "--json")
        assert outcome.code == 0, outcome.err
        return [one["offset"] for one in json.loads(outcome.out)]

    return get


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("latest", [3, 0]),
        ("earliest", [0, 0]),
        ("earliest-local", [0, 0]),
        ("max-timestamp", [1, None]),
        ("2000", [1, None]),
        ("1000", [0, None]),
        ("1970-01-01T00:00:01.500Z", [1, None]),
        ("1970-01-01T02:00:01.500+02:00", [1, None]),
        ("1970-01-01", [0, None]),
        ("2100-01-01", [None, None]),
    ],
)
def test_every_form_of_time_gives_the_offset(offsets, time: str, expected: list) -> None:
    assert offsets("--time", time) == expected


def test_they_are_what_another_client_finds(offsets, topic: str, bootstrap: str) -> None:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    partition = TopicPartition(topic, 0)
    found = consumer.offsets_for_times({partition: 1_500})[partition]
    assert offsets("-t", "1500", "-p", "0") == [found.offset]
    assert offsets("-p", "0") == [consumer.end_offsets([partition])[partition]]
    consumer.close()


def test_the_table_says_the_time_of_the_record(command: Command, topic: str) -> None:
    shown = command("offsets", "get", topic, "--time", "max-timestamp").out
    assert "1970-01-01T00:00:03.000+00:00" in shown


def test_bad_times_partitions_and_topics_are_refused(command: Command, topic: str) -> None:
    assert "ISO 8601" in command("offsets", "get", topic, "--time", "yesterday").usage
    assert "0 to 1, not 2" in command("offsets", "get", topic, "-p", "2").error
    assert "does not exist" in command("offsets", "get", "absent").error
