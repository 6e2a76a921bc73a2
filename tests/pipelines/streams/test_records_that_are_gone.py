"""What does a query see of a topic that the cleaner or retention has shortened?

What the cleaner removed is no loss: the offsets of a compacted log have gaps. What retention removed
from a query that had not read it is one, and ends it unless it may be lost.
"""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import bradbury
from bradbury.tests.support.cleaned_log import wait_until_clean

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]  # long: a session of Spark

QUERY_SECONDS = 300  # so that one that hangs ends as a failure
NewTopic = Callable[..., str]
Found = tuple[int, int, bytes, bytes | None]
"""Partition, offset, key, value."""


def rows_of(frame: DataFrame) -> list[Found]:
    return [
        (row.partition, row.offset, bytes(row.key), None if row.value is None else bytes(row.value))
        for row in frame.select("partition", "offset", "key", "value").collect()
    ]


def start(
    spark: SparkSession,
    topic: str,
    process: Callable[[DataFrame, int], None],
    checkpoint: Path,
    **options: object,
) -> StreamingQuery:
    """A query from the beginning of the topic, which runs until it is stopped."""
    stream = spark.readStream.format("bradbury").options(
        subscribe=topic, startingOffsets="earliest", **options
    )
    return (
        stream.load()
        .writeStream.foreachBatch(process)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )


# --- what the cleaner removed ---------------------------------------------------------------------

PARTITIONS = 2
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "4096",
    "min.cleanable.dirty.ratio": "0",
    "file.delete.delay.ms": "0",
}
Sent = list[tuple[bytes, bytes | None]]


def send(producer: bradbury.Producer, topic: str, numbers: range) -> Sent:
    """To each partition these, under a few keys, in small batches; every 50th deletes its key."""
    sent: Sent = []
    for number in numbers:
        key, value = b"key-%d" % (number * number % 31), b"%d" % number
        sent.append((key, None if number % 50 == 49 else value))
        for partition in range(PARTITIONS):
            producer.send(topic, sent[-1][1], key=key, partition=partition)
        if number % 20 == 19:
            producer.flush()
    producer.flush()
    return sent


def survivors(sent: Sent, cleaned: dict[int, int]) -> list[Found]:
    """Of each partition the last of every key below where the cleaner has come to, and all above."""
    found: list[Found] = []
    for partition, end in cleaned.items():
        last = {key: offset for offset, (key, _) in enumerate(sent[:end])}
        left = [*sorted(last.values()), *range(end, len(sent))]
        found += [(partition, offset, *sent[offset]) for offset in left]
    return found


def test_what_is_left_of_a_compacted_topic_is_read_and_gaps_are_no_loss(
    spark: SparkSession,
    cluster: bradbury.LocalCluster,
    admin: bradbury.Admin,
    producer: bradbury.Producer,
    tmp_path: Path,
) -> None:
    """By a batch, by one that begins in a gap, and by a stream that had begun before the cleaner."""
    topic = "compacted-for-spark"
    admin.create_topic(topic, PARTITIONS, configs=COMPACTED)
    seen: list[Found] = []
    sizes: list[int] = []

    def process(batch: DataFrame, _batch_id: int) -> None:
        rows = rows_of(batch)
        sizes.append(len(rows))
        seen.extend(rows)

    options = {"failOnDataLoss": "true", "maxOffsetsPerTrigger": 200}
    sent = send(producer, topic, range(10))
    query = start(spark, topic, process, tmp_path, **options)
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    before = sorted(seen)
    assert before == survivors(sent, dict.fromkeys(range(PARTITIONS), 0))

    sent += send(producer, topic, range(10, 1_000))
    cleaned = {one: wait_until_clean(cluster, topic, one) for one in range(PARTITIONS)}
    expected = survivors(sent, cleaned)
    assert min(cleaned.values()) > 500, "hardly anything was cleaned"
    assert len(expected) < len(sent)
    assert any(value is None for *_, value in expected)

    def read(**more: object) -> list[Found]:
        reader = spark.read.format("bradbury").options(subscribe=topic, failOnDataLoss="true")
        return sorted(rows_of(reader.options(**more).load()))

    assert read() == expected
    assert read(maxRecordsPerPartition=100) == expected  # tasks whose records are all gone, too
    there = {(partition, offset) for partition, offset, *_ in expected}
    gaps = {
        partition: next(
            offset for offset in range(400, cleaned[partition]) if (partition, offset) not in there
        )
        for partition in range(PARTITIONS)
    }
    starting = json.dumps({topic: {str(partition): at for partition, at in gaps.items()}})
    assert read(startingOffsets=starting) == [one for one in expected if one[1] > gaps[one[0]]]

    sizes.clear()
    query = start(spark, topic, process, tmp_path, **options)
    try:
        query.processAllAvailable()
        assert query.exception() is None
    finally:
        query.stop()
    assert sorted(seen) == sorted({*before, *(one for one in expected if one[1] >= 10)})
    assert len(seen) == len(set(seen))
    assert len(sizes) >= 5, "the cleaned part was to take several batches"
    assert 0 in sizes, "no batch was all gap"


# --- what retention removed -----------------------------------------------------------------------


def test_records_that_retention_removes_from_under_a_query_end_it_unless_they_may_be_lost(
    spark: SparkSession,
    admin: bradbury.Admin,
    producer: bradbury.Producer,
    new_topic: NewTopic,
    tmp_path: Path,
) -> None:
    topic = new_topic(segment_bytes="2048")
    for number in range(1_000):
        producer.send(topic, b"%d" % number, key=b"k", partition=0)
        if number % 20 == 19:
            producer.flush()
    seen: list[int] = []
    is_reading, may_go_on = threading.Event(), threading.Event()

    def process(batch: DataFrame, _batch_id: int) -> None:
        seen.extend(offset for _, offset, *_ in rows_of(batch))
        is_reading.set()
        assert may_go_on.wait(QUERY_SECONDS)

    query = start(spark, topic, process, tmp_path, maxOffsetsPerTrigger=100, failOnDataLoss="true")
    try:
        assert is_reading.wait(QUERY_SECONDS), query.exception()
        admin.alter_configs(topic, {"retention.bytes": "4096"})
        first = settled_start(admin, topic)
        assert 100 < first < 1_000
        may_go_on.set()
        with pytest.raises(Exception, match="do not exist") as failed:
            query.awaitTermination(QUERY_SECONDS)
    finally:
        may_go_on.set()
        query.stop()
    said = str(failed.value)
    assert f"of {topic}-0 do not exist: the log begins at {first}" in said
    assert "deleted by retention" in said
    assert "To continue without them set the option failOnDataLoss to false" in said
    assert seen == list(range(100))

    query = start(spark, topic, process, tmp_path, maxOffsetsPerTrigger=100, failOnDataLoss="false")
    try:
        query.processAllAvailable()
        assert query.exception() is None
    finally:
        query.stop()
    assert seen == [*range(100), *range(first, 1_000)]


def settled_start(admin: bradbury.Admin, topic: str) -> int:
    """Where the log begins when retention has nothing more to remove."""
    deadline = time.monotonic() + 60
    first, pause = 0, threading.Event()
    while time.monotonic() < deadline:
        now = admin.list_offsets([(topic, 0)], "earliest")[topic, 0].offset
        if now and now == first:
            return first
        first = now
        pause.wait(0.3)
    raise AssertionError("retention removed nothing")
