"""Spark's own source and sink for Kafka, from its jar: batch and streaming, read and written."""

import sys
import time
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import bradbury
from bradbury.tests.compatibility.support.compatibility import Recorder, Tool
from bradbury.tests.compatibility.support.kafka_jars import SPARK_KAFKA, SPARK_VERSION, require
from bradbury.tests.compatibility.support.programs import PROGRAMS, RUN_SECONDS, Line, Program

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.java, pytest.mark.long]

COUNT = 3_000
PARTITIONS = 3


@pytest.fixture
def tool(recorder: Recorder) -> Tool:
    try:
        pyspark = version("pyspark")
    except PackageNotFoundError:
        pytest.skip("pyspark is not installed")
    require(SPARK_KAFKA)
    assert pyspark.split(".")[:2] == SPARK_VERSION.split(".")[:2], "another jar is needed"
    return recorder.tool("Spark's Kafka connector", f"{SPARK_VERSION} (PySpark {pyspark})")


@pytest.fixture
def program(tool: Tool) -> Program:
    # Spark's own choice for its workers is python3 of the PATH, which may know nothing of us.
    environment = {"PYSPARK_PYTHON": sys.executable}
    return Program(
        [sys.executable, str(PROGRAMS / "datasets" / "spark_kafka_program.py")], environment
    )


@pytest.fixture
def settings(servers: str, new_name: str, tmp_path: Path) -> dict[str, Any]:
    with bradbury.Admin(servers) as admin:
        admin.create_topic(new_name, PARTITIONS)
    jars = ",".join(str(jar) for jar in sorted(SPARK_KAFKA.folder.glob("*.jar")))
    return {"servers": servers, "topic": new_name, "folder": str(tmp_path), "jars": jars}


def produce(servers: str, topic: str, first: int, count: int) -> int:
    """Returns the timestamp of the first; each has one of its own."""
    producer = Producer({"bootstrap.servers": servers, "compression.type": "lz4"})
    begin = int(time.time() * 1_000) - count
    for number in range(first, first + count):
        producer.produce(
            topic,
            f"value-{number}",
            f"key-{number % 50}",
            number % PARTITIONS,
            timestamp=begin + number - first,
            headers={"number": str(number)},
        )
    assert producer.flush(RUN_SECONDS) == 0
    return begin


def read(servers: str, topic: str) -> list[list[Any]]:
    """As the program tells its rows, by librdkafka."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none"})
    found: list[list[Any]] = []
    try:
        places = [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
        wanted = sum(consumer.get_watermark_offsets(place, timeout=60)[1] for place in places)
        consumer.assign(places)
        deadline = time.monotonic() + RUN_SECONDS
        while len(found) < wanted:
            assert time.monotonic() < deadline
            for message in consumer.consume(1_000, 0.5):
                assert message.error() is None, message.error()
                headers = [[key, value.decode()] for key, value in message.headers() or []]
                place = [message.partition(), message.offset()]
                content = [message.key().decode(), message.value().decode()]
                found.append([*place, *content, message.timestamp()[1], 0, headers])
    finally:
        consumer.close()
    return sorted(found)


def one(lines: list[Line], name: str) -> Any:
    [found] = [line[name] for line in lines if name in line]
    return found


def test_batches_are_read(
    program: Program, tool: Tool, servers: str, new_name: str, settings: dict[str, Any]
) -> None:
    begin = produce(servers, new_name, 0, COUNT)
    with bradbury.Admin(servers) as admin:
        admin.create_topic(f"{new_name}-more", 1)
    with bradbury.Producer(servers) as producer:
        producer.send_batch(f"{new_name}-more", [b"more"] * 7).result(60)
    expected = read(servers, new_name)
    assert len(expected) == COUNT
    with tool.call("read: subscribe, headers"):
        lines = program.run("batch", **settings, time=begin + 1_000)
        assert sorted(one(lines, "subscribe")) == expected
    with tool.call("read: subscribePattern"):
        assert one(lines, "pattern") == COUNT + 7
    with tool.call("read: assign, startingOffsets, endingOffsets"):
        assert sorted(one(lines, "assign")) == [
            row for row in expected if row[0] == 2 or (row[0] == 0 and 5 <= row[1] < 50)
        ]
    with tool.call("read: startingTimestamp"):
        assert sorted(one(lines, "times")) == [row for row in expected if row[4] >= begin + 1_000]
    with tool.call("read: minPartitions"):
        partitions, count = one(lines, "split")
        assert partitions >= 12
        assert count == COUNT
    sums = one(lines, "sums")
    assert sums == {f"key-{key}": [COUNT // 50, sum(range(key, COUNT, 50))] for key in range(50)}


def test_batches_are_written(
    program: Program, tool: Tool, servers: str, new_name: str, settings: dict[str, Any]
) -> None:
    with tool.call("write: key, value, headers, partition"):
        program.run("write", **settings, count=COUNT)
        written = read(servers, new_name)
        reported = sorted((row[2], row[3], row[6]) for row in written)
        assert reported == sorted(
            (f"key-{number % 50}", f"value-{number}", [["number", str(number)]])
            for number in range(COUNT)
        )
        given = [row for row in written if int(row[3].removeprefix("value-")) % 2 == 0]
        assert {row[0] for row in given} == {1}


@pytest.mark.parametrize("later", ["kafka", pytest.param("bradbury", marks=pytest.mark.deep)])
def test_a_stream_goes_on_where_it_was_after_a_restart(
    program: Program, tool: Tool, servers: str, new_name: str, settings: dict[str, Any], later: str
) -> None:
    """The same source goes on, or ours, which takes over its checkpoint."""
    copy = f"{new_name}-copy"
    with bradbury.Admin(servers) as admin:
        admin.create_topic(copy, PARTITIONS)
    more = {**settings, "to": copy, "atOnce": 700}
    counts: Counter[str] = Counter()
    call = "readStream, writeStream, maxOffsetsPerTrigger, checkpoint"
    if later == "bradbury":
        call = 'the checkpoint goes on with format("bradbury")'
    with tool.call(call):
        for first, count, source in ((0, COUNT, "kafka"), (COUNT, 1_000, later)):
            produce(servers, new_name, first, count)
            lines = program.run("stream", **more, format=source)
            batches = one(lines, "batches")
            assert sum(batches) == count, "what was read before is not read again"
            assert max(batches) <= 700 + PARTITIONS
            for line in lines:
                counts |= Counter(line.get("counted", {}))  # the newest is the largest
            assert counts == Counter(f"key-{n % 50}" for n in range(first + count))
            expected = read(servers, new_name)
            assert sorted(row[2:4] for row in read(servers, copy)) == sorted(
                row[2:4] for row in expected
            )
            assert len(expected) == first + count
