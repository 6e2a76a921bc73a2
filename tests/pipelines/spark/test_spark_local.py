"""Does Spark itself read, write and stream topics? On local[2,4]: two tasks at a time, four tries.

One session for all tests here. What needs no JVM is in the other files of this folder.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession, functions as f
from pyspark.sql.streaming import StreamingQuery

import bradbury
from bradbury.pipelines.spark.session import register

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NewTopic = Callable[..., str]


def load(spark: SparkSession, topic: str, **options: object) -> DataFrame:
    return spark.read.format("bradbury").options(subscribe=topic, **options).load()


def values(frame: DataFrame) -> list[bytes]:
    return [bytes(row.value) for row in frame.select("value").collect()]


def numbered(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


@pytest.fixture
def filled(producer: bradbury.Producer, new_topic: NewTopic) -> str:
    """A topic of 3 partitions with 0..299 in it, number modulo 3 the partition."""
    topic = new_topic(3)
    for number in range(300):
        producer.send(topic, b"%d" % number, key=b"k", partition=number % 3, headers={"n": b"1"})
    producer.flush()
    return topic


# --- batch read ------------------------------------------------------------------------------


def test_earliest_to_latest_is_what_was_produced(spark: SparkSession, filled: str) -> None:
    frame = load(spark, filled, includeHeaders=True)
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    rows = frame.orderBy("partition", "offset").collect()
    assert [(row.topic, row.partition, row.offset, int(row.value)) for row in rows] == [
        (filled, partition, offset, offset * 3 + partition)
        for partition in range(3)
        for offset in range(100)
    ]
    assert {bytes(row.key) for row in rows} == {b"k"}
    assert rows[0].headers[0].key == "n"
    assert time.time() - rows[0].timestamp.timestamp() < 600


def test_the_format_is_found_without_registration(
    spark: SparkSession, bootstrap: str, filled: str
) -> None:
    fresh = spark.newSession()
    frame = fresh.read.format("Bradbury").option("kafka.bootstrap.servers", bootstrap)
    assert frame.option("subscribe", filled).load().count() == 300


def test_spark_searches_for_no_sources_where_there_is_only_ours(
    spark: SparkSession, filled: str
) -> None:
    """Its search starts three Python processes. What it finds does not know where the cluster is."""
    fresh = spark.newSession().read.format("bradbury").option("subscribe", filled)
    assert fresh.load().count() == 300


def test_a_schema_is_a_projection(spark: SparkSession, filled: str) -> None:
    frame = spark.read.format("bradbury").option("subscribe", filled)
    rows = frame.schema("offset long, value binary").load().collect()
    assert len(rows) == 300
    assert rows[0].asDict().keys() == {"offset", "value"}


def test_filters_are_pushed_down_and_right_with_and_without_push_down(
    spark: SparkSession, filled: str
) -> None:
    wanted = "partition = 1 and offset >= 98 and value is not null"
    rows = load(spark, filled).where(wanted)
    assert "Filter (offset" not in rows._jdf.queryExecution().executedPlan().toString()
    assert values(rows) == [b"295", b"298"]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert values(load(spark, filled).where(wanted)) == [b"295", b"298"]
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_options_split_and_pack_tasks(spark: SparkSession, filled: str) -> None:
    assert load(spark, filled).rdd.getNumPartitions() == 1
    split = load(spark, filled, minPartitions=6)
    assert split.rdd.getNumPartitions() == 6
    assert sorted(map(int, values(split))) == list(range(300))
    assert load(spark, filled, maxRecordsPerPartition=30).rdd.getNumPartitions() == 12


def test_an_empty_topic_has_no_rows_and_limit_ends_early(
    spark: SparkSession, filled: str, new_topic: NewTopic
) -> None:
    assert load(spark, new_topic(2)).collect() == []
    assert len(load(spark, filled).limit(3).collect()) == 3
    assert load(spark, filled).count() == 300


def test_what_is_wrong_with_options_is_said(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="One of the following options must be specified"):
        spark.read.format("bradbury").load()
    with pytest.raises(Exception, match="can't be latest for batch queries"):
        load(spark, "t", startingOffsets="latest").collect()


def last_lines(error: BaseException) -> list[str]:
    """What stands under a Python traceback, without Spark's own code for it."""
    return [line for line in str(error).splitlines() if not line.startswith(" SQLSTATE")]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "absent"}, "topic 'absent' does not exist; create it with `bradbury"),
        ({"subscribe": "t", "kafka.bootstrap.servers": "127.0.0.1:1"}, "is the cluster up?"),
        ({"subscribe": "t", "startingOffsets": "latest"}, "can't be latest for batch queries"),
    ],
)
def test_a_read_that_fails_ends_with_one_line_of_cause(
    spark: SparkSession, options: dict[str, str], said: str
) -> None:
    with pytest.raises(Exception, match=r"PYTHON_DATA_SOURCE_ERROR") as failed:
        spark.read.format("bradbury").options(**options).load().collect()
    (line,) = last_lines(failed.value)
    assert said in line
    assert "Traceback" not in str(failed.value)


def test_a_task_that_fails_says_why_in_one_line(spark: SparkSession, filled: str) -> None:
    beyond = {"endingOffsets": json.dumps({filled: {"0": 100, "1": 100, "2": 101}})}
    frame = load(spark, filled, **beyond, **{"kafkaConsumer.pollTimeoutMs": 500})
    with pytest.raises(Exception, match="do not exist: the log ends at 100") as failed:
        frame.collect()
    assert len(last_lines(failed.value)) == 2  # and Spark's line that a worker raised it


@pytest.mark.long  # one more query; what it decides is tried without a JVM
def test_an_ending_offset_of_a_stream_is_refused_as_by_sparks_kafka_connector(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = spark.readStream.format("bradbury").options(subscribe="t", endingOffsets="latest")
    for trigger in ({"availableNow": True}, {"processingTime": "1 second"}):
        checkpoint = tmp_path / next(iter(trigger))
        writer = stream.load().writeStream.format("noop").trigger(**trigger)
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        with pytest.raises(Exception, match="ending offset not valid in streaming") as failed:
            query.awaitTermination(60)
        assert "UnboundLocalError" not in str(failed.value)


# --- batch write -----------------------------------------------------------------------------


@pytest.mark.long  # tests/clients tries where keys go
def test_keys_go_where_every_kafka_client_puts_them(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic
) -> None:
    kafka = pytest.importorskip("kafka")
    topic = new_topic(5)
    frame = spark.range(200).selectExpr(
        "concat('key-', id) as key", "cast(id as string) as value", "id as ignored"
    )
    frame.write.format("bradbury").option("topic", topic).mode("append").save()
    consumer = kafka.KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=2_000
    )
    read = list(consumer)
    consumer.close()
    murmur2 = kafka.partitioner.murmur2
    assert sorted(int(record.value) for record in read) == list(range(200))
    assert all(record.partition == (murmur2(record.key) & 0x7FFFFFFF) % 5 for record in read)


def test_rows_may_name_topic_partition_and_headers(
    spark: SparkSession, new_topic: NewTopic
) -> None:
    one, two = new_topic(2), new_topic(2)
    frame = spark.range(20).select(
        f.col("id").cast("string").cast("binary").alias("value"),
        f.when(f.col("id") < 10, one).otherwise(two).alias("topic"),
        f.when(f.col("id") % 2 == 1, 1).cast("int").alias("partition"),
        f.expr("array(struct('h' as key, cast('x' as binary) as value))").alias("headers"),
    )
    frame.write.format("bradbury").mode("append").save()
    first = load(spark, one, includeHeaders=True).collect()
    assert sorted(int(row.value) for row in first) == list(range(10))
    assert sorted(map(int, values(load(spark, two)))) == list(range(10, 20))
    assert {row.partition for row in first if int(row.value) % 2} == {1}
    assert {row.headers[0].key for row in first} == {"h"}


@pytest.mark.long  # one more query; what it decides is tried without a JVM
def test_keys_and_values_may_be_null(spark: SparkSession, new_topic: NewTopic) -> None:
    topic = new_topic()
    frame = spark.createDataFrame(
        [("a", "1"), ("b", None), (None, "2")], "key string, value string"
    ).coalesce(1)
    frame.write.format("bradbury").option("topic", topic).mode("append").save()
    rows = load(spark, topic).orderBy("offset").select("key", "value").collect()
    assert [(row.key, row.value) for row in rows] == [(b"a", b"1"), (b"b", None), (None, b"2")]


@pytest.mark.long  # one more query; what it decides is tried without a JVM
def test_the_option_topic_wins_over_the_column(spark: SparkSession, new_topic: NewTopic) -> None:
    chosen, named = new_topic(), new_topic()
    frame = spark.range(3).selectExpr("cast(id as string) value", f"'{named}' topic")
    frame.write.format("bradbury").option("topic", chosen).mode("append").save()
    assert (load(spark, chosen).count(), load(spark, named).count()) == (3, 0)


@pytest.mark.long  # one more query, of several seconds each time
def test_rows_that_cannot_be_written_are_refused(spark: SparkSession, new_topic: NewTopic) -> None:
    topic = new_topic(2)

    def write(expressions: list[str], mode: str = "append", **options: str) -> None:
        frame = spark.range(3).selectExpr(*expressions)
        frame.write.format("bradbury").options(**options).mode(mode).save()

    with pytest.raises(Exception, match="Required attribute 'value' not found"):
        write(["id as body"], topic=topic)
    with pytest.raises(Exception, match="value attribute unsupported type bigint"):
        write(["id as value"], topic=topic)
    with pytest.raises(Exception, match="topic option required"):
        write(["'x' as value"])
    with pytest.raises(Exception, match="null topic present in the data"):
        write(["'x' as value", "cast(null as string) as topic"])
    with pytest.raises(Exception, match="has partitions 0 to 1, not 2"):
        write(["'x' as value", "cast(id as int) as partition"], topic=topic)
    with pytest.raises(Exception, match=r'Use \.mode\("append"\)'):
        write(["'x' as value"], mode="overwrite", topic=topic)
    with pytest.raises(Exception, match=r"(?i)append"):
        write(["'x' as value"], mode="errorifexists", topic=topic)


def refuses_misspelt(write: DataFrameWriter) -> None:
    with pytest.raises(Exception, match="topic 'misspelt.*' does not exist") as failed:
        write.mode("append").save()
    (line,) = (line for line in last_lines(failed.value) if "misspelt" in line)
    assert "`bradbury topics create misspelt" in line
    assert '.option("kafka.allow.auto.create.topics", "true")' in line


@pytest.mark.long  # three jobs of Spark
def test_a_misspelt_topic_is_not_made_unless_the_write_may(
    spark: SparkSession, admin: bradbury.Admin, filled: str, tmp_path: Path
) -> None:
    allowed = {"kafka.allow.auto.create.topics": "true"}
    rows = spark.range(3).selectExpr("cast(id as string) as value")
    refuses_misspelt(rows.write.format("bradbury").option("topic", "misspelt"))
    stream = spark.readStream.format("bradbury").options(subscribe=filled).load().select("value")
    query = (
        stream.writeStream.format("bradbury")
        .options(topic="misspelt", checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(Exception, match="topic 'misspelt' does not exist"):
        query.awaitTermination(60)
    assert "misspelt" not in admin.list_topics()
    rows.write.format("bradbury").options(topic="misspelt", **allowed).mode("append").save()
    assert len(values(load(spark, "misspelt"))) == 3


@pytest.mark.long  # asked for by the tasks: four tries, each as long as a new topic may be unknown
def test_a_misspelt_topic_of_a_row_is_not_made_unless_the_write_may(
    spark: SparkSession, admin: bradbury.Admin
) -> None:
    rows = spark.range(3).selectExpr("cast(id as string) as value", "'misspelt-row' as topic")
    write = rows.coalesce(1).write.format("bradbury")
    refuses_misspelt(write)
    assert "misspelt-row" not in admin.list_topics()
    write.option("kafka.allow.auto.create.topics", "true").mode("append").save()
    assert len(values(load(spark, "misspelt-row"))) == 3


def test_a_transactional_id_is_refused(spark: SparkSession, filled: str) -> None:
    rows = spark.range(3).selectExpr("cast(id as string) as value")
    with pytest.raises(Exception, match="'transactional.id' is not supported"):
        rows.write.format("bradbury").options(topic=filled, **{"kafka.transactional.id": "x"}).mode(
            "append"
        ).save()
    assert load(spark, filled).count() == 300


@pytest.mark.long  # one more query, of several seconds each time
def test_a_task_that_fails_once_is_run_again_and_every_row_is_there(
    spark: SparkSession, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic()
    mark = str(tmp_path / "died")

    @f.udf("string")
    def die_once(value: str) -> str:
        if value == "7":
            try:
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return value
            os._exit(1)
        return value

    frame = spark.range(0, 20, 1, 2).select(die_once(f.col("id").cast("string")).alias("value"))
    frame.write.format("bradbury").option("topic", topic).mode("append").save()
    assert os.path.exists(mark)
    assert set(map(int, values(load(spark, topic)))) == set(range(20))


# --- streams ---------------------------------------------------------------------------------


def start(
    spark: SparkSession, topic: str, into: str, checkpoint: Path, **options: object
) -> StreamingQuery:
    """A query that copies values, with everything there is now, then stops."""
    stream = spark.readStream.format("bradbury").options(subscribe=topic, **options).load()
    return (
        stream.select("value")
        .writeStream.format("bradbury")
        .option("topic", into)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


@pytest.mark.long  # several queries of Spark
def test_streams_that_start_at_once_leave_the_function_they_share_as_it_was(
    spark: SparkSession, new_topic: NewTopic, tmp_path: Path, filled: str
) -> None:
    """Spark adds to its environment, without a lock, what is not there: see `_whole_environment`."""
    beside = register(spark.newSession())
    sources = beside._jsparkSession.sessionState().dataSourceManager()
    function = sources.lookupDataSource("bradbury").dataSourceCls()
    before = set(function.envVars())
    into = [new_topic(1), new_topic(1)]
    options = {"startingOffsets": "earliest"}
    queries = [start(beside, filled, one, tmp_path / one, **options) for one in into]
    assert all(query.awaitTermination(120) for query in queries)
    assert set(function.envVars()) == before
    assert [load(beside, one).count() for one in into] == [300, 300]


def test_available_now_copies_everything_once_in_limited_batches_and_goes_on_after(
    spark: SparkSession,
    producer: bradbury.Producer,
    new_topic: NewTopic,
    tmp_path: Path,
    filled: str,
) -> None:
    into = new_topic(2)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 100}
    query = start(spark, filled, into, tmp_path, **options)
    assert query.awaitTermination(120)
    assert [batch["numInputRows"] for batch in query.recentProgress] == [99, 99, 99, 3]
    source = query.recentProgress[-1]["sources"][0]
    ends = json.loads(source["endOffset"])
    assert (ends[filled], [*ends["@topics"]]) == ({"0": 100, "1": 100, "2": 100}, [filled])
    assert json.loads(source["latestOffset"]) == {filled: ends[filled]}
    assert sorted(map(int, values(load(spark, into)))) == list(range(300))

    producer.send_batch(filled, numbered(300, 310)).result(60)
    assert start(spark, filled, into, tmp_path, **options).awaitTermination(120)
    assert sorted(map(int, values(load(spark, into)))) == list(range(310))


@pytest.mark.long  # one more query, of several seconds each time
def test_a_query_that_dies_in_its_first_batch_loses_nothing(
    spark: SparkSession, producer: bradbury.Producer, new_topic: NewTopic, tmp_path: Path
) -> None:
    """Spark forgets the initial offset of a Python source; asked again, "latest" is later."""
    topic = new_topic()
    died = tmp_path / "died"
    seen: list[int] = []

    def process(batch: DataFrame, batch_id: int) -> None:
        rows = [int(row.value) for row in batch.collect()]
        if rows and not died.exists():
            died.touch()
            raise RuntimeError("the first batch with rows fails")
        seen.extend(rows)

    def run() -> StreamingQuery:
        stream = spark.readStream.format("bradbury").option("subscribe", topic)
        return (
            stream.option("startingOffsets", "latest")
            .option("minOffsetsPerTrigger", 1)
            .load()
            .writeStream.foreachBatch(process)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )

    query = run()
    wait_until(lambda: (tmp_path / "checkpoint" / "commits" / "0").exists() or query.exception())
    producer.send_batch(topic, numbered(0, 10)).result(60)
    with pytest.raises(Exception, match="the first batch with rows fails"):
        query.awaitTermination(60)
    producer.send_batch(topic, numbered(10, 15)).result(60)
    query = run()
    wait_until(lambda: len(seen) >= 15 or query.exception())
    query.stop()
    assert seen == list(range(15))


def test_an_idle_stream_runs_no_batches_and_then_takes_what_comes(
    spark: SparkSession, producer: bradbury.Producer, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, into = new_topic(3), new_topic()
    query = (
        spark.readStream.format("bradbury")
        .option("subscribe", topic)
        .load()
        .select("value")
        .writeStream.format("bradbury")
        .option("topic", into)
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        wait_until(lambda: (tmp_path / "commits" / "0").exists() or query.exception())
        producer.send(topic, b"1", partition=2).result(60)
        wait_until(lambda: (tmp_path / "commits" / "1").exists() or query.exception())
        query.processAllAvailable()
        before = sorted(os.listdir(tmp_path / "offsets"))
        query.processAllAvailable()  # returns once Spark has seen that nothing is new
        assert sorted(os.listdir(tmp_path / "offsets")) == before
        assert values(load(spark, into)) == [b"1"]
    finally:
        query.stop()


@pytest.mark.long  # one more query, of several seconds each time
def test_complete_mode_appends_every_result(
    spark: SparkSession, new_topic: NewTopic, tmp_path: Path, filled: str
) -> None:
    into = new_topic()
    stream = spark.readStream.format("bradbury").option("subscribe", filled)
    query = (
        stream.option("startingOffsets", "earliest")
        .load()
        .groupBy("partition")
        .count()
        .selectExpr("to_json(struct(*)) as value")
        .writeStream.outputMode("complete")
        .format("bradbury")
        .option("topic", into)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    results = [json.loads(value) for value in values(load(spark, into))]
    assert {(one["partition"], one["count"]) for one in results} == {(0, 100), (1, 100), (2, 100)}


@pytest.mark.long  # two queries more
def test_update_mode_upserts_into_a_compacted_topic(
    spark: SparkSession,
    new_topic: NewTopic,
    producer: bradbury.Producer,
    tmp_path: Path,
) -> None:
    """As docs/spark.md has it: the last value of each key is its result."""
    topic, into = new_topic(2), new_topic(2, cleanup_policy="compact")

    def upsert(batch: DataFrame, _batch_id: int) -> None:
        writer = batch.write.format("bradbury").mode("append").option("topic", into)
        writer.option("sinkId", into).save()

    def go_on() -> None:
        rows = spark.readStream.format("bradbury").option("subscribe", topic)
        counts = rows.option("startingOffsets", "earliest").load().groupBy("key").count()
        query = (
            counts.selectExpr("key", "cast(count as string) as value")
            .writeStream.outputMode("update")
            .foreachBatch(upsert)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    written = []
    for keys in ((b"a", b"b", b"a"), (b"a", b"c")):
        for key in keys:
            producer.send(topic, b"", key=key)
        producer.flush()
        go_on()
        rows = load(spark, into, **{"kafka.isolation.level": "read_committed"})
        found = rows.orderBy("timestamp", "partition", "offset").collect()
        written.append({bytes(row.key): int(row.value) for row in found})
    assert written == [{b"a": 2, b"b": 1}, {b"a": 3, b"b": 1, b"c": 1}]


def wait_until(condition: Callable[[], object], timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
