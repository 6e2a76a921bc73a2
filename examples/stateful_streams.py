"""Stateful Spark streams, from topics to topics, that survive a kill -9 of their driver.

    python examples/stateful_streams.py

Six queries in one session: windows with a watermark, two streams joined, duplicates dropped within
the watermark, a state of one's own (transformWithState), totals kept up to date in a compacted
topic, and foreachBatch. The process that runs them, its JVM with it, is killed twice, each time
when every query has committed batches and written records, and none is done. It is started again on
the same checkpoints. In the end each topic is compared with what a batch computes over the same
input. Starts brokers in this process; Spark needs Java 17.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Row, SparkSession, functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import bradbury
from bradbury.pipelines.spark.session import local_session

CLICKS = 3_000
USERS = 17
PARTITIONS = 2
BEGIN_MS = 1_760_000_000_000
STEP_MS = 200
END_MS = BEGIN_MS + 2 * CLICKS * STEP_MS
PER_BATCH = {"clicks": 360, "orders": 30, "payments": 20}
"""Most records of a batch, by topic: about eleven batches per query, of all partitions alike."""
KILLS = 2
FAILURES = 3
"""Drivers that may end by themselves: Spark gives a Python process that it starts 10 s to connect,
and fails a query for one that needs longer on a busy machine. A supervisor starts it again."""
SCHEMAS = {
    "clicks": "id LONG, user STRING, page STRING",
    "orders": "number LONG",
    "payments": "number LONG",
}
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
"""State store that transformWithState requires."""
INPUTS = {
    "visits": ["clicks"],
    "unpaid": ["orders", "payments"],
    "distinct": ["clicks"],
    "tenths": ["clicks"],
    "totals": ["clicks"],
    "pages": ["clicks"],
}
"""Input topics of each query, which is named after the topic that it writes."""


# --- the input ----------------------------------------------------------------------------------


def fill(servers: str, replicas: int = -1) -> None:
    """Produce clicks, every fifth of them twice; orders, and payments of two in three of them.

    A last record in each partition, two hours later, ends all windows.

    replicas: of each topic; -1: the cluster's default.
    """
    with bradbury.Admin(servers) as admin:
        for topic in SCHEMAS:
            # The records have old timestamps: retention would delete them.
            admin.create_topic(topic, PARTITIONS, replicas, configs={"retention.ms": "-1"})
        for topic in INPUTS:
            compacted = {"cleanup.policy": "compact"} if topic == "totals" else {}
            admin.create_topic(topic, PARTITIONS, replicas, configs=compacted)
    with bradbury.Producer(servers) as producer:

        def send(topic: str, step: int, **value: Any) -> None:
            producer.send(
                topic,
                json.dumps(value),
                partition=step // 10 % PARTITIONS,
                timestamp_ms=BEGIN_MS + step * STEP_MS,
            )

        for number in range(CLICKS):
            click = {"id": number, "user": f"user-{number * number % USERS}", "page": number % 5}
            send("clicks", number, **click)
            if number % 5 == 0:
                send("clicks", number + 1, **click)
            if number % 10 == 0:
                send("orders", number, number=number)
                if number % 3:
                    send("payments", number + 30, number=number)
        for partition in range(PARTITIONS):
            for topic in SCHEMAS:
                nobody = {"id": -1} if topic == "clicks" else {"number": -1}
                send(topic, CLICKS + 36_000 + 10 * partition, **nobody)


# --- what is computed, by streams and by a batch alike --------------------------------------------

Read = Callable[[str], DataFrame]


def parsed(topic: str, rows: DataFrame) -> DataFrame:
    value = f.from_json(f.col("value").cast("string"), SCHEMAS[topic])
    return rows.select("timestamp", value.alias("it")).select("timestamp", "it.*")


def timely(rows: DataFrame) -> DataFrame:
    """Rows with a watermark of ten seconds, without the last records, which only advance it.

    Those are excluded by their time: Spark would apply any other condition before the watermark.
    """
    watched = rows.withWatermark("timestamp", "10 seconds")
    return watched.where(f.unix_millis("timestamp") < END_MS)


def visits(read: Read) -> DataFrame:
    """Number of clicks of each user in each minute, once the minute is over."""
    counted = timely(read("clicks")).groupBy(f.window("timestamp", "1 minute"), "user").count()
    start = f.unix_millis("window.start").cast("string")
    return counted.select(
        f.concat_ws("@", "user", start).alias("key"), f.col("count").alias("value")
    )


def unpaid(read: Read) -> DataFrame:
    """Orders that no payment followed within a minute."""
    orders, payments = timely(read("orders")), timely(read("payments"))
    paid = payments.select(f.col("number").alias("paid"), f.col("timestamp").alias("paid_at"))
    in_time = "paid = number and paid_at between timestamp and timestamp + interval 1 minute"
    joined = orders.join(paid, f.expr(in_time), "left_outer").where("paid is null")
    return joined.select(f.col("number").alias("key"), f.lit("unpaid").alias("value"))


def distinct(read: Read) -> DataFrame:
    """Clicks without duplicates."""
    clicks = timely(read("clicks"))
    drop = "dropDuplicatesWithinWatermark" if clicks.isStreaming else "dropDuplicates"
    return getattr(clicks, drop)(["id"]).select(
        f.col("id").alias("key"), f.col("user").alias("value")
    )


def pages(read: Read) -> DataFrame:
    clicks = read("clicks").where("id >= 0")
    return clicks.select(f.col("page").alias("key"), f.col("id").alias("value"))


def totals(read: Read) -> DataFrame:
    """Number of clicks of each user so far; the newest record of a key counts."""
    counted = read("clicks").where("id >= 0").groupBy("user").count()
    return counted.select(f.col("user").alias("key"), f.col("count").alias("value"))


class EveryTenth(StatefulProcessor):
    """Emits a row for each tenth click of a user."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "count LONG")

    def handleInputRows(  # noqa: N802 -- Spark's
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        count = self._count.get()[0] if self._count.exists() else 0
        for _ in rows:
            count += 1
            if count % 10 == 0:
                yield Row(key=key[0], value=str(count))
        self._count.update((count,))

    def close(self) -> None:
        pass


def tenths(read: Read) -> DataFrame:
    clicks = read("clicks").where("id >= 0")
    return clicks.groupBy("user").transformWithState(
        statefulProcessor=EveryTenth(),
        outputStructType="key STRING, value STRING",
        outputMode="append",
        timeMode="none",
    )


def tenths_of_a_batch(read: Read) -> DataFrame:
    counted = read("clicks").where("id >= 0").groupBy("user").count().where("count >= 10")
    return counted.selectExpr("user as key", "explode(sequence(10L, count, 10L)) as value")


# --- the driver ---------------------------------------------------------------------------------


def as_text(rows: DataFrame) -> DataFrame:
    return rows.select(f.col("key").cast("string"), f.col("value").cast("string"))


def start(spark: SparkSession, folder: Path) -> list[StreamingQuery]:
    """Start all six queries, on their checkpoints."""

    def read(topic: str) -> DataFrame:
        rows = (
            spark.readStream.format("bradbury")
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", PER_BATCH[topic])
            .load()
        )
        return parsed(topic, rows)

    def run(rows: DataFrame, topic: str) -> StreamingQuery:
        return started(as_text(rows).writeStream.format("bradbury").option("topic", topic), topic)

    def run_each_batch(rows: DataFrame, topic: str, mode: str) -> StreamingQuery:
        def write(batch: DataFrame, _batch_id: int) -> None:
            writer = batch.write.format("bradbury").mode("append").option("topic", topic)
            writer.option("sinkId", topic).save()

        return started(as_text(rows).writeStream.foreachBatch(write).outputMode(mode), topic)

    def started(writer: DataStreamWriter, topic: str) -> StreamingQuery:
        writer = writer.option("checkpointLocation", str(folder / topic))
        return writer.trigger(availableNow=True).queryName(topic).start()

    return [
        run(visits(read), "visits"),
        run(unpaid(read), "unpaid"),
        run(distinct(read), "distinct"),
        run(tenths(read), "tenths"),
        # Spark does not allow updates in Python sinks; foreachBatch does.
        run_each_batch(totals(read), "totals", "update"),
        run_each_batch(pages(read), "pages", "append"),
    ]


def session(servers: str) -> SparkSession:
    return local_session(
        "stateful-streams",
        bootstrap=servers,
        short_lived=True,
        configs={
            "spark.log.level": "ERROR",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
        },
    )


def drive(servers: str, folder: Path) -> None:
    """Run the queries until they have read everything; this process is killed."""
    for query in start(session(servers), folder):
        query.awaitTermination()
        if error := query.exception():
            raise error


def differences(spark: SparkSession, servers: str) -> dict[str, tuple[int, int, int]]:
    """Number of records that a batch computes, of missing ones and of extra ones, by topic."""

    def read(topic: str) -> DataFrame:
        return parsed(topic, spark.read.format("bradbury").option("subscribe", topic).load())

    computed = {
        "visits": visits(read),
        "unpaid": unpaid(read),
        "distinct": distinct(read),
        "tenths": tenths_of_a_batch(read),
        "totals": totals(read),
        "pages": pages(read),
    }
    found = {}
    for topic, rows in computed.items():
        expected = Counter((row.key, row.value) for row in as_text(rows).collect())
        records = written(servers, topic)
        there = Counter(dict(records).items() if topic == "totals" else records)
        missing, more = (expected - there).total(), (there - expected).total()
        found[topic] = (expected.total(), missing, more)
    return found


def written(servers: str, topic: str) -> list[tuple[str, str]]:
    """Key and value of all committed records, in order."""
    with bradbury.Consumer(
        topic, bootstrap=servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        ends, found = consumer.end_offsets(), []
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            table = consumer.poll(500)
            pairs = zip(
                table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True
            )
            found += [(key.decode(), value.decode()) for key, value in pairs]
        return found


class Progress(NamedTuple):
    """Progress of a query: input records in committed batches, input records, output records."""

    read: int
    records: int
    written: int

    @property
    def is_under_way(self) -> bool:
        return 0 < self.read < self.records and self.written > 0


def progress(
    servers: str, folder: Path, inputs: Mapping[str, list[str]] = INPUTS
) -> dict[str, Progress]:
    """Progress of each query, according to its checkpoint and its topic."""
    read_from = {topic for topics in inputs.values() for topic in topics}
    with bradbury.Admin(servers) as admin:
        ends = admin.list_offsets(
            [(topic, partition) for topic in read_from for partition in range(PARTITIONS)], "latest"
        )
    found = {}
    for query, topics in inputs.items():
        records = sum(end.offset for key, end in ends.items() if key.topic in topics)
        found[query] = Progress(committed(folder / query), records, len(written(servers, query)))
    return found


def committed(checkpoint: Path) -> int:
    """Input records in the batches that Spark has noted as done; topics begin at offset 0."""
    done = [int(path.name) for path in checkpoint.glob("commits/*") if path.name.isdecimal()]
    if not done:
        return 0
    lines = (checkpoint / "offsets" / str(max(done))).read_text().splitlines()
    sources = [json.loads(line) for line in lines[2:]]  # behind the version and the settings
    return sum(
        sum(offsets.values())
        for source in sources
        for topic, offsets in source.items()
        if not topic.startswith("@")  # where the first batch began
    )


def kill_half_way(
    command: list[str], servers: str, folder: Path, before: dict[str, Progress]
) -> dict[str, Progress]:
    """Run the driver until every query has gone on from `before`, and none is done.

    Returns how far each was when it died.
    """
    driver = subprocess.Popen(command, start_new_session=True)
    failures = 0
    try:
        while True:
            now = progress(servers, folder)
            if all(
                one.is_under_way and one.read > before[query].read for query, one in now.items()
            ):
                break
            if driver.poll() is not None:
                failures += 1
                if driver.returncode == 0 or failures > FAILURES:
                    raise RuntimeError(f"the driver ended before it was killed: {now}")
                driver = subprocess.Popen(command, start_new_session=True)
            time.sleep(0.3)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    return progress(servers, folder)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, bradbury.local(f"{folder}/data") as cluster:
        servers = cluster.bootstrap_servers
        fill(servers)
        checkpoints = Path(folder, "checkpoints")
        command = [sys.executable, __file__, "drive", servers, str(checkpoints)]
        at = dict.fromkeys(INPUTS, Progress(0, 0, 0))
        for number in range(1, KILLS + 1):
            at = kill_half_way(command, servers, checkpoints, before=at)
            for topic, one in at.items():
                told = f"{one.read:,} of {one.records:,} records read, {one.written:,} written"
                print(f"kill {number}: {topic}: {told}")
        for failures in range(FAILURES + 1):
            if subprocess.run(command, check=failures == FAILURES).returncode == 0:
                break
        spark = session(servers)
        for topic, (count, missing, more) in differences(spark, servers).items():
            print(f"{topic}: {count:,} records, {missing} missing, {more} too many")
        spark.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["drive"]:
        drive(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
