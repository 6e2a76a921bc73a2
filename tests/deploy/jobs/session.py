"""The session of a job: its executors on other nodes of the Ray cluster, or Spark in this process."""

import contextlib
from collections.abc import Iterator, Mapping

import ray
from pyspark.sql import SparkSession

import bradbury
from bradbury.pipelines.spark.executors import on_other_nodes
from bradbury.pipelines.spark.session import local_session, stop_spark

EXECUTOR_MEMORY = "1g"
MOST_EXECUTORS = 2
SETTINGS = {"spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "2"}


@contextlib.contextmanager
def in_this_process(bootstrap: str) -> Iterator[SparkSession]:
    spark = local_session(
        "jobs", master="local[4]", short_lived=True, bootstrap=bootstrap, configs=SETTINGS
    )
    try:
        yield spark
    finally:
        spark.stop()


@contextlib.contextmanager
def on_other_machines(
    name: str, *, executor_cores: int = 1, configs: Mapping[str, str] | None = None
) -> Iterator[tuple[SparkSession, str]]:
    """A session, and the brokers' addresses. This process is in the Ray cluster meanwhile."""
    servers = bradbury.connect().bootstrap_servers
    group = on_other_nodes(executor_cores, EXECUTOR_MEMORY, most=MOST_EXECUTORS)
    assert group is not None, "no other node of the Ray cluster has room for an executor"
    try:
        yield (
            bradbury.spark(
                name,
                num_executors=group.bundle_count,
                executor_cores=executor_cores,
                executor_memory=EXECUTOR_MEMORY,
                placement_group=group,
                short_lived=True,
                configs={**SETTINGS, **(configs or {})},
            ),
            servers,
        )
    finally:
        stop_spark()
        ray.util.remove_placement_group(group)
        ray.shutdown()
