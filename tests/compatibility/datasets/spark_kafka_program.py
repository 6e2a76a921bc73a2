"""What Spark's own Kafka source and sink do against a cluster, in a Spark of its own: its jars are given
to a Java machine when it starts. See tests/compatibility/support/programs.py.
"""

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, DataFrameReader, SparkSession, functions

from bradbury.pipelines.spark.session import register


def say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def rows(frame: DataFrame) -> list[list[Any]]:
    """All that the source gives of each record; keys, values and headers as text."""
    found = frame.select(
        "partition",
        "offset",
        functions.col("key").cast("string"),
        functions.col("value").cast("string"),
        (functions.unix_micros("timestamp") / 1_000).cast("long"),
        "timestampType",
        functions.expr("transform(headers, one -> struct(one.key, string(one.value)))"),
    ).collect()
    return [[*row[:6], [list(header) for header in row[6] or []]] for row in found]


def batch(spark: SparkSession, settings: dict[str, Any]) -> None:
    topic = settings["topic"]

    def source(**options: Any) -> DataFrameReader:
        return (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", settings["servers"])
            .option("includeHeaders", "true")
            .options(**options)
        )

    say(subscribe=rows(source(subscribe=topic).load()))
    say(pattern=source(subscribePattern=f"{topic}.*").load().count())
    part = source(
        assign=json.dumps({topic: [0, 2]}),
        startingOffsets=json.dumps({topic: {"0": 5, "2": -2}}),
        endingOffsets=json.dumps({topic: {"0": 50, "2": -1}}),
    )
    say(assign=rows(part.load()))
    say(times=rows(source(subscribe=topic, startingTimestamp=settings["time"]).load()))
    split = source(subscribe=topic, minPartitions=12).load()
    say(split=[split.rdd.getNumPartitions(), split.count()])
    sums = (
        source(subscribe=topic)
        .load()
        .groupBy(functions.col("key").cast("string"))
        .agg(
            functions.count("*"),
            functions.sum(
                functions.substring_index(functions.col("value").cast("string"), "-", -1)
            ),
        )
        .collect()
    )
    say(sums={key: [count, int(total)] for key, count, total in sums})


def write(spark: SparkSession, settings: dict[str, Any]) -> None:
    """Rows of Spark's own range; a partition is given for every other one."""
    (
        spark.range(settings["count"])
        .select(
            functions.expr("concat('key-', id % 50)").alias("key"),
            functions.expr("concat('value-', id)").alias("value"),
            functions.expr(
                "array(struct('number' AS key, CAST(string(id) AS BINARY) AS value))"
            ).alias("headers"),
            functions.expr("if(id % 2 = 0, 1, NULL)").alias("partition"),
        )
        .write.format("kafka")
        .option("kafka.bootstrap.servers", settings["servers"])
        .option("topic", settings["topic"])
        .option("includeHeaders", "true")
        .save()
    )


def stream(spark: SparkSession, settings: dict[str, Any]) -> None:
    """Copy what is new to a topic, and count it by key: until there is no more."""
    if settings["format"] == "bradbury":
        register(spark)
    source = (
        spark.readStream.format(settings["format"])
        .option("kafka.bootstrap.servers", settings["servers"])
        .option("subscribe", settings["topic"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", settings["atOnce"])
        .load()
    )
    copying = (
        source.select("key", "value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", settings["servers"])
        .option("topic", settings["to"])
        .option("checkpointLocation", f"{settings['folder']}/copy")
        .trigger(availableNow=True)
        .start()
    )
    copying.awaitTermination()
    say(batches=[progress["numInputRows"] for progress in copying.recentProgress])
    counting = (
        source.groupBy(functions.col("key").cast("string").alias("key"))
        .agg(functions.count("*").alias("count"))
        .writeStream.outputMode("update")
        .foreachBatch(
            lambda frame, number: say(counted={row["key"]: row["count"] for row in frame.collect()})
        )
        .option("checkpointLocation", f"{settings['folder']}/count")
        .trigger(availableNow=True)
        .start()
    )
    counting.awaitTermination()


def main() -> None:
    command, settings = sys.argv[1], json.loads(sys.argv[2])
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", settings["jars"])
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", settings["folder"])
        .config("spark.sql.warehouse.dir", settings["folder"])
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    try:
        {"batch": batch, "write": write, "stream": stream}[command](spark, settings)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
