"""Step 4: the ETL job on Spark, whose executors are actors of the same Ray cluster.

    flights ── batch ───> delays per origin and month ──> Parquet, and topic `delays`
            └─ stream ──> the same, by micro-batches ───> topic `delays-streamed`

Everything is read back and held against the rest: Parquet, both topics and the batch result agree,
and Spark counts as many flights per carrier as the consumer actors did. Where the Ray cluster has
other nodes than the driver's, the executors are there.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...extras import install_command, missing_modules
from ..failure import CommandFailed
from .delivery_check import Delays
from .log_steps import PARTITIONS, TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ...clients.admin import Admin

DELAYS = "delays"
STREAMED = "delays-streamed"
FORMAT = "bradbury"
MICRO_BATCHES = 3
MOST_CORES = 2
MOST_EXECUTORS = 4
EXECUTOR_MEMORY = "1g"
SCHEMA = "row LONG, carrier STRING, origin STRING, month INT, arr_delay INT"

Result = dict[tuple[str, int], tuple[int, float | None]]
"""(origin, month) -> flights, mean arrival delay in minutes."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What the batch job found. carriers, partitions: flights of each."""

    delays: Result
    carriers: Mapping[str, int]
    partitions: Mapping[int, int]


def why_not() -> str | None:
    """Why Spark cannot run here, in one line with the remedy; None if it can."""
    from ...pipelines.spark.failure import SparkUnavailable
    from ...pipelines.spark.jvm import check_java

    if missing := missing_modules("spark"):
        return f"{missing[0]} is not installed: {install_command('spark')}"
    try:
        check_java()
    except SparkUnavailable as error:
        return str(error)
    return None


@contextmanager
def session(namespace: str, scratch: Path) -> Iterator[SparkSession]:
    """One with an executor on each node that is not the driver's, or else one on that.

    What it writes for itself goes to `scratch`.
    """
    import ray

    from ...pipelines.spark import session as sessions
    from ...pipelines.spark.executors import on_other_nodes

    temporary = scratch / "tmp"
    temporary.mkdir(parents=True)
    java = f"-Djava.io.tmpdir={temporary}"
    group = on_other_nodes(1, EXECUTOR_MEMORY, most=MOST_EXECUTORS)
    count = 1 if group is None else group.bundle_count
    cores = 1
    if group is None:
        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        cores = max(1, min(MOST_CORES, int(resources.get("CPU", 1))))
    try:
        with _output_to(scratch / "spark.log"):
            spark = sessions.spark(
                "bradbury-demo",
                num_executors=count,
                executor_cores=cores,
                executor_memory=EXECUTOR_MEMORY,
                placement_group=group,
                short_lived=True,
                namespace=namespace,
                configs={
                    "spark.sql.shuffle.partitions": str(count * cores),
                    "spark.sql.warehouse.dir": str(scratch / "warehouse"),
                    "spark.local.dir": str(temporary),
                    "spark.driver.extraJavaOptions": java,
                    "spark.executor.extraJavaOptions": java,
                    "spark.ray.raydp_app_master.extraJavaOptions": java,
                },
            )
        yield spark
    finally:
        sessions.stop_spark()
        if group is not None:
            ray.util.remove_placement_group(group)


@contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """What processes started meanwhile print, for as long as they live, goes to `path`.

    The JVM's warnings would run through the progress display, and through the JSON on stdout.
    """
    streams = (sys.stdout, sys.stderr)
    for stream in streams:
        stream.flush()
    before = [os.dup(number) for number in (1, 2)]
    try:
        with path.open("ab") as file:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
        yield
    finally:
        for stream in streams:
            stream.flush()
        for number, kept in enumerate(before, start=1):
            os.dup2(kept, number)
            os.close(kept)


def run_batch(session: SparkSession, parquet: Path) -> BatchResult:
    """The batch job: delays to Parquet and to topic `delays`; flights per carrier besides."""
    from pyspark.sql import functions as f

    flights = _parsed(session.read.format(FORMAT).option("subscribe", TOPIC).load())
    # The log is read once, for both questions.
    summed = (
        flights.groupBy("carrier", "partition", "origin", "month")
        .agg(
            f.count(f.lit(1)).alias("flights"),
            f.count("arr_delay").alias("timed"),
            f.sum("arr_delay").alias("delay"),
        )
        .cache()
    )
    delays = (
        summed.groupBy("origin", "month")
        .agg(
            f.sum("flights").alias("flights"),
            f.try_divide(f.sum("delay"), f.sum("timed")).alias("mean_delay"),
        )
        .cache()
    )
    try:
        delays.write.mode("overwrite").parquet(str(parquet))
        _records(delays).write.format(FORMAT).option("topic", DELAYS).mode("append").save()
        result = _result(delays)
        carriers: Counter[str] = Counter()
        partitions: Counter[int] = Counter()
        for row in summed.select("carrier", "partition", "flights").collect():
            carriers[row["carrier"]] += row["flights"]
            partitions[row["partition"]] += row["flights"]
    finally:
        delays.unpersist()
        summed.unpersist()
    return BatchResult(result, carriers, partitions)


def run_stream(session: SparkSession, checkpoint: Path, rows: int) -> int:
    """The same as a stream, to its end; returns how many micro-batches it took."""
    source = (
        session.readStream.format(FORMAT)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        # A share for each partition is rounded down, and what is left would be a batch of its own.
        .option("maxOffsetsPerTrigger", str(-(-rows // MICRO_BATCHES) + PARTITIONS))
        .load()
    )
    query = (
        _records(_delays(_parsed(source)))
        .writeStream.format(FORMAT)
        .option("topic", STREAMED)
        .option("checkpointLocation", str(checkpoint))
        .outputMode("complete")  # update would do, but Spark lets no Python sink have it
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    error = query.exception()
    if error is not None:
        raise CommandFailed(f"the stream ended with {error}")
    return len({progress["batchId"] for progress in query.recentProgress})


def read_parquet(session: SparkSession, path: Path) -> Result:
    return _result(session.read.parquet(str(path)))


def read_topic(topic: str, bootstrap: str) -> Result:
    """The newest record of each key of a topic of delays, read by a plain consumer."""
    from ...clients.consumer import Consumer

    newest: Result = {}
    with Consumer(topic, bootstrap=bootstrap, auto_offset_reset="earliest") as consumer:
        ends = consumer.end_offsets()
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            for value in consumer.poll(500).column("value").to_pylist():
                row = json.loads(value)
                newest[row["origin"], row["month"]] = (row["flights"], row.get("mean_delay"))
    return newest


def rows_by_leader(admin: Admin, partitions: Mapping[int, int]) -> dict[str, int]:
    """Rows by the host of the node that leads their partition."""
    hosts = {broker.node_id: broker.host for broker in admin.describe_cluster().brokers}
    (topic,) = admin.describe_topics([TOPIC])
    rows: Counter[str] = Counter()
    for partition in topic.partitions:
        host = hosts.get(partition.leader, "no leader")
        rows[host] += partitions.get(partition.partition, 0)
    return dict(sorted(rows.items()))


def compare(
    batch: BatchResult, by_carrier: Mapping[str, Delays], others: Mapping[str, Result]
) -> None:
    """Raise CommandFailed where two ways to the same answer differ."""
    for name, other in others.items():
        if other != batch.delays:
            raise CommandFailed(_difference(name, other, batch.delays))
    counted = {carrier: delays.flights for carrier, delays in by_carrier.items()}
    if batch.carriers != counted:
        raise CommandFailed(_difference("Spark's count per carrier", batch.carriers, counted))


def _difference(name: str, found: Mapping[Any, Any], expected: Mapping[Any, Any]) -> str:
    wrong = sorted(
        key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)
    )
    key = wrong[0]
    return (
        f"{name} is not what it should be in {len(wrong)} places: for {key} it has "
        f"{found.get(key)}, not {expected.get(key)}; run it again with --keep and compare"
    )


def _parsed(records: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    value = f.from_json(f.col("value").cast("string"), SCHEMA)
    return records.select("partition", value.alias("flight")).select("partition", "flight.*")


def _delays(flights: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return flights.groupBy("origin", "month").agg(
        f.count(f.lit(1)).alias("flights"), f.avg("arr_delay").alias("mean_delay")
    )


def _records(delays: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return delays.select(
        f.concat_ws("-", "origin", "month").alias("key"),
        f.to_json(f.struct("origin", "month", "flights", "mean_delay")).alias("value"),
    )


def _result(delays: DataFrame) -> Result:
    return {
        (row["origin"], row["month"]): (row["flights"], row["mean_delay"])
        for row in delays.collect()
    }
