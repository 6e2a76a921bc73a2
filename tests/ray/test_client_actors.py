"""Do the clients work as Ray actors, and find their cluster by themselves?"""

import os
import signal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import ray

import bradbury
from bradbury.protocol.errors import OffsetOutOfRange

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROWS = 2000


@pytest.fixture
def topic(cluster: bradbury.Cluster, request: pytest.FixtureRequest) -> str:
    name = f"actors-{request.node.name}".replace("[", "-").replace("]", "")
    with bradbury.Admin(cluster.bootstrap_servers) as admin:
        admin.create_topic(name, 2)
    return name


def table(count: int) -> pa.Table:
    numbers = [b"%d" % number for number in range(count)]
    return pa.table({"key": [b"%d" % (number % 10) for number in range(count)], "value": numbers})


def values(tables: list[pa.Table]) -> list[int]:
    return [int(value) for one in tables for value in one.column("value").to_pylist()]


def poll_until(consumer: Any, count: int) -> list[pa.Table]:
    tables: list[pa.Table] = []
    while sum(one.num_rows for one in tables) < count:
        tables.append(ray.get(consumer.poll.remote(timeout_ms=30_000), timeout=60))
        assert tables[-1].num_rows
    return tables


def test_actors_and_tasks_find_the_brokers_without_an_address(topic: str) -> None:
    @ray.remote(num_cpus=0)
    def produce(rows: pa.Table) -> int:
        with bradbury.Producer() as producer:
            return producer.send_batch(topic, rows).result(30).count

    assert ray.get(produce.remote(table(ROWS)), timeout=60) == ROWS
    consumer = bradbury.ConsumerActor.remote(topic, group=topic, auto_offset_reset="earliest")
    tables = poll_until(consumer, ROWS)
    assert sorted(values(tables)) == list(range(ROWS))
    ray.get(consumer.close.remote())
    ray.kill(consumer)


def test_a_polled_table_is_read_from_the_object_store_without_a_copy(topic: str) -> None:
    producer = bradbury.ProducerActor.remote()
    ray.get(producer.send_batch.remote(topic, table(ROWS)), timeout=60)
    consumer = bradbury.ConsumerActor.remote(topic, auto_offset_reset="earliest")
    reference = consumer.poll.remote(timeout_ms=30_000)
    first, second = ray.get(reference, timeout=60), ray.get(reference)
    addresses = [
        np.asarray(one.column("offset").chunk(0)).__array_interface__["data"][0]
        for one in (first, second)
    ]
    assert addresses[0] == addresses[1]  # the same shared memory
    for actor in (producer, consumer):
        ray.kill(actor)


def test_a_restarted_consumer_goes_on_where_its_group_committed(topic: str) -> None:
    producer = bradbury.ProducerActor.remote()
    ray.get(producer.send_batch.remote(topic, table(ROWS)), timeout=60)
    consumer = bradbury.ConsumerActor.remote(
        topic,
        group=topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6_000,
    )
    before = ray.get(consumer.poll.remote(max_records=700, timeout_ms=30_000), timeout=60)
    ray.get(consumer.commit.remote())
    ray.get(consumer.poll.remote(max_records=300, timeout_ms=30_000))  # not committed
    pid = ray.get(consumer.__ray_call__.remote(lambda _: os.getpid()))
    os.kill(pid, signal.SIGKILL)
    while True:
        try:
            ray.get(consumer.assignment.remote(), timeout=60)
            break
        except ray.exceptions.RayActorError:
            continue  # the call met the dying actor
    after = poll_until(consumer, ROWS - before.num_rows)
    assert sorted(values([before, *after])) == list(range(ROWS))
    for actor in (producer, consumer):
        ray.kill(actor)


def test_single_records_are_flushed_and_failures_are_raised_by_flush(topic: str) -> None:
    producer = bradbury.ProducerActor.remote()
    for number in range(20):
        producer.send.remote(topic, b"%d" % number, partition=0)
    ray.get(producer.flush.remote(30), timeout=60)
    last = ray.get(producer.send.remote(topic, b"20", partition=0, wait=True))
    assert (last.partition, last.offset) == (0, 20)
    ray.get(producer.close.remote())
    ray.kill(producer)


def test_errors_reach_the_caller_as_what_they_are(topic: str) -> None:
    consumer = bradbury.ConsumerActor.remote(topic, auto_offset_reset="none")
    with pytest.raises(OffsetOutOfRange):
        ray.get(consumer.poll.remote(timeout_ms=10_000), timeout=60)
    ray.get(consumer.seek_to_beginning.remote())
    assert ray.get(consumer.poll.remote(timeout_ms=50)).num_rows == 0
    ray.kill(consumer)
