"""Does the same code run on RayDP's executors, with the log in the same Ray cluster?

One session for all of it: four JVMs take half a minute to start. The local session of this folder
has ended by now: a process has one.
"""

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import ray
from pyarrow.dataset import dataset
from pyspark.sql import SparkSession, functions as f

import bradbury
from bradbury.pipelines.loads import load_engine
from bradbury.pipelines.loads.load_task import LoadTask, TaskResult
from bradbury.pipelines.spark.executors import executor_work
from bradbury.pipelines.spark.session import stop_spark
from bradbury.pipelines.spark.tasks.spark_failure import SparkUnavailable

pytestmark = [
    pytest.mark.spark,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.long,  # bradbury demo and README.md have such a session in each run
]


@pytest.fixture(scope="module")
def spark(ray_cluster: str, bootstrap: str) -> Iterator[SparkSession]:
    session = bradbury.spark(
        "bradbury-test", executor_memory="512M", short_lived=True, bootstrap=bootstrap
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    stop_spark()


def numbers(spark: SparkSession, topic: str) -> list[int]:
    frame = spark.read.format("bradbury").option("subscribe", topic).load()
    return sorted(int(row.value) for row in frame.select("value").collect())


def test_read_write_and_stream_on_executors_of_the_ray_cluster(
    spark: SparkSession,
    admin: bradbury.Admin,
    producer: bradbury.Producer,
    tmp_path: Path,
) -> None:
    for topic in ("raydp-in", "raydp-copy", "raydp-stream"):
        admin.create_topic(topic, 2)
    producer.send_batch("raydp-in", [b"%d" % number for number in range(1_000)]).result(60)
    assert numbers(spark, "raydp-in") == list(range(1_000))

    frame = spark.read.format("bradbury").option("subscribe", "raydp-in").load()
    frame.select("value").write.format("bradbury").option("topic", "raydp-copy").mode(
        "append"
    ).save()
    assert numbers(spark, "raydp-copy") == list(range(1_000))

    stream = spark.readStream.format("bradbury").option("subscribe", "raydp-in")
    query = (
        stream.option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 600)
        .load()
        .select("value")
        .writeStream.format("bradbury")
        .option("topic", "raydp-stream")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert sum(batch["numInputRows"] for batch in query.recentProgress) == 1_000
    assert numbers(spark, "raydp-stream") == list(range(1_000))


def killing_executors(marks: dict[int, Path]) -> Callable[..., object]:
    """A function of rows that ends its executor's JVM the first time that it gets one of `marks`."""
    names = {at: str(mark) for at, mark in marks.items()}

    @f.udf("string")
    def passed(value):  # type: ignore[no-untyped-def]  # Spark would take hints for another kind
        if name := names.get(int(value)):
            with suppress(FileExistsError):
                os.close(os.open(name, os.O_CREAT | os.O_EXCL))
                parents = psutil.Process().parents()
                executor = next(one for one in parents if one.name() == "java")
                os.kill(executor.pid, signal.SIGKILL)
        return value.decode().zfill(2_000)  # Spark sends rows on by 64 KiB

    return passed


def test_a_cached_result_has_as_many_tasks_as_it_has_data_for(spark: SparkSession) -> None:
    """Spark keeps the tasks that its shuffle began with otherwise, and so does all after it."""
    spark.conf.set("spark.sql.adaptive.coalescePartitions.initialPartitionNum", "50")
    counted = spark.range(1_000).groupBy((f.col("id") % 36).alias("group")).count().cache()
    assert counted.count() == 36
    assert counted.rdd.getNumPartitions() <= 2
    counted.unpersist()
    spark.conf.unset("spark.sql.adaptive.coalescePartitions.initialPartitionNum")


def test_its_java_leaves_nothing_in_the_folder_of_all_rays_of_the_machine(
    spark: SparkSession,
) -> None:
    """The driver's and the application master's unpack Ray's library there, 40 MB each."""
    logs = ray._private.worker._global_node.get_logs_dir_path()  # type: ignore[union-attr]
    unpacked: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"-Dray.logging.dir={logs}" in (process / "cmdline").read_text().split("\0"):
                library = r"(/tmp/ray/\d+)/libcore_worker_library_java\.so"
                unpacked.update(re.findall(library, (process / "maps").read_text()))
    assert len(unpacked) >= 2
    assert [folder for folder in unpacked if Path(folder).exists()] == []

    driver = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    assert (Path(logs) / f"slf4j-{driver}.log").exists()


def test_the_work_is_done_by_an_actor_of_the_ray_cluster(spark: SparkSession) -> None:
    names = [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)]
    assert [name for name in names if name.startswith("raydp-executor")]
    (work,) = executor_work(spark)
    assert work.host in {node["NodeManagerAddress"] for node in ray.nodes()}
    assert work.completed_tasks > 0
    with pytest.raises(SparkUnavailable, match="has a Spark session already"):
        bradbury.spark()


def test_executors_that_are_killed_while_they_write_lose_and_double_nothing(
    spark: SparkSession,
    admin: bradbury.Admin,
    producer: bradbury.Producer,
    tmp_path: Path,
) -> None:
    """Ray and Spark both replace the executor; the first rows of the killed tasks were sent already."""
    for topic in ("raydp-killed-in", "raydp-killed-out"):
        admin.create_topic(topic, 2)
    for partition in range(2):
        share = [b"%d" % number for number in range(partition, 1_000, 2)]
        producer.send_batch("raydp-killed-in", share, partition=partition).result(60)
    marks = {at: tmp_path / f"killed at {at}" for at in (250, 777)}
    query = (
        spark.readStream.format("bradbury")
        .options(subscribe="raydp-killed-in", startingOffsets="earliest", maxOffsetsPerTrigger=600)
        .load()
        .select(killing_executors(marks)("value").alias("value"))
        .writeStream.format("bradbury")
        .option("topic", "raydp-killed-out")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300), query.status
    assert query.exception() is None
    assert all(mark.exists() for mark in marks.values())
    assert numbers(spark, "raydp-killed-out") == list(range(1_000))


def kills_its_executor_once(mark: str) -> Callable[[LoadTask], TaskResult]:
    """Behind the files of one task, which are then of no commit."""
    run = load_engine.run_task

    def run_task(task: LoadTask) -> TaskResult:
        result = run(task)
        with suppress(FileExistsError):
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            executor = next(one for one in psutil.Process().parents() if one.name() == "java")
            os.kill(executor.pid, signal.SIGKILL)
        return result

    return run_task


def test_an_executor_that_is_killed_while_it_loads_loses_and_doubles_nothing(
    spark: SparkSession,
    bootstrap: str,
    admin: bradbury.Admin,
    producer: bradbury.Producer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admin.create_topic("raydp-load", 2)
    for partition in range(2):
        numbers = [b"%d" % number for number in range(partition, 20_000, 2)]
        producer.send_batch("raydp-load", numbers, partition=partition).result(60)
    mark = tmp_path / "killed"
    monkeypatch.setattr(load_engine, "run_task", kills_its_executor_once(str(mark)))
    to = str(tmp_path / "table")
    done = bradbury.load(
        "raydp-load",
        to,
        bootstrap_servers=bootstrap,
        value_decoder="utf8",
        engine="spark",
        tasks=4,
        commit_records=10_000,
    )
    assert mark.exists()
    assert (done.records, done.commits) == (20_000, 2)
    rows = dataset(to, format="parquet", partitioning="hive").to_table()
    assert sorted(map(int, rows["value"].to_pylist())) == list(range(20_000))


def test_the_end_of_a_session_removes_the_libraries_that_its_java_has_unpacked(
    spark: SparkSession,
) -> None:
    """Ray ends the executors' JVMs with SIGKILL; what they would remove at their end stays."""
    logs = ray._private.worker._global_node.get_logs_dir_path()  # type: ignore[union-attr]
    assert spark.range(1_000).groupBy((f.col("id") % 7).alias("group")).count().count() == 7
    unpacked: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"-Dray.logging.dir={logs}" in (process / "cmdline").read_text().split("\0"):
                found = re.findall(r"/\S*/liblz4-java-\d+\.so", (process / "maps").read_text())
                unpacked.update(found)
    assert unpacked
    stop_spark()
    left = [path for path in unpacked if Path(path).exists() or Path(f"{path}.lck").exists()]
    assert left == []
