"""What does a node do on a real disk that is full, and one that becomes read-only?

Takes root, for a small file system in memory of its own.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import bradbury

DISK_BYTES = 24 * 1024 * 1024
CONFIG = {
    "bradbury.log.dir.min.free.bytes": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
VALUE = b"." * 10_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk"
    path.mkdir()
    options = f"size={DISK_BYTES}"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def fill(path: Path) -> Path:
    ballast = path / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue
    return ballast


def produce(servers: str, count: int, *, timeout_ms: int = 30_000) -> int:
    """How many were acknowledged."""
    done: list[bool] = []
    producer = Producer(
        {"bootstrap.servers": servers, "acks": "all", "message.timeout.ms": timeout_ms}
    )
    for _ in range(count):
        producer.produce("t", VALUE, on_delivery=lambda error, _: done.append(error is None))
    producer.flush(60)
    return sum(done)


def read(servers: str, count: int) -> int:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "g", "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        messages = consumer.consume(count, 20)
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
        return len(messages)
    finally:
        consumer.close()


def test_a_full_disk_refuses_reads_on_and_goes_on_when_there_is_room(disk: Path) -> None:
    with bradbury.local(str(disk / "data"), config=CONFIG) as cluster:
        servers = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
        assert produce(servers, 50) == 50
        ballast = fill(disk)
        refused = 100 - produce(servers, 100, timeout_ms=2_000)
        assert refused > 0, "there is no room for a megabyte"
        assert read(servers, 50) == 50
        ballast.unlink()
        assert produce(servers, 50) == 50
    with bradbury.local(str(disk / "data"), config=CONFIG) as cluster:
        assert read(cluster.bootstrap_servers, 100) == 100, "what was acknowledged is there"
