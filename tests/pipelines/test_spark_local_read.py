"""Does `read_local` give what the source gives, and say where its tasks are to run?

Where they then run, on several nodes, is in tests/ray/test_spark_on_nodes.py.
"""

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession

import bradbury
from bradbury.pipelines.spark.local_read import read_local
from bradbury.protocol.errors import UnknownTopicOrPartition

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NewTopic = Callable[..., str]


@pytest.fixture
def filled(producer: bradbury.Producer, new_topic: NewTopic) -> str:
    """A topic of 3 partitions with 0..299 in it, number modulo 3 the partition."""
    topic = new_topic(3)
    for number in range(300):
        headers = {"n": b"1"} if number % 2 else None
        producer.send(topic, b"%d" % number, key=b"k", partition=number % 3, headers=headers)
    producer.flush()
    return topic


def preferred(spark: SparkSession, frame: DataFrame) -> list[set[str]]:
    """Hosts that Spark prefers for each task, as its scheduler finds them."""
    rdd = frame._jdf.queryExecution().toRdd()
    context = spark.sparkContext._jsc.sc()
    found = []
    for partition in range(rdd.getNumPartitions()):
        places = context.getPreferredLocs(rdd, partition)
        found.append({str(places.apply(number).host()) for number in range(places.size())})
    return found


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_its_rows_are_those_of_the_source(spark: SparkSession, filled: str, zone: str) -> None:
    plain = spark.read.format("bradbury").options(subscribe=filled, includeHeaders=True).load()
    near = read_local(spark, filled, options={"includeHeaders": True})
    assert near.schema == plain.schema
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        ordered = [frame.orderBy("partition", "offset").collect() for frame in (near, plain)]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert ordered[0] == ordered[1]
    assert len(ordered[0]) == 300


def test_its_tasks_prefer_the_host_of_the_leader(spark: SparkSession, filled: str) -> None:
    near = read_local(spark, filled, options={"minPartitions": 6})
    assert preferred(spark, near) == [{"127.0.0.1"}] * 6
    plain = spark.read.format("bradbury").options(subscribe=filled).load()
    assert preferred(spark, plain) == [set()]


def test_columns_and_options_are_those_of_the_source(spark: SparkSession, filled: str) -> None:
    options = {"assign": f'{{"{filled}":[1]}}', "startingOffsets": f'{{"{filled}":{{"1":98}}}}'}
    near = read_local(spark, schema="offset long, value binary", options=options)
    rows = [(row.offset, bytes(row.value)) for row in near.orderBy("offset").collect()]
    assert rows == [(98, b"295"), (99, b"298")]
    assert near.where("offset = 99").count() == 1


def test_a_topic_without_records_has_no_rows(spark: SparkSession, new_topic: NewTopic) -> None:
    near = read_local(spark, new_topic(2))
    assert near.collect() == []
    assert near.columns[0] == "key"


def test_what_is_wrong_is_said_at_the_call(spark: SparkSession, filled: str) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="topic 'absent' does not exist"):
        read_local(spark, "absent")
    with pytest.raises(ValueError, match="One of the following options must be specified"):
        read_local(spark)
    with pytest.raises(ValueError, match="there is no column 'values'"):
        read_local(spark, filled, schema="values binary")
    with pytest.raises(ValueError, match="has no columns"):
        read_local(spark, filled, schema="binary")
