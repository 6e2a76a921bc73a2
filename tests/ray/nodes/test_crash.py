"""What does kill -9 of any actor cost? Time, never a record: acknowledged ones are there, once."""

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
import ray
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import bradbury
from bradbury.protocol.errors import InvalidReplicationFactor

pytestmark = [pytest.mark.ray, pytest.mark.slow]


class SteadyProducer:
    """An idempotent librdkafka producer that sends numbers until told to stop."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        )
        self._topic = topic
        self._stop = threading.Event()
        self._progress = threading.Condition()
        self.acknowledged: list[tuple[int, int, int]] = []
        self.failures: list[str] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            for _ in range(100):
                self._producer.produce(
                    self._topic, str(number).encode(), on_delivery=self._delivered
                )
                number += 1
            self._producer.poll(0.02)
            while len(self._producer) > 20_000 and not self._stop.is_set():
                self._producer.poll(0.05)

    def _delivered(self, error, message) -> None:
        with self._progress:
            if error is not None:
                self.failures.append(str(error))
            else:
                self.acknowledged.append(
                    (message.partition(), message.offset(), int(message.value()))
                )
            self._progress.notify_all()

    def wait_for_more(self, count: int) -> None:
        """Until `count` more records are acknowledged."""
        with self._progress:
            goal = len(self.acknowledged) + count
            assert self._progress.wait_for(lambda: len(self.acknowledged) >= goal, 60)

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0


def pid_of(cluster: bradbury.Cluster, kind: str) -> int:
    status = cluster.status()
    if kind == "controller":
        return status["pid"]
    return next(actor["pid"] for actor in status["actors"] if actor["actor"].startswith(kind))


def read_back(bootstrap: str, topic: str, partitions: int) -> list[tuple[int, int, int]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    ends = [
        consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=30)[1]
        for index in range(partitions)
    ]
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    records = []
    while len(records) < sum(ends):
        messages = consumer.consume(min(10_000, sum(ends) - len(records)), 30)
        assert messages, f"{len(records)} of {sum(ends)} records came back"
        records += [(m.partition(), m.offset(), int(m.value())) for m in messages]
    consumer.close()
    return records


@pytest.mark.long  # every kind of actor is killed; test_consumer_group_faults kills in each run
def test_no_acknowledged_record_is_missing_or_twice_when_any_actor_is_killed(
    cluster: bradbury.Cluster,
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic("crash", 2, 1)])["crash"].result(30)
    producer = SteadyProducer(cluster.bootstrap_servers, "crash")
    try:
        for kind in ("partitions", "broker", "groups", "controller", "partitions"):
            producer.wait_for_more(3_000)
            victim = pid_of(cluster, kind)
            os.kill(victim, signal.SIGKILL)
            producer.wait_for_more(3_000)
    finally:
        producer.finish()
    assert producer.failures == []
    records = read_back(cluster.bootstrap_servers, "crash", 2)
    assert set(producer.acknowledged) <= set(records), "an acknowledged record is missing or moved"
    repeated = [number for number, count in Counter(r[2] for r in records).items() if count > 1]
    assert repeated == []
    for partition in range(2):
        numbers = [number for index, _, number in records if index == partition]
        assert numbers == sorted(numbers), "records of one producer changed their order"


@ray.remote(num_cpus=0)
def produce_numbers(topic: str, worker: int, stop: str) -> int:
    """What the demo's producers do, until the file `stop` exists; returns how many there were."""
    number = 0
    with bradbury.Producer() as producer:
        while not Path(stop).exists():
            values = [b"%d-%d" % (worker, index) for index in range(number, number + 200)]
            producer.send_batch(topic, [(b"%d" % worker, value) for value in values]).result(60)
            number += 200
    return number


@pytest.mark.long  # the test above kills each of them under a producer
def test_ray_tasks_go_on_producing_through_the_death_of_every_actor(
    cluster: bradbury.Cluster, tmp_path: Path
) -> None:
    cluster.admin().create_topic("ray-crash", partitions=2)
    stop = tmp_path / "stop"
    working = [produce_numbers.remote("ray-crash", worker, str(stop)) for worker in range(2)]
    for kind in ("partitions", "controller", "broker", "groups"):
        wait_for_records(cluster, "ray-crash", sum(end_offsets(cluster, "ray-crash")) + 2_000)
        os.kill(pid_of(cluster, kind), signal.SIGKILL)
    wait_for_records(cluster, "ray-crash", sum(end_offsets(cluster, "ray-crash")) + 2_000)
    stop.touch()
    counts = ray.get(working, timeout=120)
    assert sum(end_offsets(cluster, "ray-crash")) == sum(counts)
    values = []
    with bradbury.Consumer("ray-crash", auto_offset_reset="earliest") as consumer:
        while len(values) < sum(counts):
            table = consumer.poll(timeout_ms=20_000)
            assert table.num_rows, f"{len(values)} of {sum(counts)} records came back"
            values += table.column("value").to_pylist()
    for worker, count in enumerate(counts):
        mine = [value for value in values if value.startswith(b"%d-" % worker)]
        assert mine == [b"%d-%d" % (worker, number) for number in range(count)]


def end_offsets(cluster: bradbury.Cluster, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "unused"})
    ends = [
        consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=30)[1]
        for index in range(2)
    ]
    consumer.close()
    return ends


def wait_for_records(cluster: bradbury.Cluster, topic: str, count: int) -> None:
    deadline = time.monotonic() + 60
    while sum(end_offsets(cluster, topic)) < count:
        assert time.monotonic() < deadline


@pytest.mark.long  # a process is killed; make test has others of the kind
def test_a_topic_made_before_the_controller_dies_is_known_after(cluster: bradbury.Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic("before-crash", 3, 1)])["before-crash"].result(30)
    epoch = cluster.status()["epoch"]
    os.kill(pid_of(cluster, "controller"), signal.SIGKILL)
    deadline = time.monotonic() + 120
    # The next change is made by the next controller, which has read the former one's log.
    created = admin.create_topics([NewTopic("after-crash", 1, 1)])["after-crash"]
    created.result(60)
    # Any broker may be asked, and those that did not serve the request hear of its topic later.
    while "after-crash" not in (topics := admin.list_topics(timeout=30).topics):
        assert time.monotonic() < deadline
    assert len(topics["before-crash"].partitions) == 3
    assert cluster.status()["epoch"] > epoch


def add_partitions(admin: bradbury.Admin, topic: str, total: int) -> None:
    """As Kafka's, the next controller refuses while it takes every node's session for over.

    It does on a machine so slow that heartbeats come later than broker.session.timeout.ms.
    """
    deadline = time.monotonic() + 60
    while True:
        try:
            admin.create_partitions(topic, total)
            return
        except InvalidReplicationFactor:
            if time.monotonic() > deadline:
                raise


@pytest.mark.long  # a process is killed; make test has others of the kind
def test_settings_and_partitions_outlive_the_controller_and_change_while_it_restarts(
    cluster: bradbury.Cluster,
) -> None:
    with cluster.admin() as admin:
        admin.create_topic("settings-crash", 1, configs={"retention.ms": "5"})
        add_partitions(admin, "settings-crash", 2)
        admin.alter_configs("settings-crash", {"segment.bytes": 10**6})
        admin.alter_configs(broker="all", changes={"log.retention.ms": 77_000})
        os.kill(pid_of(cluster, "controller"), signal.SIGKILL)
        # These are sent to a controller that is not there: the brokers wait it out.
        add_partitions(admin, "settings-crash", 4)
        admin.alter_configs("settings-crash", unset=["retention.ms"])

        def shown() -> tuple[int, str | None, str | None, int]:
            configs = admin.describe_configs("settings-crash")
            retention = configs["retention.ms"]
            partitions = admin.describe_topics(["settings-crash"])[0].partitions
            segment_bytes = configs["segment.bytes"].value
            return len(partitions), segment_bytes, retention.value, retention.source

        # Any broker may be asked, also one that has not got there yet.
        deadline = time.monotonic() + 60
        while (found := shown()) != (4, "1000000", "77000", 3):
            assert time.monotonic() < deadline, found
        admin.alter_configs(broker="all", unset=["log.retention.ms"])
        while (found := shown())[3] != 5:
            assert time.monotonic() < deadline, found
