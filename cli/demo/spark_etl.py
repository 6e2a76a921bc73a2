"""Step 4: the ETL job on Spark, whose executors are actors of the same Ray cluster.

    flights ── batch ───> delays per origin and month ──────────> Parquet, and topic `delays`
            └─ stream ──> flights two hours late, as they come ──> topic `late-flights`

Everything is read back and compared: Parquet, both topics and the batch result agree, and Spark
counts as many flights per carrier as the consumer actors did.

Where the Ray cluster has other nodes than the driver's, the executors are there. They share no disk
with it then, so the driver writes the Parquet file, and the stream keeps no state.
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

import pyarrow.parquet as pq

from ...discovery.extras import install_command, missing_modules
from ..terminal.failure import CommandFailed
from .delivery_check import Delays
from .log_steps import PARTITIONS, TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from ...clients.admin.admin import Admin

DELAYS = "delays"
LATE = "late-flights"
LATE_MINUTES = 120
FORMAT = "bradbury"
MICRO_BATCHES = 3
MOST_CORES = 2
MOST_EXECUTORS = 4
EXECUTOR_MEMORY = "1g"
SCHEMA = (
    "partition INT, "
    "value STRUCT<row: BIGINT, carrier: STRING, origin: STRING, month: INT, arr_delay: INT>"
)

Result = dict[tuple[str, int], tuple[int, float | None]]
"""Number of flights and mean arrival delay in minutes, by (origin, month)."""
Late = Mapping[tuple[str, int], int]
"""Number of late flights, by (origin, month)."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """Results of the batch job. carriers, partitions: flights of each; late: late ones by month."""

    delays: Result
    carriers: Mapping[str, int]
    partitions: Mapping[int, int]
    late: Late


def why_not() -> str | None:
    """Reason why Spark cannot run here, in one line with the remedy; None if it can."""
    from ...pipelines.spark.jvm import check_java
    from ...pipelines.spark.tasks.spark_failure import SparkUnavailable

    if missing := missing_modules("spark"):
        return f"{missing[0]} is not installed: {install_command('spark')}"
    try:
        check_java()
    except SparkUnavailable as error:
        return str(error)
    return None


@contextmanager
def session(namespace: str, scratch: Path) -> Iterator[SparkSession]:
    """Start a Spark session with an executor on each other node than the driver's, or on that.

    Its temporary files go to `scratch`.
    """
    import ray

    from ...pipelines.spark import session as sessions
    from ...pipelines.spark.executors import on_other_nodes
    from ...pipelines.spark.jvm import DRIVER_OPTIONS, EXECUTOR_OPTIONS, MASTER_OPTIONS

    temporary = scratch / "tmp"
    temporary.mkdir(parents=True)
    group = on_other_nodes(1, EXECUTOR_MEMORY, most=MOST_EXECUTORS)
    count = 1 if group is None else group.bundle_count
    cores = 1
    jvms = [DRIVER_OPTIONS]
    nodes = [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    if len(nodes) == 1:
        jvms += [EXECUTOR_OPTIONS, MASTER_OPTIONS]  # they are all on this machine
        cores = max(1, min(MOST_CORES, int(nodes[0]["Resources"].get("CPU", 1))))
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
                    **dict.fromkeys(jvms, f"-Djava.io.tmpdir={temporary}"),
                },
            )
        yield spark
    finally:
        sessions.stop_spark()
        if group is not None:
            ray.util.remove_placement_group(group)


@contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Redirect the output of processes that are started meanwhile to `path`, until they end.

    The JVM's warnings would garble the progress display, and the JSON on stdout.
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
    """Run the batch job: write delays to Parquet and topic `delays`; return all its counts."""
    from pyspark.sql import functions as f

    flights = _parsed(session.read.format(FORMAT).option("subscribe", TOPIC))
    # The log is read once, for all results.
    summed = (
        flights.groupBy("carrier", "partition", "origin", "month")
        .agg(
            f.count(f.lit(1)).alias("flights"),
            f.count("arr_delay").alias("timed"),
            f.sum("arr_delay").alias("delay"),
            f.count_if(f.col("arr_delay") >= LATE_MINUTES).alias("late"),
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
        if _executors_are_here(session):
            delays.write.mode("overwrite").parquet(str(parquet))
        else:
            pq.write_table(delays.toArrow(), parquet)
        _records(delays).write.format(FORMAT).option("topic", DELAYS).mode("append").save()
        result = _result(delays)
        carriers: Counter[str] = Counter()
        partitions: Counter[int] = Counter()
        late: Counter[tuple[str, int]] = Counter()
        for row in summed.collect():
            carriers[row["carrier"]] += row["flights"]
            partitions[row["partition"]] += row["flights"]
            late[row["origin"], row["month"]] += row["late"]
    finally:
        delays.unpersist()
        summed.unpersist()
    return BatchResult(result, carriers, partitions, late)


def start_stream(session: SparkSession, checkpoint: Path, rows: int) -> StreamingQuery:
    """Start the stream that selects late flights in micro-batches, up to the current end."""
    from pyspark.sql import functions as f

    source = (
        session.readStream.format(FORMAT)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        # One task for a micro-batch: each that reads and writes has two Python processes.
        .option("batchRows", str(rows))
        # The limit per partition is rounded down, and the remainder would be a separate batch.
        .option("maxOffsetsPerTrigger", str(-(-rows // MICRO_BATCHES) + PARTITIONS))
    )
    late = _parsed(source).where(f.col("arr_delay") >= LATE_MINUTES)
    return (
        late.select("carrier", f.to_json(f.struct("row", "origin", "month")).alias("value"))
        .withColumnRenamed("carrier", "key")
        .writeStream.format(FORMAT)
        .option("topic", LATE)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def finish_stream(query: StreamingQuery) -> int:
    """Wait for the stream's end; return the number of micro-batches."""
    query.awaitTermination()
    error = query.exception()
    if error is not None:
        raise CommandFailed(f"the Spark stream failed: {error}")
    return len({progress["batchId"] for progress in query.recentProgress})


def read_parquet(path: Path) -> Result:
    """Read the Parquet result without Spark: one file, or the folder that Spark writes."""
    return {
        (row["origin"], row["month"]): (row["flights"], row["mean_delay"])
        for row in pq.read_table(path).to_pylist()
    }


def read_delays(bootstrap: str) -> Result:
    """Read topic `delays` with a plain consumer."""
    return {
        (row["origin"], row["month"]): (row["flights"], row.get("mean_delay"))
        for row in _read_topic(DELAYS, bootstrap)
    }


def read_late(bootstrap: str) -> Late:
    """Read topic `late-flights` with a plain consumer; a task that ran twice wrote rows twice."""
    places = {row["row"]: (row["origin"], row["month"]) for row in _read_topic(LATE, bootstrap)}
    return Counter(places.values())


def _read_topic(topic: str, bootstrap: str) -> Iterator[dict[str, Any]]:
    from ...clients.consumer.consumer import Consumer

    with Consumer(topic, bootstrap=bootstrap, auto_offset_reset="earliest") as consumer:
        ends = consumer.end_offsets()
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            yield from map(json.loads, consumer.poll(500).column("value").to_pylist())


def rows_by_leader(admin: Admin, partitions: Mapping[int, int]) -> dict[str, int]:
    """Count rows by the host of the node that leads their partition."""
    hosts = {broker.node_id: broker.host for broker in admin.describe_cluster().brokers}
    (topic,) = admin.describe_topics([TOPIC])
    rows: Counter[str] = Counter()
    for partition in topic.partitions:
        host = hosts.get(partition.leader, "no leader")
        rows[host] += partitions.get(partition.partition, 0)
    return dict(sorted(rows.items()))


def compare(
    batch: BatchResult, by_carrier: Mapping[str, Delays], late: Late, others: Mapping[str, Result]
) -> None:
    """Raise CommandFailed if two ways to compute the same result differ."""
    if +Counter(late) != +Counter(batch.late):
        raise CommandFailed(_difference(f"topic {LATE!r}", late, batch.late))
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
        f"{name} is wrong in {len(wrong)} places: for {key} it has "
        f"{found.get(key)}, not {expected.get(key)}; run it again with --keep and compare"
    )


def _parsed(source: DataFrameReader | DataStreamReader) -> DataFrame:
    """Load with values decoded by the source, in a fifth of the time of `from_json`."""
    rows = source.option("valueDecoder", "json").schema(SCHEMA).load()
    return rows.select("partition", "value.*")


def _records(delays: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return delays.select(
        f.concat_ws("-", "origin", "month").alias("key"),
        f.to_json(f.struct("origin", "month", "flights", "mean_delay")).alias("value"),
    )


def _executors_are_here(session: SparkSession) -> bool:
    from ...pipelines.spark.executors import executor_work

    here = session.conf.get("spark.driver.host")
    return all(work.host == here for work in executor_work(session))


def _result(delays: DataFrame) -> Result:
    return {
        (row["origin"], row["month"]): (row["flights"], row["mean_delay"])
        for row in delays.collect()
    }
