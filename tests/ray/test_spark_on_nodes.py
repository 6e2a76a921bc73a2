"""Do the tasks of `read_local` run on the nodes of the leaders, with executors on several of them?

Two Ray nodes, each with an address, a broker and an executor of its own.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import ray
from pyspark.sql import DataFrame, SparkSession, functions as f

import bradbury
from bradbury.pipelines.spark.local_read import read_local
from bradbury.pipelines.spark.session import stop_spark
from bradbury.tests.support.ray.ray_nodes import RayNode

pytestmark = [
    pytest.mark.spark,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.long,  # two Ray nodes and a RayDP session of its own
]

ROLE = "spark-nodes"
ADDRESSES = {"s1": "127.0.0.2", "s2": "127.0.0.3"}
MEMORY = "512m"
PARTITIONS = 6
COUNT = 3_000


class Address(NamedTuple):
    """A node's own address; the network is that of the machine."""

    name: str
    address: str
    command: list[str]


@pytest.fixture
def two_nodes(ray_cluster: str) -> Iterator[list[RayNode]]:
    nodes: list[RayNode] = []
    try:
        for label, address in ADDRESSES.items():
            nodes.append(RayNode(ray_cluster, label, ROLE, Address(label, address, [])))
            nodes[-1].wait_until_alive()
        yield nodes
    finally:
        for node in nodes:
            node.end()
        for node in nodes:
            node.wait_until_dead()


@pytest.fixture
def cluster(two_nodes: list[RayNode], tmp_path: Path) -> Iterator[bradbury.Cluster]:
    data = str(tmp_path / "data")
    with bradbury.up(data, port=0, namespace=ROLE, node_label={"log-role": ROLE}) as running:
        yield running


@pytest.fixture
def spark(cluster: bradbury.Cluster) -> Iterator[SparkSession]:
    bundle = {"CPU": 1.0, "memory": float(512 * 2**20)}
    group = ray.util.placement_group(
        [bundle] * len(ADDRESSES),
        strategy="SPREAD",
        bundle_label_selector=[{"log-node": label} for label in ADDRESSES],
    )
    assert group.wait(120)
    session = bradbury.spark(
        "on-nodes",
        num_executors=2,
        executor_memory=MEMORY,
        placement_group=group,
        short_lived=True,
        configs={"spark.locality.wait": "300s"},  # however busy the machine is
        bootstrap=cluster.bootstrap_servers,
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    stop_spark()
    ray.util.remove_placement_group(group)


def places(spark: SparkSession, frame: DataFrame) -> tuple[set[tuple[int, str]], int]:
    """(partition of the topic, host of the task that read it), and the number of rows."""
    name = f"places-{id(frame)}"
    spark.sparkContext.setJobGroup(name, "read")
    rows = frame.select("partition", f.spark_partition_id().alias("task")).collect()
    (job,) = spark.sparkContext.statusTracker().getJobIdsForGroup(name)
    info: Any = spark.sparkContext.statusTracker().getJobInfo(job)
    store = spark.sparkContext._jsc.sc().statusStore()
    hosts: dict[int, str] = {}
    for stage in info.stageIds:
        tasks = store.taskList(stage, 0, 1_000)
        for number in range(tasks.size()):
            one = tasks.apply(number)
            hosts[one.partitionId()] = one.host()
    return {(row.partition, hosts[row.task]) for row in rows}, len(rows)


def test_each_task_runs_where_its_partitions_have_their_leader(
    cluster: bradbury.Cluster, spark: SparkSession
) -> None:
    with cluster.admin() as admin:
        admin.create_topic("spread", PARTITIONS)
        (topic,) = admin.describe_topics(["spread"])
    brokers = {node["node_id"]: node["address"] for node in cluster.status()["nodes"]}
    leaders = {(one.partition, brokers[one.leader].rpartition(":")[0]) for one in topic.partitions}
    assert {host for _, host in leaders} == set(ADDRESSES.values())
    with bradbury.Producer(cluster.bootstrap_servers) as producer:
        for number in range(COUNT):
            producer.send("spread", b"%d" % number, partition=number % PARTITIONS)
    # Both executors have to be there: one that joins later would get nothing of either read.
    wait = spark.sparkContext.parallelize(range(20), 20)
    assert wait.count() == 20

    near = read_local(spark, "spread", options={"minPartitions": PARTITIONS})
    assert places(spark, near) == (leaders, COUNT)
    assert sorted(int(row.value) for row in near.collect()) == list(range(COUNT))
    plain = spark.read.format("bradbury").options(subscribe="spread", minPartitions=PARTITIONS)
    found, count = places(spark, plain.load())
    assert (len(found), count) == (PARTITIONS, COUNT)
