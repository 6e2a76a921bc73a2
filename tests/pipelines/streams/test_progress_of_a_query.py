"""Is it seen how far a real query is: as the lag of its group, and in what Spark reports of it?"""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import bradbury
from bradbury.cli.main import run
from bradbury.pipelines.spark.query_lag import offsets_behind
from bradbury.protocol.errors import GroupIdNotFound

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]  # long: a session of Spark

PATIENCE_SECONDS = 120
RECORDS = 300
PER_BATCH = 100


def test_the_lag_of_a_query_is_that_of_its_group_while_it_runs_and_when_it_has_ended(
    spark: SparkSession,
    bootstrap: str,
    admin: bradbury.Admin,
    producer: bradbury.Producer,
    new_topic: Callable[..., str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic = new_topic(2)
    group = f"query-of-{topic}"
    is_held, may_go_on = threading.Event(), threading.Event()

    def send(count: int) -> None:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % 2)
        producer.flush()

    def process(batch: DataFrame, batch_id: int) -> None:
        batch.count()
        if batch_id == 1:
            is_held.set()
            assert may_go_on.wait(PATIENCE_SECONDS)

    def lag() -> int | None:
        try:
            return admin.lag(group).records
        except GroupIdNotFound:
            return None

    def shown() -> tuple[str, int, int]:
        capsys.readouterr()
        assert run(["groups", "lag", group, "--json", "--bootstrap", bootstrap]) == 0
        (one,) = json.loads(capsys.readouterr().out)
        return one["group"], one["partitions"], one["lag"]

    def at(offset: int) -> dict[str, dict[str, int]]:
        return {topic: {"0": offset, "1": offset}}

    send(RECORDS)
    query = (
        stream_of(spark, topic, group, maxOffsetsPerTrigger=str(PER_BATCH))
        .writeStream.foreachBatch(process)
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        assert is_held.wait(PATIENCE_SECONDS), query.exception()
        # The first batch is done, the second is not.
        wait_until(lambda: lag() == RECORDS - PER_BATCH)
        assert [one.committed and one.committed.offset for one in admin.lag(group)] == [50, 50]
        assert shown() == (group, 2, RECORDS - PER_BATCH)
        progress = query.lastProgress
        assert progress is not None
        assert (progress["batchId"], progress["numInputRows"]) == (0, PER_BATCH)
        (source,) = progress["sources"]
        assert json.loads(source["latestOffset"]) == at(RECORDS // 2)  # reportLatestOffset
        end = json.loads(source["endOffset"])
        assert {topic: end[topic]} == at(PER_BATCH // 2)
        left = (RECORDS - PER_BATCH) // 2
        assert offsets_behind(progress) == [{(topic, 0): left, (topic, 1): left}]
        assert not source["metrics"], "then docs/spark.md says too little"

        may_go_on.set()
        wait_until(lambda: lag() == 0)
        assert query.exception() is None
        assert shown() == (group, 2, 0)
        ended = [one for one in query.recentProgress if one["numInputRows"]][-1]
        assert offsets_behind(ended) == [{(topic, 0): 0, (topic, 1): 0}]
        last = ended["sources"][0]
        assert json.loads(last["latestOffset"]) == at(RECORDS // 2)
        assert {topic: json.loads(last["endOffset"])[topic]} == at(RECORDS // 2)
    finally:
        may_go_on.set()
        query.stop()
    assert shown() == (group, 2, 0)
    send(7)
    assert lag() == 7
    assert shown() == (group, 2, 7)


def test_a_query_that_ends_by_itself_has_shown_all_that_it_has_done(
    spark: SparkSession,
    bootstrap: str,
    admin: bradbury.Admin,
    producer: bradbury.Producer,
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    """Spark ends the reader's process without a word when it knows that nothing is left to read."""
    topic = new_topic(2)
    group = f"query-of-{topic}"
    for expected in (10, 20):
        producer.send_batch(topic, [b"%d" % number for number in range(10)]).result(60)
        query = (
            stream_of(spark, topic, group)
            .writeStream.format("noop")
            .trigger(availableNow=True)
            .option("checkpointLocation", str(tmp_path))
            .start()
        )
        assert query.awaitTermination(PATIENCE_SECONDS)
        lag = admin.lag(group)
        assert lag.records == 0
        assert sum(one.committed.offset for one in lag if one.committed) == expected


def stream_of(spark: SparkSession, topic: str, group: str, **options: str) -> DataFrame:
    given = {"subscribe": topic, "startingOffsets": "earliest", "kafka.group.id": group}
    return (
        spark.readStream.format("bradbury").options(**given, commitOffsets="true", **options).load()
    )


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
