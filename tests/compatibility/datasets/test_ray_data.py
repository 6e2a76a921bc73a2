"""Ray Data's own source and sink for Kafka: which records they read, and what they write."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import bradbury
from bradbury.tests.compatibility.support.compatibility import Recorder, Tool
from bradbury.tests.compatibility.support.programs import RUN_SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.long]

COUNT = 6_000
PARTITIONS = 3
Rows = list[dict[str, Any]]


@pytest.fixture
def tool(recorder: Recorder, ray_cluster: str) -> Tool:
    pytest.importorskip("ray.data")
    return recorder.tool("Ray Data", version("ray"))


@pytest.fixture
def begin(servers: str, topic_of_three: str) -> int:
    """The timestamp of the first of COUNT records; each is a millisecond later than the last."""
    begin = int(time.time() * 1_000) - COUNT
    producer = Producer({"bootstrap.servers": servers, "compression.type": "zstd"})
    for number in range(COUNT):
        producer.produce(
            topic_of_three,
            f"value-{number}",
            None if number % 10 == 0 else f"key-{number % 50}",
            number % PARTITIONS,
            timestamp=begin + number,
            headers={"number": str(number)},
        )
    assert producer.flush(RUN_SECONDS) == 0
    return begin


@pytest.fixture
def topic_of_three(servers: str, new_name: str) -> str:
    with bradbury.Admin(servers) as admin:
        admin.create_topic(new_name, PARTITIONS)
    return new_name


@pytest.fixture
def read(servers: str, topic_of_three: str) -> Callable[..., Rows]:
    """Rows of ray.data.read_kafka, in the order of what was produced."""
    import ray.data

    def call(**options: Any) -> Rows:
        dataset = ray.data.read_kafka(topic_of_three, bootstrap_servers=servers, **options)
        return sorted(dataset.take_all(), key=lambda row: row["timestamp"])

    return call


def row(topic: str, begin: int, number: int) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": number % PARTITIONS,
        "offset": number // PARTITIONS,
        "key": None if number % 10 == 0 else b"key-%d" % (number % 50),
        "value": b"value-%d" % number,
        "timestamp": begin + number,
    }


def test_every_record_is_read(
    read: Callable[..., Rows], tool: Tool, topic_of_three: str, begin: int
) -> None:
    expected = [row(topic_of_three, begin, number) for number in range(COUNT)]
    with tool.call("read_kafka"):
        rows = read()
        assert [{name: one[name] for name in expected[0]} for one in rows] == expected
        assert [dict(one["headers"]) for one in rows] == [
            {"number": b"%d" % number} for number in range(COUNT)
        ]


def test_ranges_of_offsets_and_of_times_are_read(
    read: Callable[..., Rows], tool: Tool, topic_of_three: str, begin: int
) -> None:
    def numbers(rows: Rows) -> list[int]:
        return [int(one["value"].removeprefix(b"value-")) for one in rows]

    with tool.call("read_kafka (start_offset, end_offset)"):
        assert numbers(read(start_offset=100, end_offset=200)) == list(range(300, 600))
        starts = {topic_of_three: {0: 1_990, 1: 0, 2: "earliest"}}
        ends = {topic_of_three: {0: "latest", 1: 0, 2: 2}}
        wanted = [2, 5, *range(5_970, 6_000, 3)]
        assert numbers(read(start_offset=starts, end_offset=ends)) == wanted
    with tool.call("read_kafka (datetime)"):
        start, end = (datetime.fromtimestamp((begin + n) / 1_000, UTC) for n in (1_500, 4_500))
        assert numbers(read(start_offset=start, end_offset=end)) == list(range(1_500, 4_500))


def test_every_row_is_written(tool: Tool, servers: str, topic_of_three: str) -> None:
    import ray.data

    with tool.call("Dataset.write_kafka"):
        dataset = ray.data.range(COUNT, override_num_blocks=4)
        keyed = dataset.map(lambda one: {"name": f"key-{one['id'] % 50}", "square": one["id"] ** 2})
        keyed.write_kafka(topic_of_three, servers, key_field="name")
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "none"})
        consumer.assign([TopicPartition(topic_of_three, n, 0) for n in range(PARTITIONS)])
        found: list[tuple[str, int]] = []
        deadline = time.monotonic() + RUN_SECONDS
        while len(found) < COUNT:
            assert time.monotonic() < deadline
            for message in consumer.consume(1_000, 0.5):
                assert message.error() is None, message.error()
                value = json.loads(message.value())
                assert value["name"] == message.key().decode()
                found.append((value["name"], value["square"]))
        assert consumer.consume(1, 0) == []
        consumer.close()
        assert sorted(found) == sorted((f"key-{n % 50}", n**2) for n in range(COUNT))
