"""Four queries with state that run until their process is killed; and the same as a batch.

    python -m bradbury.tests.pipelines.streams.standing_queries SERVERS FOLDER PER_BATCH

    counts    windows with a watermark
    joined    an inner join of two streams
    sessions  transformWithState, with timers in event time
    seen      transformWithState, with timers and expiring states in processing time

Each writes the topic of its name, on its checkpoint in FOLDER, with a batch at most every second.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, Row, SparkSession, functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import bradbury
from bradbury.pipelines.spark.session import local_session

PARTITIONS: Final = 2
BEGIN_MS: Final = 1_760_000_000_000
STEP_MS: Final = 200
BLOCK: Final = 10
"""Steps whose records go to one partition; those of the next go to the other one."""
VISITORS: Final = 40
FIRST_PART: Final = range(600)
SECOND_PART: Final = range(600, 900)
END_MS: Final = BEGIN_MS + 10_000 * STEP_MS
GAP_MS: Final = 1_900
"""Between two sessions; no multiple of a step."""
TIMER_MS: Final = 5_000
PASSING_MS: Final = 1_000
"""How long a state lasts that is to be gone when the process was killed and started again."""
LASTING_MS: Final = 24 * 3_600_000
SCHEMAS: Final = {
    "clicks": "id LONG, user STRING, visitor STRING",
    "orders": "number LONG",
    "payments": "number LONG",
}
INPUTS: Final = {
    "counts": ["clicks"],
    "joined": ["orders", "payments"],
    "sessions": ["clicks"],
    "seen": ["clicks"],
}
SHARES: Final = {"clicks": 1.0, "orders": 0.25, "payments": 0.17}
"""How many records each topic has of a batch of the clicks."""
STATE_STORE: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
Read = Callable[[str], DataFrame]


# --- the input ------------------------------------------------------------------------------------


class Input:
    """Sends the records of some steps, a block after the other: no batch sees one partition far
    ahead of the other, whose records would be late."""

    def __init__(self, producer: bradbury.Producer) -> None:
        self._producer = producer
        self._random = random.Random(7)

    def send(self, steps: range) -> None:
        for step in steps:
            # All visitors come for the first time in the first part, one after the other.
            visitor = step // 15 if step in FIRST_PART else step % VISITORS
            user = self._random.randrange(12)
            self._put("clicks", step, id=step, user=f"user-{user}", visitor=f"visitor-{visitor}")
            if step % 4 == 0:
                self._put("orders", step, number=step)
            paid = step - 30
            if paid >= 0 and paid % 4 == 0 and paid % 3:
                self._put("payments", step, number=paid)
            if step % BLOCK == BLOCK - 1:
                self._producer.flush()

    def end(self) -> None:
        """A last record in each partition, behind all that is counted: it ends what is open."""
        for topic in SCHEMAS:
            for partition in range(PARTITIONS):
                step = 20_000 + BLOCK * partition
                self._put(topic, step, **({"id": -1} if topic == "clicks" else {"number": -1}))
        self._producer.flush()

    def _put(self, topic: str, step: int, **value: Any) -> None:
        self._producer.send(
            topic,
            json.dumps(value),
            partition=step // BLOCK % PARTITIONS,
            timestamp_ms=BEGIN_MS + step * STEP_MS,
        )


# --- what is computed -----------------------------------------------------------------------------


def parsed(topic: str, rows: DataFrame) -> DataFrame:
    value = f.from_json(f.col("value").cast("string"), SCHEMAS[topic])
    return rows.select("timestamp", value.alias("it")).select("timestamp", "it.*")


def timely(rows: DataFrame) -> DataFrame:
    watched = rows.withWatermark("timestamp", "10 seconds")
    return watched.where(f.unix_millis("timestamp") < END_MS)


def counts(read: Read) -> DataFrame:
    counted = timely(read("clicks")).groupBy(f.window("timestamp", "20 seconds"), "user").count()
    start = f.unix_millis("window.start").cast("string")
    return counted.select(
        f.concat_ws("@", "user", start).alias("key"), f.col("count").alias("value")
    )


def joined(read: Read) -> DataFrame:
    orders, payments = timely(read("orders")), timely(read("payments"))
    paid = payments.select(f.col("number").alias("paid"), f.col("timestamp").alias("paid_at"))
    in_time = "paid = number and paid_at between timestamp and timestamp + interval 1 minute"
    delay = f.unix_millis("paid_at") - f.unix_millis("timestamp")
    return orders.join(paid, f.expr(in_time)).select(
        f.col("number").alias("key"), delay.alias("value")
    )


class Sessions(StatefulProcessor):
    """Counts what a user does without a pause, when the watermark says that it has ended."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._times = handle.getListState("times", "at LONG")

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,
    ) -> Iterator[Row]:
        times = [row.at for row in rows]
        self._times.appendList([(at,) for at in times])
        for at in times:
            self._handle.registerTimer(at + GAP_MS)
        return iter(())

    def handleExpiredTimer(
        self,
        key: Any,
        timerValues: Any,
        expiredTimerInfo: Any,
    ) -> Iterator[Row]:
        watermark = timerValues.getCurrentWatermarkInMs()
        times = sorted(at for (at,) in self._times.get())
        session: list[int] = []
        left: list[int] = []
        for number, at in enumerate(times, start=1):
            session.append(at)
            if number < len(times) and times[number] - at <= GAP_MS:
                continue
            if at + GAP_MS <= watermark:
                yield Row(key=key[0], value=f"{session[0]}+{len(session)}")
            else:
                left += session
            session = []
        if left:
            self._times.put([(at,) for at in left])
        else:
            self._times.clear()

    def close(self) -> None:
        pass


def sessions(read: Read) -> DataFrame:
    clicks = timely(read("clicks"))
    return (
        clicks.select("timestamp", "user", f.unix_millis("timestamp").alias("at"))
        .groupBy("user")
        .transformWithState(
            statefulProcessor=Sessions(),
            outputStructType="key STRING, value STRING",
            outputMode="append",
            timeMode="eventTime",
        )
    )


def sessions_of_a_batch(read: Read) -> DataFrame:
    session = f.session_window("timestamp", f"{GAP_MS} milliseconds")
    counted = timely(read("clicks")).groupBy(session, "user").count()
    start = f.unix_millis("session_window.start").cast("string")
    return counted.select(
        f.col("user").alias("key"), f.concat_ws("+", start, "count").alias("value")
    )


class Seen(StatefulProcessor):
    """Numbers the visits of each visitor, "3/1": the third in all, the first of late.

    And says "timer" of each visitor once, some seconds after the first visit.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._lasting = handle.getValueState("lasting", "count LONG", LASTING_MS)
        self._passing = handle.getValueState("passing", "count LONG", PASSING_MS)

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,
    ) -> Iterator[Row]:
        lasting = self._lasting.get()[0] if self._lasting.exists() else 0
        passing = self._passing.get()[0] if self._passing.exists() else 0
        if not lasting:
            self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + TIMER_MS)
        for _ in rows:
            lasting, passing = lasting + 1, passing + 1
            yield Row(key=key[0], value=f"{lasting}/{passing}")
        self._lasting.update((lasting,))
        self._passing.update((passing,))

    def handleExpiredTimer(
        self,
        key: Any,
        timerValues: Any,
        expiredTimerInfo: Any,
    ) -> Iterator[Row]:
        yield Row(key=key[0], value="timer")

    def close(self) -> None:
        pass


def seen(read: Read) -> DataFrame:
    clicks = read("clicks").where("id >= 0")
    return clicks.groupBy("visitor").transformWithState(
        statefulProcessor=Seen(),
        outputStructType="key STRING, value STRING",
        outputMode="append",
        timeMode="processingTime",
    )


def seen_of_a_batch(read: Read) -> DataFrame:
    """Without the visits of late, which depend on the clock."""
    counted = read("clicks").where("id >= 0").groupBy("visitor").count()
    numbered = counted.selectExpr(
        "visitor as key", "explode(transform(sequence(1L, count), one -> string(one))) as value"
    )
    return numbered.union(counted.selectExpr("visitor as key", "'timer' as value"))


def as_text(rows: DataFrame) -> DataFrame:
    return rows.select(f.col("key").cast("string"), f.col("value").cast("string"))


def computed_by_a_batch(spark: SparkSession) -> dict[str, list[tuple[str, str]]]:
    """Key and value of what each query is to write; of "seen" the values up to the "/"."""

    def read(topic: str) -> DataFrame:
        return parsed(topic, spark.read.format("bradbury").option("subscribe", topic).load())

    frames = {
        "counts": counts(read),
        "joined": joined(read),
        "sessions": sessions_of_a_batch(read),
        "seen": seen_of_a_batch(read),
    }
    return {
        name: [(row.key, row.value) for row in as_text(rows).collect()]
        for name, rows in frames.items()
    }


# --- the process that is killed -------------------------------------------------------------------


def start(spark: SparkSession, folder: Path, per_batch: int) -> list[StreamingQuery]:
    def read(topic: str) -> DataFrame:
        rows = (
            spark.readStream.format("bradbury")
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", int(per_batch * SHARES[topic]))
            .load()
        )
        return parsed(topic, rows)

    queries = {"counts": counts, "joined": joined, "sessions": sessions, "seen": seen}
    return [
        as_text(query(read))
        .writeStream.format("bradbury")
        .option("topic", name)
        .option("checkpointLocation", str(folder / name))
        .trigger(processingTime="1 second")
        .queryName(name)
        .start()
        for name, query in queries.items()
    ]


def main(servers: str, folder: str, per_batch: str) -> None:
    spark = local_session(
        "standing-queries",
        bootstrap=servers,
        short_lived=True,
        configs={
            "spark.log.level": "ERROR",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
        },
    )
    start(spark, Path(folder), int(per_batch))
    spark.streams.awaitAnyTermination()  # raises what a query fails with


if __name__ == "__main__":
    main(*sys.argv[1:])
