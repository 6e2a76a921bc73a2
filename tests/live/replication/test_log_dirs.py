"""Several log directories on a node, seen by real clients: spread, moved, broken, full."""

import contextlib
import errno
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import bradbury
from bradbury.launch.local import LocalCluster
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from bradbury.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from bradbury.tests.support.wire.raw_client import RawClient

DISK_BYTES = 96 * 1024**2
FLOOR_BYTES = 48 * 1024**2


def admin_of(cluster: LocalCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers})


def create(cluster: LocalCluster, topic: str, partitions: int, **config: str) -> None:
    new = NewTopic(topic, partitions, 1, config=config)
    admin = admin_of(cluster)
    admin.create_topics([new])[topic].result(60)


def log_dirs(cluster: LocalCluster) -> dict[str, DescribeLogDirsResult]:
    """The log directories by path."""
    with RawClient(cluster.bootstrap_servers) as client:
        answer = client.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, 4)
    return {result.log_dir: result for result in answer.results}


def held(result: DescribeLogDirsResult) -> set[tuple[str, int, bool]]:
    return {
        (topic.name, partition.partition_index, partition.is_future_key)
        for topic in result.topics
        if not topic.name.startswith("__")
        for partition in topic.partitions
    }


def holds(cluster: LocalCluster, path: str, topic: str) -> bool:
    """Whether partition 0 is served from there."""
    return (topic, 0, False) in held(log_dirs(cluster)[path])


def move(cluster: LocalCluster, topic: str, partition: int, path: str) -> int:
    asked = AlterReplicaLogDirTopic(name=topic, partitions=[partition])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[asked])])
    with RawClient(cluster.bootstrap_servers) as client:
        answer = client.call(request, AlterReplicaLogDirsResponse, 2)
    (result,) = answer.results
    (moved,) = result.partitions
    return moved.error_code


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    """What is waited for is on the other side of a socket, so it has to be asked for."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        threading.Event().wait(0.02)


def produce(cluster: LocalCluster, topic: str, values: list[bytes], partition: int = 0) -> None:
    failed: list[object] = []
    # Idempotent: without it a batch that is sent again may come behind the next one, as with Kafka.
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "linger.ms": 1,
            "enable.idempotence": True,
        }
    )
    for value in values:
        producer.produce(
            topic,
            value,
            partition=partition,
            on_delivery=lambda error, message: error and failed.append(error),
        )
    assert producer.flush(20) == 0
    assert failed == []


def consume(cluster: LocalCluster, topic: str, count: int, partition: int = 0) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "r",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[bytes] = []
    try:
        while len(values) < count:
            messages = consumer.consume(count - len(values), timeout=60)
            assert messages, f"{len(values)} of {count}"
            for message in messages:
                assert message.error() is None, message.error()
                value = message.value()
                assert isinstance(value, bytes)
                values.append(value)
    finally:
        consumer.close()
    return values


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    return [str(tmp_path / name) for name in ("one", "two", "three")]


def test_partitions_are_spread_over_the_directories_and_listed_with_their_sizes(
    paths: list[str],
) -> None:
    with bradbury.local(paths) as cluster:
        create(cluster, "spread", 6)
        produce(cluster, "spread", [b"x" * 100] * 50, partition=4)
        dirs = log_dirs(cluster)
        assert [len(held(result)) for result in dirs.values()] == [2, 2, 2]
        assert [str(Path(path).parent) for path in dirs] == paths
        for result in dirs.values():
            assert result.error_code == 0
            assert 0 < result.usable_bytes <= result.total_bytes
        sizes = {
            partition.partition_index: partition.partition_size
            for result in dirs.values()
            for topic in result.topics
            if topic.name == "spread"
            for partition in topic.partitions
        }
        assert sizes[4] > 5000
        assert sizes[0] == 0
    with bradbury.local([paths[0], paths[2], paths[1]]) as cluster:
        assert consume(cluster, "spread", 50, partition=4) == [b"x" * 100] * 50


@pytest.mark.long  # three moves under load; tests/replication/test_alter_log_dirs.py has each step
def test_a_replica_moves_while_producers_and_consumers_go_on(paths: list[str]) -> None:
    with bradbury.local(paths[:2]) as cluster:
        create(cluster, "moving", 1, **{"segment.bytes": str(1024**2)})
        produce(cluster, "moving", [b"%08d" % number * 50 for number in range(20_000)])
        first, second = log_dirs(cluster)
        for source, target in ((first, second), (second, first), (first, second)):
            before = log_dirs(cluster)
            assert ("moving", 0, False) in held(before[source])
            stop = threading.Event()
            sent: list[int] = []
            failed: list[KafkaError] = []

            def keep_producing(
                stop: threading.Event = stop,
                sent: list[int] = sent,
                failed: list[KafkaError] = failed,
            ) -> None:
                def on_delivery(error: KafkaError | None, message: Message) -> None:
                    if error is not None:
                        failed.append(error)
                    else:
                        sent.append(message.offset() or 0)

                producer = Producer(
                    {
                        "bootstrap.servers": cluster.bootstrap_servers,
                        "enable.idempotence": True,
                        "linger.ms": 2,
                    }
                )
                while not stop.is_set():
                    producer.produce("moving", b"more" * 20, partition=0, on_delivery=on_delivery)
                    producer.poll(0.001)  # at least: librdkafka counts whole milliseconds
                assert producer.flush(20) == 0

            thread = threading.Thread(target=keep_producing)
            thread.start()
            try:
                assert move(cluster, "moving", 0, target) == ErrorCode.NONE
                wait_until(partial(holds, cluster, target, "moving"))
            finally:
                stop.set()
                thread.join()
            assert failed == []
            assert sent == sorted(set(sent))
            assert sent
            after = log_dirs(cluster)
            assert held(after[source]) == set()
        end = max(sent) + 1
        values = consume(cluster, "moving", end)
        assert values[:20_000] == [b"%08d" % number * 50 for number in range(20_000)]
        assert set(values[20_000:]) == {b"more" * 20}
    with bradbury.local(paths[:2]) as cluster:
        assert len(consume(cluster, "moving", end)) == end


def test_a_move_is_refused_as_kafka_refuses_it(paths: list[str]) -> None:
    with bradbury.local(paths[:2]) as cluster:
        create(cluster, "t", 1)
        first, second = log_dirs(cluster)
        assert move(cluster, "t", 0, "/nowhere") == ErrorCode.LOG_DIR_NOT_FOUND
        assert move(cluster, "t", 1, second) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert move(cluster, "absent", 0, second) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert move(cluster, "t", 0, first) == ErrorCode.NONE
        create(cluster, "n" * 249, 1)
        other = second if holds(cluster, first, "n" * 249) else first
        assert move(cluster, "n" * 249, 0, other) == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_topic_that_is_deleted_while_it_moves_leaves_nothing(paths: list[str]) -> None:
    with bradbury.local(paths[:2]) as cluster:
        create(cluster, "gone", 1)
        produce(cluster, "gone", [b"v" * 1000] * 20_000)
        _, second = log_dirs(cluster)
        assert move(cluster, "gone", 0, second) == ErrorCode.NONE
        admin = admin_of(cluster)
        admin.delete_topics(["gone"])["gone"].result(60)
        wait_until(lambda: all(not held(result) for result in log_dirs(cluster).values()))
    for path in paths[:2]:
        names = os.listdir(Path(path) / "partitions-0")
        assert [name for name in names if name.startswith("gone") and "delete" not in name] == []


def test_a_directory_that_is_missing_at_the_start_keeps_its_partitions_offline(
    paths: list[str],
) -> None:
    with bradbury.local(paths) as cluster:
        create(cluster, "t", 3)
        for partition in range(3):
            produce(cluster, "t", [b"v"] * 10, partition=partition)
        lost = next(partition for _, partition, _ in held(list(log_dirs(cluster).values())[2]))
    shutil.move(paths[2], paths[2] + "-away")
    Path(paths[2]).write_text("not a directory")
    with bradbury.local(paths) as cluster:
        dirs = log_dirs(cluster)
        offline = [path for path, result in dirs.items() if result.error_code]
        assert [str(Path(path).parent) for path in offline] == [paths[2]]
        assert dirs[offline[0]].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert move(cluster, "t", (lost + 1) % 3, offline[0]) == ErrorCode.KAFKA_STORAGE_ERROR
        for partition in {0, 1, 2} - {lost}:
            assert consume(cluster, "t", 10, partition=partition) == [b"v"] * 10
        errors: list[KafkaError] = []
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "message.timeout.ms": 1500}
        )
        producer.produce(
            "t", b"w", partition=lost, on_delivery=lambda error, message: errors.append(error)
        )
        producer.flush(10)
        assert len(errors) == 1
        assert errors[0] is not None
    Path(paths[2]).unlink()
    shutil.move(paths[2] + "-away", paths[2])
    with bradbury.local(paths) as cluster:
        assert consume(cluster, "t", 10, partition=lost) == [b"v"] * 10


def test_others_lead_what_a_node_led_in_a_directory_that_fails_while_it_serves_the_rest(
    paths: list[str],
) -> None:
    with bradbury.local(paths[:2], nodes=3) as cluster:
        with cluster.admin() as admin:
            admin.create_topic("t", 6, replication_factor=3)
        for partition in range(6):
            produce(cluster, "t", [b"before"] * 10, partition)

        def leader(partition: int) -> int:
            found = cluster.controller.image.partition("t", partition)
            assert found is not None
            return found.leader

        leaders = [leader(partition) for partition in range(6)]
        node = next(one for one in cluster.nodes if one.node_id == leaders[0])
        assert node.storage.partition_host is not None
        replicas = {
            one.partition: one for one in node.storage.partition_host.replicas if one.topic == "t"
        }
        broken = replicas[0].log.health
        in_it = {number for number, one in replicas.items() if one.log.health is broken}
        broken.fail("writing", OSError(errno.EIO, "Input/output error"))
        for partition in range(6):
            produce(cluster, "t", [b"after"] * 10, partition)

        led_there = {number for number in in_it if leaders[number] == node.node_id}
        assert 0 in led_there
        wait_until(lambda: node.node_id not in {leader(partition) for partition in led_there})
        for partition in {*range(6)} - led_there:
            assert leader(partition) == leaders[partition]
        assert not cluster.controller.image.nodes[node.node_id].fenced
        for partition in range(6):
            values = [b"before"] * 10 + [b"after"] * 10
            assert consume(cluster, "t", 20, partition) == values


# --- full disks -----------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of DISK_BYTES of its own."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(cluster: LocalCluster, topic: str) -> tuple[int, list[KafkaError]]:
    """Produce 150 MB or until it is refused; (how many were acknowledged, the errors)."""
    acknowledged = 0
    errors: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += 1
        else:
            errors.append(error)

    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "message.timeout.ms": 3000,
            "linger.ms": 5,
            "retry.backoff.ms": 50,
            "queue.buffering.max.messages": 200_000,
        }
    )
    for _ in range(1500):
        for _ in range(10):
            producer.produce(topic, b"f" * 10_000, partition=0, on_delivery=on_delivery)
        producer.poll(0)
        if errors:
            break
    producer.flush(30)
    return acknowledged, errors


@pytest.mark.long  # a disk that fills and is emptied
@pytest.mark.slow
def test_below_the_floor_producers_wait_reads_go_on_and_writing_resumes_by_itself(
    small_disk: Path, tmp_path: Path
) -> None:
    config = {"bradbury.log.dir.min.free.bytes": FLOOR_BYTES}
    with bradbury.local(
        [str(small_disk / "data"), str(tmp_path / "roomy")], config=config
    ) as cluster:
        create(cluster, "full", 1, **{"segment.bytes": str(4 * 1024**2)})
        create(cluster, "other", 1)
        assert ("full", 0, False) in held(next(iter(log_dirs(cluster).values())))
        acknowledged, errors = fill(cluster, "full")
        assert errors, "the disk was to fill up"
        free = shutil.disk_usage(small_disk).free
        assert FLOOR_BYTES - 4 * 1024**2 < free <= FLOOR_BYTES  # a batch more, and indexes
        # Reads go on, and so do other disks.
        assert len(consume(cluster, "full", acknowledged)) == acknowledged
        produce(cluster, "other", [b"v"] * 10)
        # A producer that waits gets through once records are deleted.
        waiting: list[KafkaError | None] = []
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "message.timeout.ms": 30_000}
        )
        producer.produce(
            "full", b"late", partition=0, on_delivery=lambda error, message: waiting.append(error)
        )
        assert producer.flush(1) == 1
        before = TopicPartition("full", 0, acknowledged)
        admin = admin_of(cluster)
        (deleted,) = admin.delete_records([before]).values()
        deleted.result(60)
        assert producer.flush(20) == 0
        assert waiting == [None]


@pytest.mark.slow
def test_a_disk_that_is_really_full_loses_nothing_and_goes_on(small_disk: Path) -> None:
    config = {"bradbury.log.dir.min.free.bytes": 0}
    data = str(small_disk / "data")
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(256 * 1024))
    with bradbury.local(data, config=config) as cluster:
        create(cluster, "full", 1, **{"segment.bytes": str(4 * 1024**2)})
        produce(cluster, "full", [b"first"])
        with RawClient(cluster.bootstrap_servers) as client:
            client.find_coordinator("r")  # with it come the offsets topic and its files
        assert len(admin_of(cluster).list_topics(timeout=60).topics) == 2
        acknowledged, errors = fill(cluster, "full")
        assert errors
        acknowledged += 1
        assert shutil.disk_usage(small_disk).free < 1024**2
        assert len(consume(cluster, "full", acknowledged)) == acknowledged
        with contextlib.suppress(Exception):
            create(cluster, "no-room", 4)
        assert all(result.error_code == 0 for result in log_dirs(cluster).values())
    ballast.unlink()  # to register its node the metadata log needs some kilobytes
    with bradbury.local(data, config=config) as cluster:
        assert len(consume(cluster, "full", acknowledged)) == acknowledged
        admin = admin_of(cluster)
        admin.delete_topics(["full"])["full"].result(60)
        wait_until(lambda: not any(holds(cluster, path, "full") for path in log_dirs(cluster)))


def test_a_log_that_there_was_no_room_for_is_made_when_there_is_some(
    small_disk: Path, tmp_path: Path
) -> None:
    small = small_disk / "data"
    with bradbury.local([str(tmp_path / "roomy"), str(small)]) as cluster:
        ballast = small_disk / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(bytes(65_536)):
                pass
        admin = admin_of(cluster)
        making = admin.create_topics([NewTopic("t", 2, 1)])["t"]
        wait_until(lambda: "t" in cluster.nodes[0].image.topics)
        # Where they are to be is noted on each disk before the first of them is made.
        assert replicas_of(cluster) == set()
        ballast.unlink()
        making.result(60)
        wait_until(lambda: replicas_of(cluster) == {("t", 0), ("t", 1)})
        for partition in range(2):
            produce(cluster, "t", [b"v"] * 10, partition)
            assert consume(cluster, "t", 10, partition) == [b"v"] * 10
        assert any("t-" in path.name for path in (small / "partitions-0").iterdir())


def replicas_of(cluster: LocalCluster) -> set[tuple[str, int]]:
    host = cluster.nodes[0].storage.partition_host
    assert host is not None
    return {(each.topic, each.partition) for each in host.replicas}
