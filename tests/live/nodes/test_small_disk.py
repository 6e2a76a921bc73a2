"""What does a node do on a real disk that is full, becomes read-only, or has I/O errors?

Takes root, for small file systems of its own: one in memory, and an ext4 on a file.
"""

import gc
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import bradbury
from bradbury.launch.local import LocalCluster
from bradbury.storage.disk.file_system import OsFile

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


@dataclass
class Ext4:
    """On a file, which is on a file system of its own: where that is full, the disk has errors."""

    backing: Path
    path: Path

    @property
    def image(self) -> Path:
        return self.backing / "image"

    def mount(self) -> bool:
        command = ["mount", "-o", "loop,errors=remount-ro", str(self.image), str(self.path)]
        return not subprocess.run(command, capture_output=True, check=False).returncode

    def make_read_only(self) -> None:
        """As the kernel does after an error."""
        subprocess.run(["mount", "-o", "remount,abort", str(self.path)], check=True)

    def mount_again(self) -> None:
        gc.collect()  # files that the traceback of a failure still holds
        subprocess.run(["umount", str(self.path)], check=True)
        checked = subprocess.run(
            ["fsck.ext4", "-fy", str(self.image)], capture_output=True, check=False
        )
        assert checked.returncode <= 1, checked.stdout
        assert self.mount()


@pytest.fixture
def ext4(disk: Path, tmp_path: Path) -> Iterator[Ext4]:
    made = Ext4(disk, tmp_path / "ext4")
    made.path.mkdir()
    made.image.touch()
    os.truncate(made.image, 4 * DISK_BYTES)  # sparse
    mkfs = shutil.which("mkfs.ext4")
    if (
        mkfs is None
        or subprocess.run([mkfs, "-q", "-F", str(made.image)], check=False).returncode
        or not made.mount()
    ):
        pytest.skip("no ext4 can be mounted on a file here")
    yield made
    subprocess.run(["umount", "-l", str(made.path)], check=True)


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


def produce(servers: str, count: int, *, timeout_ms: int = 30_000, partition: int = 0) -> int:
    """How many were acknowledged."""
    done: list[bool] = []
    producer = Producer(
        {"bootstrap.servers": servers, "acks": "all", "message.timeout.ms": timeout_ms}
    )
    for _ in range(count):
        producer.produce(
            "t",
            VALUE,
            partition=partition,
            on_delivery=lambda error, _: done.append(error is None),
        )
    producer.flush(60)
    return sum(done)


def read(servers: str, count: int, *, partition: int = 0) -> int:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "g", "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition("t", partition, 0)])
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


def test_a_write_for_which_there_is_half_the_room_leaves_no_half_batch(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk takes a part of it, and refuses the rest."""
    short: list[int] = []
    original = OsFile._write_rest

    def write_rest(file: OsFile, data: memoryview, position: int, written: int) -> None:
        short.append(written)
        original(file, data, position, written)

    monkeypatch.setattr(OsFile, "_write_rest", write_rest)
    with bradbury.local(str(disk / "data"), config=CONFIG) as cluster:
        servers = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
        assert produce(servers, 50) == 50
        ballast = fill(disk)
        os.truncate(ballast, ballast.stat().st_size // 4096 * 4096 - 8192)
        more = produce(servers, 6, timeout_ms=2_000)
        assert more < 6
        assert any(short), "the disk took a part"
        assert read(servers, 50 + more) == 50 + more
        ballast.unlink()
        assert produce(servers, 50) == 50
        assert read(servers, 100 + more) == 100 + more
    with bradbury.local(str(disk / "data"), config=CONFIG) as cluster:
        assert read(cluster.bootstrap_servers, 100 + more) == 100 + more


def on_disk(path: Path) -> int:
    """The partition of t that is there: a node gives each of its directories one."""
    [folder] = path.glob("**/partitions-*/t-*")
    return int(folder.name.removeprefix("t-"))


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def two_disks(ext4: Ext4, sound: Path) -> LocalCluster:
    return bradbury.local([str(sound), str(ext4.path)], config=CONFIG)


@pytest.mark.parametrize(
    "failure", ["read-only", pytest.param("I/O errors", marks=pytest.mark.long)]
)
def test_of_two_disks_one_fails_and_the_other_goes_on(
    ext4: Ext4, tmp_path: Path, failure: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What was on it is refused, and there again when the disk is."""
    with two_disks(ext4, tmp_path / "sound") as cluster:
        servers = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        topic = NewTopic("t", 2, 1, config={"flush.messages": "1"})
        admin.create_topics([topic])["t"].result(60)
        broken = on_disk(ext4.path)
        for partition in range(2):
            assert produce(servers, 50, partition=partition) == 50
        [folder] = ext4.path.glob("**/partitions-*")
        checkpoint = folder / "replication-offset-checkpoint"
        # Written later it would find that the disk is read-only before a reader has read.
        until(lambda: checkpoint.exists() and f"t {broken} 50\n" in checkpoint.read_text())
        os.sync()
        ballast = None
        if failure == "read-only":
            ext4.make_read_only()
            assert read(servers, 50, partition=broken) == 50, "what is there can be read"
        else:
            ballast = fill(ext4.backing)
        refused = 200 - produce(servers, 200, timeout_ms=5_000, partition=broken)
        assert refused > 0
        until(lambda: not cluster.nodes[0].status()["online"])
        assert str(ext4.path) in caplog.text, "it is said which"
        assert produce(servers, 50, partition=1 - broken) == 50
        assert read(servers, 100, partition=1 - broken) == 100
    if ballast is not None:
        ballast.unlink()
    ext4.mount_again()
    with two_disks(ext4, tmp_path / "sound") as cluster:
        servers = cluster.bootstrap_servers
        assert read(servers, 50, partition=broken) == 50
        assert produce(servers, 50, partition=broken) == 50
        assert read(servers, 100, partition=1 - broken) == 100
