"""Streaming queries with windows and joins of streams on RayDP, over our own source and sink."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import bradbury
from bradbury.tests.compatibility.support.compatibility import Recorder, Tool

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [
    pytest.mark.slow, pytest.mark.spark, pytest.mark.ray, pytest.mark.java, pytest.mark.long
]  # fmt: skip

WINDOW_MS = 10_000
QUERY_SECONDS = 400  # so that one that hangs ends as a failure


@pytest.fixture(scope="module")
def spark(ray_cluster: str, servers: str) -> Iterator["SparkSession"]:
    pytest.importorskip("pyspark")
    from bradbury.pipelines.spark.session import stop_spark

    session = bradbury.spark(
        "compatibility", executor_memory="512M", short_lived=True, bootstrap=servers
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    stop_spark()


@pytest.fixture
def tool(recorder: Recorder) -> Tool:
    return recorder.tool("Bradbury's data source for PySpark", version("pyspark"))


Record = tuple[str, str, int]
"""key, value, timestamp"""


def produce(servers: str, topic: str, records: list[Record]) -> None:
    """Produce in the order given, to both partitions in turn."""
    with bradbury.Producer(servers) as producer:
        for number, (key, value, timestamp) in enumerate(records):
            producer.send(topic, value, key, partition=number % 2, timestamp_ms=timestamp)


def stream(spark: "SparkSession", topic: str, **options: Any) -> "DataFrame":
    """key, value as text, and timestamp, which waits for late records for two seconds."""
    source = spark.readStream.format("bradbury").option("subscribe", topic).options(**options)
    source = source.option("startingOffsets", "earliest")
    rows = source.load().selectExpr("string(key) AS key", "string(value) AS value", "timestamp")
    return rows.withWatermark("timestamp", "2 seconds")


def run(frame: "DataFrame", topic: str, checkpoint: Path) -> "StreamingQuery":
    """Rows key, value to `topic`, until there is nothing more to read."""
    query = (
        frame.writeStream.format("bradbury")
        .option("topic", topic)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_SECONDS)
    assert query.exception() is None
    return query


def rows_in(spark: "SparkSession", topic: str) -> Counter[tuple[str, str]]:
    frame = spark.read.format("bradbury").option("subscribe", topic).load()
    return Counter(
        (bytes(row.key).decode(), bytes(row.value).decode())
        for row in frame.select("key", "value").collect()
    )


def test_windows(
    spark: "SparkSession", tool: Tool, servers: str, new_name: str, tmp_path: Path
) -> None:
    """Two runs over one checkpoint: windows that the first has begun, the second ends."""
    from pyspark.sql import functions as f

    output = f"{new_name}-sums"
    with bradbury.Admin(servers) as admin:
        admin.create_topic(new_name, 2)
        admin.create_topic(output, 2)
    begin = int(time.time()) // 10 * 10_000
    records = [(f"key-{n % 7}", str(n), begin + n * 25) for n in range(2_000)]  # 50 s
    sums = (
        stream(spark, new_name, maxOffsetsPerTrigger=400)
        .groupBy(f.window("timestamp", "10 seconds"), "key")
        .agg(f.sum(f.col("value").cast("long")).alias("sum"), f.count("*").alias("count"))
        .selectExpr(
            "concat(key, '@', unix_millis(window.start)) AS key", "concat(sum, '/', count) AS value"
        )
    )
    with tool.call("withWatermark, window"):
        produce(servers, new_name, records[:1_300])
        first = run(sums, output, tmp_path / "windows")
        assert len(first.recentProgress) > 2
        reported = rows_in(spark, output)
        assert reported, "windows that are over are told at once"
        end = [("end", "0", begin + 600_000), ("end", "0", begin + 600_000)]
        produce(servers, new_name, records[1_300:] + end)
        second = run(sums, output, tmp_path / "windows")
        for query in (first, second):
            states = [
                one for progress in query.recentProgress for one in progress["stateOperators"]
            ]
            assert sum(state["numRowsDroppedByWatermark"] for state in states) == 0
        expected: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        for key, value, timestamp in records:
            name = f"{key}@{timestamp - timestamp % WINDOW_MS}"
            expected[name] += int(value)
            counts[name] += 1
        found = rows_in(spark, output)
        assert reported <= found, "what was told is not told again"
        assert found == Counter(
            (name, f"{total}/{counts[name]}") for name, total in expected.items()
        )


def test_joins_of_streams(
    spark: "SparkSession", tool: Tool, servers: str, new_name: str, tmp_path: Path
) -> None:
    """Orders with their payments, at most five seconds later: those that have one, and all."""
    from pyspark.sql import functions as f

    orders, payments = f"{new_name}-orders", f"{new_name}-payments"
    inner, outer = f"{new_name}-inner", f"{new_name}-outer"
    with bradbury.Admin(servers) as admin:
        for topic in (orders, payments, inner, outer):
            admin.create_topic(topic, 2)
    begin = int(time.time() * 1_000)
    ordered = [(f"order-{n}", json.dumps({"amount": n}), begin + n * 50) for n in range(600)]
    paid = {n: 1_000 + n % 6 * 1_000 for n in range(600) if n % 4}  # ms later; 6 s is too late
    payment = sorted(
        ((f"order-{n}", f"paid-{n}", begin + n * 50 + later) for n, later in paid.items()),
        key=lambda record: record[2],
    )
    late = [("late", "{}", begin + 600_000)] * 2
    produce(servers, orders, ordered)
    produce(servers, payments, payment)

    def joined(kind: str) -> "DataFrame":
        left = stream(spark, orders, maxOffsetsPerTrigger=250).alias("o")
        right = stream(spark, payments, maxOffsetsPerTrigger=250).alias("p")
        condition = f.expr(
            "o.key = p.key AND p.timestamp >= o.timestamp"
            " AND p.timestamp <= o.timestamp + INTERVAL 5 SECONDS"
        )
        return left.join(right, condition, kind).selectExpr(
            "o.key AS key", "concat(o.value, coalesce(p.value, 'nothing')) AS value"
        )

    matched = {n for n, later in paid.items() if later <= 5_000}
    assert 0 < len(matched) < len(paid)
    wanted = Counter(
        (key, f"{value}paid-{n}") for n, (key, value, _) in enumerate(ordered) if n in matched
    )
    unpaid = Counter(
        (key, f"{value}nothing") for n, (key, value, _) in enumerate(ordered) if n not in matched
    )
    with tool.call("join of streams, inner"):
        run(joined("inner"), inner, tmp_path / "inner")
        assert rows_in(spark, inner) == wanted
    with tool.call("join of streams, left outer"):
        run(joined("left_outer"), outer, tmp_path / "outer")
        produce(servers, orders, late)
        produce(servers, payments, late)
        run(joined("left_outer"), outer, tmp_path / "outer")
        found = rows_in(spark, outer)
        without = Counter({row: n for row, n in found.items() if row[0] != "late"})
        assert without == wanted + unpaid
