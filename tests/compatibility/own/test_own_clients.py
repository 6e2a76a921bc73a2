"""The clients that come with Bradbury: in Python, on Ray, in Spark; with the versions they ran with."""

import shutil
from importlib.metadata import version

import pytest

import bradbury
from bradbury.tests.compatibility.support.compatibility import Recorder

pytestmark = pytest.mark.slow


def test_python(recorder: Recorder, servers: str, filled: str, new_name: str) -> None:
    tool = recorder.tool("Bradbury's own clients, Python", bradbury.__version__)
    with tool.call("Producer.send", "Producer.send_batch"), bradbury.Producer(servers) as producer:
        assert producer.send(filled, b"x", partition=1).result(60).offset == 0
        assert producer.send_batch(filled, [b"a", b"b"], partition=1).result(60).count == 2
    with (
        tool.call("Consumer.poll", "Consumer.commit"),
        bradbury.Consumer(
            filled, bootstrap=servers, group=f"{new_name}-own", auto_offset_reset="earliest"
        ) as consumer,
    ):
        rows = 0
        while rows < 13:
            rows += consumer.poll(5_000).num_rows
        consumer.commit()
        assert consumer.committed((filled, 0))[filled, 0] == 10
    with (
        tool.call("Admin.describe_log_dirs", "Admin.list_offsets"),
        bradbury.Admin(servers) as admin,
    ):
        assert admin.list_offsets([(filled, 0)], "earliest")[filled, 0].offset == 0
        assert admin.describe_log_dirs([filled])[0].partitions


@pytest.mark.ray
def test_ray(recorder: Recorder, servers: str, topic: str, ray_cluster: str) -> None:
    import ray

    tool = recorder.tool("Bradbury's actors on Ray", version("ray"))
    with tool.call("ProducerActor.send_batch", "ConsumerActor.poll"):
        producer = bradbury.ProducerActor.remote(servers)
        ray.get(producer.send_batch.remote(topic, [b"from a task"] * 5), timeout=60)
        consumer = bradbury.ConsumerActor.remote(
            topic, bootstrap=servers, auto_offset_reset="earliest"
        )
        rows = 0
        while rows < 5:
            rows += ray.get(consumer.poll.remote(), timeout=60).num_rows
        ray.kill(producer)
        ray.kill(consumer)


@pytest.mark.spark
@pytest.mark.deep  # a Java machine for two lines; tests/pipelines/spark/test_spark_local.py has one, and more
@pytest.mark.skipif(shutil.which("java") is None, reason="needs Java 17 or later")
def test_spark(recorder: Recorder, servers: str, filled: str) -> None:
    pytest.importorskip("pyspark")
    from bradbury.pipelines.spark.session import local_session

    tool = recorder.tool("Bradbury's data source for PySpark", version("pyspark"))
    spark = local_session(master="local[1]", bootstrap=servers)
    try:
        options = {"kafka.bootstrap.servers": servers}
        with tool.call("spark.read.format"):
            read = spark.read.format("bradbury").options(**options).option("subscribe", filled)
            frame = read.load()
            assert frame.count() == 10
        with tool.call("DataFrame.write.format"):
            writer = frame.selectExpr("key", "value").write.format("bradbury").mode("append")
            writer.options(**options).option("topic", filled).save()
            assert read.load().count() == 20
    finally:
        spark.stop()
