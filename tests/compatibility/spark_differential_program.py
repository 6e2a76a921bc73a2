"""The same queries and writes by Spark's own Kafka source and by ours, in one session: what each gives.

See tests/compatibility/test_spark_sources_agree.py, which says what to ask, and
tests/compatibility/support/programs.py.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions

from bradbury.pipelines.spark.session import register

FORMATS = ("kafka", "bradbury")


def say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def rows(frame: DataFrame) -> list[str]:
    """Every column of every record as JSON, nulls and the bytes of keys and values included."""
    columns = [
        functions.base64("key").alias("key"),
        functions.base64("value").alias("value"),
        "topic",
        "partition",
        "offset",
        functions.unix_micros("timestamp").alias("timestamp"),
        "timestampType",
    ]
    if "headers" in frame.columns:
        encoded = "transform(headers, one -> struct(one.key, hex(one.value) as value))"
        columns.append(functions.expr(encoded).alias("headers"))
    as_text = functions.to_json(functions.struct(*columns), {"ignoreNullFields": "false"})
    return sorted(row[0] for row in frame.select(as_text).collect())


def batch(spark: SparkSession, source: str, options: dict[str, str]) -> dict[str, Any]:
    frame = spark.read.format(source).options(**options).load()
    return {"schema": frame.schema.jsonValue(), "rows": rows(frame)}


def tasks(spark: SparkSession, source: str, options: dict[str, str]) -> dict[str, Any]:
    return {"tasks": spark.read.format(source).options(**options).load().rdd.getNumPartitions()}


def write(spark: SparkSession, sink: str, options: dict[str, str]) -> dict[str, Any]:
    frame = spark.createDataFrame([("key", "value")], "key string, value string")
    frame.write.format(sink).options(**options).mode("append").save()
    return {"written": True}


def stream(
    spark: SparkSession, source: str, options: dict[str, str], folder: Path
) -> dict[str, Any]:
    """What is there now: the rows of each micro-batch, and the offsets at which each ended."""
    frame = spark.readStream.format(source).options(**options).load()
    batches: list[list[str]] = []
    query = (
        frame.writeStream.foreachBatch(lambda part, number: batches.append(rows(part)))
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return {
        "schema": frame.schema.jsonValue(),
        "rows": batches,
        "ends": [_offsets(one["sources"][0]["endOffset"]) for one in query.recentProgress],
    }


def _offsets(end: Any) -> Any:
    nested = json.loads(end) if isinstance(end, str) else end
    return {name: ends for name, ends in (nested or {}).items() if not name.startswith("@")}


def main() -> None:
    settings = json.loads(sys.argv[2])
    folder = Path(settings["folder"])
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", settings["jars"])
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.local.dir", settings["folder"])
        .config("spark.sql.warehouse.dir", settings["folder"])
        .config("spark.driver.memory", "700m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    register(spark)
    cases = json.loads(Path(settings["cases"]).read_text())
    try:
        for number, (kind, options) in enumerate(cases):
            found: dict[str, Any] = {}
            for source in FORMATS:
                given = {"kafka.bootstrap.servers": settings["servers"], **options}
                try:
                    if kind == "stream":
                        checkpoint = folder / f"{source}-{number}"
                        found[source] = stream(spark, source, given, checkpoint)
                    else:
                        of_kind = {"batch": batch, "tasks": tasks, "write": write}[kind]
                        found[source] = of_kind(spark, source, given)
                except Exception as error:  # whatever Spark makes of a refusal
                    found[source] = {"error": f"{str(error)[:2_000]} ... {str(error)[-1_000:]}"}
            say(number=number, found=found)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
