"""Does spark.sql read topics by name, with typed columns, at once and as a stream?"""

import io
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import bradbury
from bradbury.pipelines.spark.job_session import job_session
from bradbury.pipelines.spark.session import local_session

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.long,
]  # long: a Spark session of its own

NewTopic = Callable[..., str]
DDL = "tail string, delay double"
AVRO = {
    "type": "record",
    "name": "flight",
    "fields": [{"name": "tail", "type": "string"}, {"name": "delay", "type": "double"}],
}


@pytest.fixture(scope="module")
def spark(bootstrap: str) -> Iterator[SparkSession]:
    session = local_session(master="local[2]", bootstrap=bootstrap, short_lived=True)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def flights(producer: bradbury.Producer, new_topic: NewTopic) -> str:
    topic = new_topic(2)
    for number in range(10):
        value = {"tail": f"t{number % 2}", "delay": number / 2}
        producer.send(topic, json.dumps(value), key=f"k{number}", partition=number % 2)
    producer.flush()
    return topic


def test_fields_are_columns_and_those_of_the_record_too(spark: SparkSession, flights: str) -> None:
    for schema in (DDL, pa.schema([("tail", pa.string()), ("delay", pa.float64())])):
        view = bradbury.topic_view(spark, flights, name="flights", value="json", schema=schema)
        assert view.dtypes == [
            ("tail", "string"),
            ("delay", "double"),
            ("_key", "string"),
            ("_topic", "string"),
            ("_partition", "int"),
            ("_offset", "bigint"),
            ("_timestamp", "timestamp"),
            ("_timestampType", "int"),
        ]
        rows = spark.sql(
            "SELECT tail, sum(delay) AS delay FROM flights GROUP BY tail ORDER BY tail"
        )
        assert [tuple(row) for row in rows.collect()] == [("t0", 10.0), ("t1", 12.5)]
    some = spark.sql("SELECT _key FROM flights WHERE _partition = 1 AND _offset >= 3")
    assert sorted(row[0] for row in some.collect()) == ["k7", "k9"]
    bradbury.topic_view(spark, flights, value="utf8", options={"includeHeaders": True})
    (row,) = spark.sql(f"SELECT * FROM `{flights}` WHERE key = 'k3'").collect()
    assert json.loads(row.value) == {"tail": "t1", "delay": 1.5}
    assert row.headers is None


def test_values_decoded_by_the_source_and_few_columns_are_as_those_of_spark(
    spark: SparkSession, producer: bradbury.Producer, flights: str
) -> None:
    by_source = {"ValueDecoder": "json"}
    view = bradbury.topic_view(
        spark,
        flights,
        name="few",
        value="json",
        schema=DDL,
        columns=["offset", "partition"],
        options=by_source,
    )
    assert [name for name, _ in view.dtypes] == ["tail", "delay", "_partition", "_offset"]
    whole = bradbury.topic_view(spark, flights, value="json", schema=DDL).select(*view.columns)
    assert sorted(view.collect()) == sorted(whole.collect())
    every = bradbury.topic_view(spark, flights, value="json", schema=DDL, options=by_source)
    assert every.dtypes == bradbury.topic_view(spark, flights, value="json", schema=DDL).dtypes
    assert {row["_key"] for row in every.collect()} == {f"k{number}" for number in range(10)}
    keys = bradbury.topic_view(spark, flights, value="utf8", columns=["key"])
    assert keys.dtypes == [("key", "string"), ("value", "string")]
    assert len(keys.collect()) == 10
    for wrong, said in (
        ({"columns": ["_offset"]}, "columns has '_offset'; choose from key, topic"),
        ({"columns": [], "schema_registry": "http://127.0.0.1:1", "schema": DDL}, "columns is for"),
        ({"options": by_source, "on_error": "null"}, "goes with on_error"),
    ):
        with pytest.raises(ValueError, match=said):
            bradbury.topic_view(spark, flights, **{"value": "json", "schema": DDL, **wrong})
    producer.send(flights, '{"tail": 5, "delay": 1}').result(60)  # from_json would take it as text
    with pytest.raises(PySparkException, match="is not json"):
        bradbury.topic_view(
            spark, flights, value="json", schema=DDL, columns=(), options=by_source
        ).collect()


def test_a_view_of_a_stream_makes_streams(
    spark: SparkSession, producer: bradbury.Producer, flights: str, tmp_path: Path
) -> None:
    start = {"startingOffsets": "earliest"}
    bradbury.topic_view(
        spark, flights, name="live", value="json", schema=DDL, stream=True, options=start
    )

    def run() -> int:
        query = (
            spark.sql("SELECT upper(tail) AS tail, delay FROM live WHERE delay < 100")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "table"))
        )
        assert query.awaitTermination(120)
        return spark.read.parquet(str(tmp_path / "table")).count()

    assert run() == 10
    producer.send(flights, '{"tail": "late", "delay": 1}').result(30)
    assert run() == 11


def test_a_job_in_another_thread_uses_the_session_of_the_process(
    spark: SparkSession, bootstrap: str, flights: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    target = new_topic(1)

    def run() -> None:
        with job_session("job", bootstrap, 0) as session:
            source = session.readStream.format("bradbury").option("subscribe", flights)
            query = (
                source.option("startingOffsets", "earliest")
                .load()
                .select("value")
                .writeStream.format("bradbury")
                .option("topic", target)
                .option("checkpointLocation", str(tmp_path))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(120)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(run).result()
    written = bradbury.topic_view(spark, target)  # the session has not ended with the job
    assert written.count() == 10


def test_avro_values_are_decoded(
    spark: SparkSession, producer: bradbury.Producer, new_topic: NewTopic
) -> None:
    topic = new_topic()
    for number in range(3):
        content = io.BytesIO()
        fastavro.schemaless_writer(content, AVRO, {"tail": f"t{number}", "delay": 0.5})
        producer.send(topic, content.getvalue())
    producer.send(topic, None)
    producer.flush()
    bradbury.topic_view(spark, topic, name="avro_flights", value="avro", schema=AVRO)
    rows = spark.sql("SELECT tail, delay, _offset FROM avro_flights ORDER BY _offset").collect()
    assert [row.tail for row in rows] == ["t0", "t1", "t2", None]
    producer.send(topic, b"\xff").result(30)
    bradbury.topic_view(spark, topic, name="avro_flights", value="avro", schema=AVRO)
    with pytest.raises(Exception, match=f"the value of {topic}-0 at offset 4 is not avro"):
        spark.sql("SELECT tail FROM avro_flights").collect()


def test_protobuf_messages_are_decoded(
    spark: SparkSession, producer: bradbury.Producer, new_topic: NewTopic
) -> None:
    topic = new_topic()
    for number in range(3):
        message = Timestamp(seconds=number, nanos=10 * number)
        producer.send(topic, message.SerializeToString(), key=f"k{number}")
    producer.send(topic, None)
    producer.flush()
    bradbury.topic_view(spark, topic, name="times", value="protobuf", schema=Timestamp)
    rows = spark.sql("SELECT _key, seconds, nanos FROM times ORDER BY _offset").collect()
    assert [tuple(row) for row in rows[:3]] == [("k0", 0, 0), ("k1", 1, 10), ("k2", 2, 20)]
    assert rows[3].seconds is None
    producer.send(topic, b"\xff").result(30)
    bradbury.topic_view(spark, topic, name="times", value="protobuf", schema=Timestamp)
    with pytest.raises(Exception, match=f"the value of {topic}-0 at offset 4 is not protobuf"):
        spark.sql("SELECT seconds FROM times").collect()


def test_what_is_no_json_fails_unless_it_may_be_null(
    spark: SparkSession, producer: bradbury.Producer, flights: str
) -> None:
    producer.send(flights, "{nonsense").result(30)
    bradbury.topic_view(spark, flights, name="strict", value="json", schema=DDL)
    with pytest.raises(Exception, match="FAILFAST|MALFORMED"):
        spark.sql("SELECT tail FROM strict").collect()
    bradbury.topic_view(spark, flights, name="lax", value="json", schema=DDL, on_error="null")
    assert spark.sql("SELECT tail FROM lax WHERE tail IS NULL").count() == 1


def test_arguments_that_cannot_be_are_refused_in_a_sentence(spark: SparkSession) -> None:
    for wrong, said in (
        ({"value": "xml"}, "value is 'xml'; use 'raw', 'utf8'"),
        ({"value": "json"}, "value='json' needs a schema"),
        ({"schema": DDL}, "value='raw' has no schema"),
        ({"value": "json", "schema": "tail strong"}, "is not a DDL of columns"),
        ({"value": "json", "schema": "string"}, "a StructType or DDL"),
        ({"value": "avro", "schema": "string"}, "not an Avro schema"),
        ({"key": "json"}, "key is 'json'"),
        ({"on_error": "null"}, "on_error is for the values json"),
    ):
        with pytest.raises(ValueError, match=said):
            bradbury.topic_view(spark, "t", **wrong)  # type: ignore[arg-type]
