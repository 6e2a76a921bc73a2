"""Does a live Kafka move, with producers and a group that go on, no record missing or doubled?

There and back: producers write numbers to Kafka, to us, and to Kafka again. A consumer group reads
them wherever they are, in members that stop and start with the switch.
"""

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

import bradbury
from bradbury.benchmarks.support.kafka_broker import KafkaBroker
from bradbury.tests.compatibility.support.kafka_jars import require_kafka

pytestmark = [pytest.mark.java, pytest.mark.slow]

TOPICS = ("flights", "payments")
PARTITIONS = 3
GROUP = "reports"
DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require_kafka()
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), heap="256m") as broker:
        yield broker.bootstrap_servers


class NumberWriter:
    """Writes numbers to both topics; `payments` in transactions, every third of them aborted."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self._number = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._moved = threading.Condition()

    def start(self, servers: str) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, args=(servers,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """When it returns, what was written is acknowledged."""
        self._stop.set()
        assert self._thread is not None
        self._thread.join(60)
        assert not self._thread.is_alive()

    def wait_for(self, count: int) -> None:
        goal = len(self.written) + count
        with self._moved:
            assert self._moved.wait_for(lambda: len(self.written) >= goal, DEADLINE_S)

    def _run(self, servers: str) -> None:
        plain = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        atomic = Producer({"bootstrap.servers": servers, "transactional.id": "payments"})
        atomic.init_transactions(60)
        while not self._stop.is_set():
            sent = []
            for _ in range(20):
                self._number += 1
                sent.append(self._send(plain, "flights"))
            plain.flush()
            atomic.begin_transaction()
            paid = []
            for _ in range(5):
                self._number += 1
                paid.append(self._send(atomic, "payments"))
            atomic.flush()
            if self._number % 3:
                atomic.commit_transaction(60)
                sent += paid
            else:
                atomic.abort_transaction(60)
            with self._moved:
                self.written += sent
                self._moved.notify_all()
            self._stop.wait(0.01)
        plain.flush()

    def _send(self, producer: Producer, topic: str) -> bytes:
        value = b"%s %d" % (topic.encode(), self._number)
        producer.produce(
            topic, value, b"%d" % (self._number % 11), headers=[("n", b"%d" % self._number)]
        )
        return value


class GroupMembers:
    """Two members of the group, which commit what they have read before others go on with it."""

    def __init__(self) -> None:
        self.read: list[bytes] = []
        self._stop = threading.Event()
        self._moved = threading.Condition()
        self._threads: list[threading.Thread] = []

    def start(self, servers: str) -> None:
        self._stop.clear()
        self._threads = [
            threading.Thread(target=self._run, args=(servers,), daemon=True) for _ in range(2)
        ]
        for one in self._threads:
            one.start()

    def stop(self) -> None:
        self._stop.set()
        for one in self._threads:
            one.join(60)
            assert not one.is_alive()

    def wait_for(self, count: int) -> None:
        with self._moved:
            assert self._moved.wait_for(lambda: len(self.read) >= count, DEADLINE_S), len(self.read)

    def _run(self, servers: str) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": GROUP,
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )

        read: dict[tuple[str, int], int] = {}

        def commit(_: Consumer, __: list[TopicPartition]) -> None:
            """What this thread has seen: closing a consumer moves its own positions further."""
            positions = [TopicPartition(*key, offset) for key, offset in read.items()]
            read.clear()
            deadline = time.monotonic() + DEADLINE_S
            while positions:
                try:
                    consumer.commit(offsets=positions, asynchronous=False)
                    return
                except KafkaException as error:  # the coordinator is looked up
                    if error.args[0].code() != KafkaError._WAIT_COORD:
                        raise
                    assert time.monotonic() < deadline

        consumer.subscribe(list(TOPICS), on_revoke=commit)
        while not self._stop.is_set():
            message = consumer.poll(0.1)
            if message is None:
                continue
            assert message.error() is None, message.error()
            read[message.topic(), message.partition()] = message.offset() + 1
            with self._moved:
                self.read.append(message.value())
                self._moved.notify_all()
        consumer.close()


def migrate(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bradbury.cli", "migrate", *words],
        capture_output=True,
        text=True,
        check=False,
    )


def wait_until_in_step(where: tuple[str, ...], follower: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        assert follower.poll() is None, follower.stderr.read() if follower.stderr else ""
        status = json.loads(migrate("status", *where, "--json").stdout)
        if status["state"] in ("copying", "in step") and status["behind"] < 500:
            return
        assert time.monotonic() < deadline, status


def move(source: str, target: str, writer: NumberWriter, members: GroupMembers) -> None:
    """One switch, as docs/migrating.md says."""
    where = ("--from", source, "--bootstrap", target)
    follower = subprocess.Popen(
        [sys.executable, "-m", "bradbury.cli", "migrate", *where],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until_in_step(where, follower)
        writer.wait_for(500)
        live = migrate("cut-over", *where, "--timeout", "0", "--quiet", "0.2")
        assert live.returncode == 1
        assert "nothing was changed" in live.stderr
        members.stop()  # some records are not read yet
        writer.stop()
        done = migrate("cut-over", *where, "--quiet", "0.5", "--json")
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert [(one["group"], one["again"]) for one in result["groups"]] == [(GROUP, [])]
        assert all(one["same"] and not one["remark"] for one in result["checks"])
        _, said = follower.communicate(timeout=60)
        assert follower.returncode == 0, said
    finally:
        if follower.poll() is None:
            follower.kill()
            follower.communicate()
    writer.start(target)
    members.start(target)


@pytest.mark.long  # test_migration.py moves between two of ours
def test_there_and_back(kafka: str) -> None:
    writer, members = NumberWriter(), GroupMembers()
    with bradbury.local() as ours, bradbury.Admin(kafka) as admin:
        for topic in TOPICS:
            admin.create_topic(topic, PARTITIONS, 1, configs={"retention.ms": "86400000"})
        keys = [(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]
        admin.alter_group_offsets(GROUP, dict.fromkeys(keys, 0))
        writer.start(kafka)
        writer.wait_for(1_000)
        members.start(kafka)
        members.wait_for(200)
        move(kafka, ours.bootstrap_servers, writer, members)
        writer.wait_for(500)
        move(ours.bootstrap_servers, kafka, writer, members)
        writer.wait_for(500)
        writer.stop()
        members.wait_for(len(writer.written))
        members.stop()
    assert len(writer.written) > 3_000
    doubled = {value: count for value, count in Counter(members.read).items() if count > 1}
    assert doubled == {}
    assert sorted(members.read) == sorted(writer.written)
