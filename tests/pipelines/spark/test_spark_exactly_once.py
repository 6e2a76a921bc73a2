"""Does Spark's own machinery, failing as it does, neither lose nor double a row of the sink?

On local[2,4]: two tasks at a time, four tries. One session for all tests here; what needs no JVM is
in test_spark_transactional_sink.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as f
from pyspark.sql.streaming import StreamingQuery

import bradbury
from bradbury.benchmarks.support.kafka_broker import KafkaBroker
from bradbury.pipelines.spark.session import local_session
from bradbury.tests.compatibility.support.kafka_jars import require_kafka

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.long,
]  # long: a Spark session of its own; test_spark_transactional_sink has the rules without one

QUERY_SECONDS = 400  # so that one that hangs ends as a failure
NewTopic = Callable[..., str]


@pytest.fixture(
    scope="module",
    params=["ours", pytest.param("kafka", marks=[pytest.mark.java, pytest.mark.deep])],
)
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if request.param == "ours":
        yield request.getfixturevalue("bootstrap")
        return
    require_kafka()
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), heap="256m") as kafka:
        yield kafka.bootstrap_servers


@pytest.fixture(scope="module")
def spark(servers: str) -> Iterator[SparkSession]:
    session = local_session(master="local[2,4]", bootstrap=servers)
    session.sparkContext.setLogLevel("OFF")
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    yield session
    session.stop()


_names = iter(f"exactly-{number}" for number in range(1000))


@pytest.fixture
def new_topic(servers: str) -> NewTopic:
    def create(partitions: int = 1, values: range = range(0)) -> str:
        name = next(_names)
        with bradbury.Admin(servers) as admin, bradbury.Producer(servers) as producer:
            admin.create_topic(name, partitions)
            for partition in range(partitions if values else 0):
                share = [b"%d" % number for number in values[partition::partitions]]
                producer.send_batch(name, share, partition=partition).result(60)
        return name

    return create


def numbers(spark: SparkSession, topic: str, level: str = "read_committed") -> list[int]:
    reader = spark.read.format("bradbury").option("subscribe", topic)
    frame = reader.option("kafka.isolation.level", level).load()
    return sorted(int(row.value) for row in frame.select("value").collect())


def source(spark: SparkSession, topic: str, **options: object) -> DataFrame:
    reader = spark.readStream.format("bradbury").option("startingOffsets", "earliest")
    return reader.options(subscribe=topic, **options).load()


def copy(frame: DataFrame, into: str, checkpoint: Path, **options: object) -> StreamingQuery:
    """A query that writes to a topic until it has read all there is."""
    writer = frame.select("value").writeStream.format("bradbury").options(topic=into, **options)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


def forget_last_batch(checkpoint: Path) -> int:
    """As if the driver had died after the sink's commit and before its own note of it."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    for path in (commits / str(last), commits / f".{last}.crc"):
        path.unlink(missing_ok=True)
    return last


def fail_once(mark: Path, at: int) -> Callable[..., object]:
    """A function of rows that fails the first time that it gets one of them."""
    name = str(mark)

    @f.udf("string")
    def passed(value: bytes) -> str:
        if int(value) == at:
            try:
                os.close(os.open(name, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                raise RuntimeError("the row fails once")
        return value.decode().zfill(2_000)  # Spark sends rows on by 64 KiB

    return passed


def test_a_batch_that_is_run_again_after_the_drivers_death_is_there_once(
    spark: SparkSession, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, into = new_topic(2, range(100)), new_topic(3)
    frame = source(spark, topic, maxOffsetsPerTrigger=60, minPartitions=2)
    query = copy(frame, into, tmp_path)
    assert query.awaitTermination(QUERY_SECONDS)
    assert len(query.recentProgress) == 2
    forget_last_batch(tmp_path)
    query = copy(frame, into, tmp_path)
    assert query.awaitTermination(QUERY_SECONDS)
    assert [one["batchId"] for one in query.recentProgress] == [1]
    assert numbers(spark, into, "read_uncommitted") == list(range(100))


@pytest.mark.long  # one more way to fail; a killed driver and a killed worker are tried
def test_a_task_that_fails_after_many_rows_leaves_none_and_is_run_again(
    spark: SparkSession, new_topic: NewTopic, tmp_path: Path
) -> None:
    """Its writer sees a connection that is closed between two Arrow batches, as at the end."""
    topic, into = new_topic(1, range(300)), new_topic()
    passed = fail_once(tmp_path / "failed", at=250)
    frame = source(spark, topic, maxRecordsPerPartition=300).select(
        passed(f.col("value")).alias("value")
    )
    query = copy(frame, into, tmp_path / "checkpoint", **{"kafka.linger.ms": 0})
    assert query.awaitTermination(QUERY_SECONDS)
    assert (tmp_path / "failed").exists()
    assert numbers(spark, into) == list(range(300))

    passed = fail_once(tmp_path / "failed in a batch", at=250)
    rows = spark.range(0, 300, 1, 1).select(f.col("id").cast("string").cast("binary").alias("v"))
    into = new_topic()
    writer = rows.select(passed(f.col("v")).alias("value")).write.format("bradbury")
    writer.options(topic=into, deliveryGuarantee="exactly-once").mode("append").save()
    assert (tmp_path / "failed in a batch").exists()
    assert numbers(spark, into) == list(range(300))


@pytest.mark.long  # a process is killed; make test has others of the kind
def test_a_worker_that_is_killed_leaves_nothing_and_its_task_is_run_again(
    spark: SparkSession, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, into = new_topic(1, range(100)), new_topic()
    mark = str(tmp_path / "killed")

    def kill_once(batches: Iterator[object]) -> Iterator[object]:
        for number, batch in enumerate(batches):
            if number == 5:
                try:
                    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                    os._exit(1)
                except FileExistsError:
                    pass
            yield batch

    frame = source(spark, topic, batchRows=10).select("value").mapInArrow(kill_once, "value binary")
    assert copy(frame, into, tmp_path / "checkpoint").awaitTermination(QUERY_SECONDS)
    assert os.path.exists(mark)
    assert numbers(spark, into) == list(range(100))


def test_workers_in_turn_initialize_a_transactional_id_in_the_first_two_batches_alone(
    spark: SparkSession, servers: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    """Spark has another worker for each batch, as they wait in a queue; each commit raises the epoch.
    The first batch is committed by the driver, and leaves nothing to hand on.
    """
    topic, into = new_topic(1, range(100)), new_topic()
    query = copy(source(spark, topic, maxOffsetsPerTrigger=10), into, tmp_path)
    assert query.awaitTermination(QUERY_SECONDS)
    with bradbury.Admin(servers) as admin:
        (one,) = admin.describe_transactions([f"spark-{query.id}-0"])
    assert one.producer_epoch - 1 == len(query.recentProgress) == 10
    assert numbers(spark, into, "read_uncommitted") == list(range(100))


@pytest.mark.long  # one more way to fail; a killed driver and a killed worker are tried
def test_a_changed_number_of_tasks_is_refused_for_a_batch_that_comes_again(
    spark: SparkSession, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, into = new_topic(1, range(100)), new_topic()
    frame = source(spark, topic, minPartitions=2)
    assert copy(frame, into, tmp_path).awaitTermination(QUERY_SECONDS)
    forget_last_batch(tmp_path)
    for tasks in (1, 4):
        query = copy(source(spark, topic, minPartitions=tasks), into, tmp_path)
        with pytest.raises(Exception, match="Run the query as before") as refused:
            query.awaitTermination(QUERY_SECONDS)
        assert "Traceback" not in str(refused.value)
    assert copy(frame, into, tmp_path).awaitTermination(QUERY_SECONDS)
    assert numbers(spark, into, "read_uncommitted") == list(range(100))


@pytest.mark.long  # one more way to fail; a killed driver and a killed worker are tried
def test_two_writers_of_foreach_batch_write_each_batch_once(
    spark: SparkSession, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, even, all_rows = new_topic(1, range(60)), new_topic(), new_topic()
    failures = []

    def write(frame: DataFrame, into: str, **options: object) -> None:
        writer = frame.select("value").write.format("bradbury").mode("append")
        writer.options(topic=into, deliveryGuarantee="exactly-once", **options).save()

    def process(frame: DataFrame, batch_id: int) -> None:
        write(frame.where("int(string(value)) % 2 = 0"), even, sinkId=f"{even}-even")
        if batch_id == 1 and not failures:
            failures.append(batch_id)
            raise RuntimeError("between the two writers")
        write(frame, all_rows, sinkId=f"{even}-all", batchId=batch_id)

    def start(function: Callable[[DataFrame, int], None]) -> StreamingQuery:
        frame = source(spark, topic, maxOffsetsPerTrigger=20)
        writer = frame.writeStream.foreachBatch(function).trigger(availableNow=True)
        return writer.option("checkpointLocation", str(tmp_path)).start()

    with pytest.raises(Exception, match="between the two writers"):
        start(process).awaitTermination(QUERY_SECONDS)
    assert start(process).awaitTermination(QUERY_SECONDS)
    forget_last_batch(tmp_path)
    assert start(process).awaitTermination(QUERY_SECONDS)
    assert numbers(spark, even, "read_uncommitted") == list(range(0, 60, 2))
    assert numbers(spark, all_rows, "read_uncommitted") == list(range(60))

    forget_last_batch(tmp_path)
    with pytest.raises(Exception, match="needs the option sinkId"):
        start(lambda frame, _: write(frame, even)).awaitTermination(QUERY_SECONDS)


@pytest.mark.long  # one more way to fail; a killed driver and a killed worker are tried
def test_a_stream_that_reads_what_is_committed_sees_nothing_else(
    spark: SparkSession, servers: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, into = new_topic(), new_topic()
    level = {"kafka.isolation.level": "read_committed"}

    def copied() -> list[int]:
        frame = source(spark, topic, maxOffsetsPerTrigger=7, **level)
        assert copy(frame, into, tmp_path).awaitTermination(QUERY_SECONDS)
        return numbers(spark, into)

    with bradbury.Producer(servers, transactional_id=topic) as producer:
        for start in range(0, 100, 10):
            producer.begin()
            rows = [b"%d" % number for number in range(start, start + 10)]
            producer.send_batch(topic, rows, partition=0).result(60)
            if start % 20:
                producer.abort()
            else:
                producer.commit()
        committed = [number for number in range(100) if number // 10 % 2 == 0]
        assert numbers(spark, topic) == committed
        assert copied() == committed
        producer.begin()
        producer.send(topic, b"100", partition=0).result(60)
        assert numbers(spark, topic, "read_uncommitted") == list(range(101))
        assert copied() == committed
        producer.commit()
    while numbers(spark, topic) != [*committed, 100]:
        pass  # the markers of a commit may come a moment later
    assert copied() == [*committed, 100]
