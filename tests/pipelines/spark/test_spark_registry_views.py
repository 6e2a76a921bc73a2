"""Do views and flows of Spark have columns by a registry's schemas?"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from pyspark.sql import SparkSession

import bradbury
from bradbury.clients.schemas.registry_request import NotInRegistry
from bradbury.clients.schemas.wire_format import prefix
from bradbury.pipelines.spark.session import local_session
from bradbury.tests.support.committed_records import committed_records
from bradbury.tests.support.schema_registry import RegistryServer, registry_server

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.long,
]  # long: a Spark session of its own

NewTopic = Callable[..., str]
OLD = {"type": "record", "name": "Flight", "fields": [{"name": "tail", "type": "string"}]}
NEW = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "tail", "type": "string"},
        {"name": "delay", "type": "double", "default": 0.0},
    ],
}
OBJECT = {
    "type": "object",
    "properties": {"tail": {"type": "string"}, "delay": {"type": "number"}},
}


@pytest.fixture(scope="module")
def spark(bootstrap: str) -> Iterator[SparkSession]:
    session = local_session(master="local[2]", bootstrap=bootstrap, short_lived=True)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as running:
        yield running


def send(
    producer: bradbury.Producer,
    topic: str,
    registry: RegistryServer,
    value_format: str,
    schema: Any,
    *values: Any,
) -> None:
    serialize = bradbury.RegistrySerializer(registry.url, topic, value_format, schema)
    for value in values:
        producer.send(topic, value if isinstance(value, bytes) else serialize(value), partition=0)
    producer.flush()


def test_avro_of_two_schemas(
    spark: SparkSession, producer: bradbury.Producer, new_topic: NewTopic, registry: RegistryServer
) -> None:
    topic = new_topic()
    with pytest.raises(NotInRegistry, match=f"subject '{topic}-value' is not in"):
        bradbury.topic_view(spark, topic, value="avro", schema_registry=registry.url)
    send(producer, topic, registry, "avro", OLD, {"tail": "a"}, None)
    send(producer, topic, registry, "avro", NEW, {"tail": "b", "delay": 2.5})
    view: dict[str, Any] = {"name": "flights", "value": "avro", "schema_registry": registry.url}
    frame = bradbury.topic_view(spark, topic, **view)
    assert frame.dtypes[:3] == [("tail", "string"), ("delay", "double"), ("_key", "string")]
    rows = spark.sql("SELECT tail, delay FROM flights ORDER BY _offset").collect()
    assert [tuple(row) for row in rows] == [("a", 0.0), (None, None), ("b", 2.5)]
    bradbury.topic_view(spark, topic, schema=OLD, **view)
    assert spark.sql("SELECT tail FROM flights WHERE tail > 'a'").count() == 1
    producer.send(topic, prefix(99) + b"\x02c", partition=0).result(30)
    bradbury.topic_view(spark, topic, **view)
    with pytest.raises(
        Exception, match=f"value of {topic}-0 at offset 3 is not avro: schema id 99 is not in the"
    ):
        spark.sql("SELECT tail FROM flights").collect()
    bradbury.topic_view(spark, topic, on_error="null", **view)
    rows = spark.sql("SELECT tail FROM flights ORDER BY _offset").collect()
    assert [row.tail for row in rows] == ["a", None, "b", None]


def test_json_and_what_is_none_may_be_null(
    spark: SparkSession, producer: bradbury.Producer, new_topic: NewTopic, registry: RegistryServer
) -> None:
    topic = new_topic()
    send(producer, topic, registry, "json", OBJECT, {"tail": "a", "delay": 1.5}, None)
    (schema_id,) = registry.schemas
    view: dict[str, Any] = {"name": "objects", "value": "json", "schema_registry": registry.url}
    bradbury.topic_view(spark, topic, **view)
    rows = spark.sql("SELECT tail, delay, _offset FROM objects ORDER BY _offset").collect()
    assert [tuple(row) for row in rows] == [("a", 1.5, 0), (None, None, 1)]
    for value in (b'{"tail": "without an id"}', prefix(schema_id) + b"{nonsense"):
        producer.send(topic, value, partition=0).result(30)
    bradbury.topic_view(spark, topic, **view)
    with pytest.raises(Exception, match=f"the value of {topic}-0 at offset 2 is not json"):
        spark.sql("SELECT tail FROM objects").collect()
    bradbury.topic_view(spark, topic, on_error="null", schema="tail string", **view)
    rows = spark.sql("SELECT tail FROM objects ORDER BY _offset").collect()
    assert [row.tail for row in rows] == ["a", None, None, None]


def test_protobuf(
    spark: SparkSession, producer: bradbury.Producer, new_topic: NewTopic, registry: RegistryServer
) -> None:
    topic = new_topic()
    times = [Timestamp(seconds=number, nanos=1) for number in range(3)]
    send(producer, topic, registry, "protobuf", Timestamp, *times, b"\xff")
    for schema in (None, Timestamp):
        bradbury.topic_view(
            spark,
            topic,
            name="times",
            value="protobuf",
            schema=schema,
            schema_registry=registry.url,
            on_error="null",
        )
        rows = spark.sql("SELECT seconds, nanos FROM times ORDER BY _offset").collect()
        assert [tuple(row) for row in rows] == [(0, 1), (1, 1), (2, 1), (None, None)]


def test_a_flow_reads_a_stream_of_them(
    spark: SparkSession,
    bootstrap: str,
    producer: bradbury.Producer,
    new_topic: NewTopic,
    registry: RegistryServer,
    tmp_path: Path,
) -> None:
    topic, target = new_topic(), new_topic()
    send(producer, topic, registry, "avro", OLD, {"tail": "a"})
    send(producer, topic, registry, "avro", NEW, {"tail": "b", "delay": 20.0})
    flow = tmp_path / "flow.yaml"
    source = f"topic: {topic}, value: avro, schema_registry: '{registry.url}'"
    flow.write_text(
        f"name: {topic}\n"
        f"sources: {{flights: {{{source}}}}}\n"
        "steps: {late: {sql: 'SELECT tail, delay FROM flights WHERE delay > 15'}}\n"
        f"targets: {{late: {{topic: {target}}}}}\n"
    )
    bradbury.run_flow(flow, once=True, bootstrap_servers=bootstrap)
    found = [json.loads(each.value or b"") for each in committed_records(bootstrap, target)]
    assert found == [{"tail": "b", "delay": 20.0}]


def test_arguments_that_cannot_be_are_refused(
    spark: SparkSession, registry: RegistryServer
) -> None:
    for wrong, said in (
        ({"value": "utf8"}, "value='utf8' has no schema_registry"),
        ({"value": "avro", "schema_registry": "here"}, "use http://HOST:PORT"),
    ):
        with pytest.raises(ValueError, match=said):
            bradbury.topic_view(spark, "t", **{"schema_registry": registry.url, **wrong})  # type: ignore[arg-type]
