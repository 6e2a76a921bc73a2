"""Does Spark get values of JSON decoded as `from_json` would have them, in batches and streams?"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, functions as f

import bradbury

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FIELDS = (
    "number BIGINT, name STRING, share DOUBLE, is_even BOOLEAN, price DECIMAL(10,2), "
    "at TIMESTAMP, tags ARRAY<STRING>, place STRUCT<code: STRING, miles: INT>"
)
SCHEMA = f"value STRUCT<{FIELDS}>, partition INT"


def flight(number: int) -> bytes | None:
    if number % 7 == 3:
        return None
    row: dict[str, object] = {
        "number": number,
        "ignored": {"deep": [number]},
        "share": number / 4,
        "is_even": number % 2 == 0,
        "price": f"{number}.25",
        "at": f"2026-01-02T03:04:{number % 60:02}Z",
        "place": {"code": "JFK", "miles": number},
    }
    if number % 3:
        row |= {"name": f"n\u00fcmber {number}", "tags": ["a", str(number)]}
    return json.dumps(row, ensure_ascii=number % 2 == 0).encode()


@pytest.fixture(scope="module")
def topic(admin: bradbury.Admin, bootstrap: str) -> str:
    admin.create_topic("decoded-values", 3)
    with bradbury.Producer(bootstrap) as producer:
        for number in range(200):
            producer.send("decoded-values", flight(number), partition=number % 3)
    return "decoded-values"


def test_a_batch_is_as_from_json_has_it(spark: SparkSession, topic: str) -> None:
    source = spark.read.format("bradbury").option("subscribe", topic)
    undecoded = source.load().select(
        f.from_json(f.col("value").cast("string"), FIELDS).alias("value"), "partition"
    )
    source = spark.read.format("bradbury").option("subscribe", topic)
    decoded = source.option("valueDecoder", "json").schema(SCHEMA).load()
    assert decoded.schema == undecoded.schema
    expected = undecoded.orderBy("value.number").collect()
    assert decoded.orderBy("value.number").collect() == expected
    assert len(expected) == 200
    assert sum(row.value is not None and row.value.name is not None for row in expected) > 100


def test_a_stream_is_decoded_in_its_tasks(
    spark: SparkSession, topic: str, bootstrap: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    target = new_topic(1)
    stream = (
        spark.readStream.format("bradbury")
        .options(subscribe=topic, startingOffsets="earliest", valueDecoder="json")
        .schema("value STRUCT<number: BIGINT, is_even: BOOLEAN>")
        .load()
        .where("value.is_even")
        .select(f.col("value.number").cast("string").alias("value"))
        .writeStream.format("bradbury")
        .options(topic=target, checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    stream.awaitTermination()
    text = spark.read.format("bradbury").options(subscribe=target, valueDecoder="utf8").load()
    assert dict(text.dtypes)["value"] == "string"
    found = sorted(int(row.value) for row in text.select("value").collect())
    assert found == [number for number in range(0, 200, 2) if number % 7 != 3]


def test_what_is_no_json_is_said_in_one_line_with_its_place(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str]
) -> None:
    broken = new_topic(1)
    with bradbury.Producer(bootstrap) as producer:
        producer.send(broken, b"no JSON")
    source = spark.read.format("bradbury").options(subscribe=broken, valueDecoder="json")
    with pytest.raises(PySparkException, match=f"the value of {broken}-0 at offset 0 is not json"):
        source.schema("value STRUCT<number: INT>").load().collect()
    with pytest.raises(PySparkException, match="valueDecoder=json needs the fields"):
        spark.read.format("bradbury").options(subscribe=broken, valueDecoder="json").load()
    with pytest.raises(PySparkException, match="has no date"):
        source.schema("value STRUCT<day: DATE>").load().collect()
