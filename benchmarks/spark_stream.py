"""Micro-batches of Spark Structured Streaming: our source and Spark's own. Run by hand:

    python -m bradbury.benchmarks.spark_stream [--rows 20000] [--batches 40] [--rounds 3]
        [--partitions 1,4] [--json figures.json]

One Bradbury broker in a process of its own, which both read and write; one session on local[2] as
`bradbury.pipelines.spark` makes it, with the jar of Spark's connector in it. They take
turns, round by round: a query of --batches micro-batches runs with each, from a topic to a topic,
and from a topic to nowhere (Spark's noop). Milliseconds of a trigger as reported by Spark, the
median of a query's batches without the first five; a ratio is the median of the ratios of the
rounds, without the first, which only warms up. Ours is measured at least once, as the connector
writes, and exactly once, our default.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table

import bradbury
from bradbury.cli.terminal.output import table_console
from bradbury.pipelines.spark.session import local_session
from bradbury.tests.compatibility.support.kafka_jars import SPARK_KAFKA, require

from .support.contestants import Bradbury

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOAL: Final = 1.1
COLD: Final = 5
"""First batches of each query, which are left out as warm-up."""
CONNECTOR, OURS, EXACTLY_ONCE = "kafka jar", "bradbury", "bradbury, exactly once"
TO_TOPIC, TO_NOWHERE = "topic to topic", "topic to noop"
PARTS: Final = ("latestOffset", "queryPlanning", "addBatch", "walCommit", "commitOffsets")
Batches = list[dict[str, int]]
"""Durations of each batch: Spark's durationMs."""


def run(
    spark: SparkSession, servers: str, source: str, way: str, to: str, *, per_batch: int
) -> Batches:
    """Run one query over all of `source`; returns the durations of its batches."""
    with tempfile.TemporaryDirectory(prefix="bradbury-checkpoint-") as folder:
        reader = spark.readStream.format("kafka" if way == CONNECTOR else "bradbury")
        rows = (
            reader.option("kafka.bootstrap.servers", servers)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", per_batch)
            .load()
        )
        writer = rows.select("key", "value").writeStream.option("checkpointLocation", folder)
        if to == TO_NOWHERE:
            writer = writer.format("noop")
        else:
            writer = writer.format("kafka" if way == CONNECTOR else "bradbury")
            writer = writer.option("kafka.bootstrap.servers", servers).option("topic", "target")
        if to == TO_TOPIC and way == OURS:
            writer = writer.option("deliveryGuarantee", "at-least-once")
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        if error := query.exception():
            raise error
        return [dict(one["durationMs"]) for one in query.recentProgress if one["numInputRows"]]


def median_of(batches: Batches, part: str = "triggerExecution") -> float:
    return statistics.median(batch.get(part, 0) for batch in batches[COLD:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", default="1,4")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.batches <= COLD:
        parser.error(f"--batches {options.batches}: the first {COLD} only warm up")
    counts = [int(count) for count in options.partitions.split(",")]
    require(SPARK_KAFKA)
    jars = ",".join(str(jar) for jar in sorted(SPARK_KAFKA.folder.glob("*.jar")))
    console = table_console()
    found: dict[str, list[Batches]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="bradbury-stream-") as folder,
        Bradbury(Path(folder)) as broker,
    ):
        servers = broker.bootstrap_servers
        fill(servers, counts, options.rows * options.batches)
        spark = local_session(
            bootstrap=servers,
            configs={"spark.jars": jars, "spark.sql.streaming.numRecentProgressUpdates": "1000"},
        )
        spark.sparkContext.setLogLevel("ERROR")
        ways = {TO_TOPIC: (CONNECTOR, OURS, EXACTLY_ONCE), TO_NOWHERE: (CONNECTOR, OURS)}
        for number in range(options.rounds + 1):
            for count in counts:
                for to, contestants in ways.items():
                    for way in contestants[:: 1 if number % 2 else -1]:
                        name = f"{to}, {count} partitions: {way}"
                        batches = run(
                            spark, servers, f"rows-{count}", way, to, per_batch=options.rows
                        )
                        if number:
                            found.setdefault(name, []).append(batches)
                        console.print(f"{number} {name}: {median_of(batches):.0f} ms")
        spark.stop()
    show(found, console)
    if options.json:
        options.json.write_text(json.dumps(found))


def fill(servers: str, counts: list[int], rows: int) -> None:
    with bradbury.Admin(servers) as admin:
        admin.create_topic("target", 4)
        for count in counts:
            admin.create_topic(f"rows-{count}", count)
    with bradbury.Producer(servers) as producer:
        for count in counts:
            for start in range(0, rows, 100_000):
                size = min(100_000, rows - start)
                values = [b"%0100d" % number for number in range(start, start + size)]
                producer.send_batch(f"rows-{count}", values).result()


def show(found: dict[str, list[Batches]], console: Console) -> None:
    table = Table("median trigger", "ms", "of the connector's", *PARTS)
    for name, rounds in found.items():
        group = name.partition(":")[0]
        peer = found[f"{group}: {CONNECTOR}"]
        ratios = [
            median_of(ours) / median_of(theirs) for ours, theirs in zip(rounds, peer, strict=True)
        ]
        cells: list[Any] = [f"{statistics.median(map(median_of, rounds)):.0f}"]
        ratio = statistics.median(ratios)
        cells.append("" if CONNECTOR in name else f"{ratio:.2f} (goal {GOAL})")
        cells += [
            f"{statistics.median(median_of(one, part) for one in rounds):.0f}" for part in PARTS
        ]
        table.add_row(name, *cells)
    console.print(table)


if __name__ == "__main__":
    main()
