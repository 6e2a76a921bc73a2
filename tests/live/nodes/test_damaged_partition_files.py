"""What does a damaged file of a partition cost? Each partition of a topic gets another damage.

One node: what no other file still has is lost, and the reader is told; nothing else is. Three
nodes: nothing is lost, and in the end every replica has every byte again.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

import bradbury
from bradbury.launch.local import LocalCluster
from bradbury.storage.segments.closed_segments import CLOSED_SEGMENTS
from bradbury.tests.live.nodes.killed_cluster import ABORTED, CONFIG, TOPIC, value_of

RECORDS = 100


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size * 2 // 3)


def flip(part: float) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        if content:
            content[min(int(len(content) * part), len(content) - 1)] ^= 0x55
            path.write_bytes(content)

    return damage


def replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_unreadable(path: Path) -> None:
    """Not even root can open a link to itself."""
    path.unlink()
    path.symlink_to(path.name)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "deleted": Path.unlink,
    "emptied": lambda path: os.truncate(path, 0),
    "cut": cut,
    "flipped at its start": flip(0),
    "flipped in its length": flip(0.0001),
    "flipped in its middle": flip(0.5),
    "flipped at its end": flip(1),
    "a directory": replace_by_directory,
    "unreadable": make_unreadable,
}
NOTHING_IS_LOST = (
    "index",
    "timeindex",
    "snapshot",
    "leader-epoch-checkpoint",
    "partition.metadata",
    "txnindex",
    CLOSED_SEGMENTS,
)
WITHOUT_INDEXES = "first log without indexes"
ALONE = "middle log without anything"
KINDS = ("first log", WITHOUT_INDEXES, "middle log", ALONE, "active log", *NOTHING_IS_LOST)
ROWS = [(kind, damage) for kind in KINDS for damage in DAMAGES]


def file_of(folder: Path, kind: str) -> Path | None:
    logs = sorted(folder.glob("*.log"))
    assert len(logs) >= 4, logs
    middle = logs[len(logs) // 2]
    if " log" in kind:
        return {"first": logs[0], "middle": middle, "active": logs[-1]}[kind.split()[0]]
    if kind in ("index", "timeindex", "snapshot"):
        return middle.with_suffix(f".{kind}")
    if kind == "txnindex":
        [index] = folder.glob("*.txnindex")
        return index
    return folder / kind


def damage_all(node_folder: Path) -> None:
    for partition, (kind, damage) in enumerate(ROWS):
        [folder] = node_folder.glob(f"partitions-*/{TOPIC}-{partition}")
        path = file_of(folder, kind)
        if path is not None and path.exists():
            DAMAGES[damage](path)
            if kind == WITHOUT_INDEXES:
                for suffix in (".index", ".timeindex"):
                    path.with_suffix(suffix).unlink()
            if kind == ALONE:
                for other in folder.glob(f"{path.stem}.*"):
                    if other != path:
                        other.unlink()


@dataclass
class Read:
    """What a reader got of one partition. errors: codes it was told."""

    values: set[bytes] = field(default_factory=set)
    errors: set[int] = field(default_factory=set)
    is_at_end: bool = False


def read_all(servers: str, *, until_told: bool, seconds: float = 25.0) -> list[Read]:
    """Every partition to its end; with `until_told` one that has an error is not gone on with."""
    found = [Read() for _ in ROWS]
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "check.crcs": True,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    try:
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(len(ROWS))])
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for message in consumer.consume(500, 0.2):
                one = found[message.partition()]
                error = message.error()
                if error is None:
                    one.values.add(message.value())
                    assert message.value() != ABORTED, ROWS[message.partition()]
                elif error.code() == KafkaError._PARTITION_EOF:
                    one.is_at_end = True
                else:
                    one.errors.add(error.code())
            if all(
                len(one.values) == RECORDS or (until_told and (one.errors or one.is_at_end))
                for one in found
            ):
                break
    finally:
        consumer.close()
    return found


@pytest.fixture
def stopped(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, int, str]]:
    nodes, ending = request.param
    arguments = [str(tmp_path / "data"), str(nodes), str(len(ROWS)), str(RECORDS)]
    module = "bradbury.tests.live.nodes.killed_cluster"
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        if ending == "killed":
            wait_for_checkpoints(tmp_path / "data")
            process.kill()
        process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    yield tmp_path / "data", nodes, ending


def wait_for_checkpoints(data_dir: Path) -> None:
    """Closed segments are flushed, and that is known: what is lost then is lost to the damage."""
    deadline = time.monotonic() + 30
    for directory in data_dir.rglob("partitions-*"):
        while not is_checkpointed(directory):
            assert time.monotonic() < deadline, directory
            time.sleep(0.1)


def is_checkpointed(directory: Path) -> bool:
    """The file may not be there yet: it is first written when something was flushed."""
    checkpoint = directory / "recovery-point-offset-checkpoint"
    if not checkpoint.exists():
        return False
    points = {
        (name, int(partition)): int(offset)
        for name, partition, offset in map(str.split, checkpoint.read_text().split("\n")[2:-1])
    }
    return all(
        points.get((TOPIC, partition), -1)
        >= int(max(directory.glob(f"{TOPIC}-{partition}/*.log")).stem)
        for partition in range(len(ROWS))
    )


def missing(partition: int, read: Read) -> list[int]:
    return [number for number in range(RECORDS) if value_of(partition, number) not in read.values]


@pytest.mark.parametrize(
    "stopped",
    [(1, "stopped"), pytest.param((1, "killed"), marks=pytest.mark.deep)],
    indirect=True,
    ids=str,
)
def test_on_one_node_nothing_is_lost_in_silence(stopped: tuple[Path, int, str]) -> None:
    data_dir, nodes, ending = stopped
    damage_all(data_dir)
    wrong = []
    with bradbury.local(str(data_dir), nodes=nodes, config=CONFIG) as cluster:
        reads = read_all(cluster.bootstrap_servers, until_told=True)
        for partition, ((kind, damage), read) in enumerate(zip(ROWS, reads, strict=True)):
            lost = missing(partition, read)
            if kind in NOTHING_IS_LOST and lost:
                wrong.append((partition, kind, damage, "lost", lost[:1], len(lost), read.errors))
            is_cut = kind == "active log" and ending == "killed"
            if lost and not read.errors and not is_cut:
                wrong.append((partition, kind, damage, "silence", lost[:1], len(lost)))
        shown = cluster.nodes[0].status()["damaged"]
    assert wrong == []
    assert any("has lost offsets" in line for line in shown), "status names what is lost"
    assert shown[-1].startswith("and "), "and says that there is more"


def is_whole(cluster: LocalCluster, data_dir: Path) -> bool:
    nodes = cluster.nodes
    return (
        not any(node.status()["damaged"] for node in nodes)
        and all(
            len(partition.isr) == len(nodes)
            for node in nodes
            for partition in node.image.topics[TOPIC].partitions
        )
        and different(data_dir, len(nodes)) == []
    )


def different(data_dir: Path, nodes: int) -> list[tuple[str, str]]:
    """The damages after which replicas are not the same, byte for byte."""
    contents = [log_bytes(data_dir / f"node-{number}") for number in range(nodes)]
    return [
        row
        for partition, row in enumerate(ROWS)
        if len({content[partition] for content in contents}) > 1
    ]


@pytest.mark.parametrize(
    "stopped",
    [(3, "stopped"), pytest.param((3, "killed"), marks=pytest.mark.deep)],
    indirect=True,
    ids=str,
)
def test_with_three_nodes_everything_heals(stopped: tuple[Path, int, str]) -> None:
    data_dir, nodes, _ = stopped
    damage_all(data_dir / "node-0")
    with bradbury.local(str(data_dir), nodes=nodes, config=CONFIG) as cluster:
        reads = read_all(cluster.bootstrap_servers, until_told=False)
        assert [
            (row, lost[:1], len(lost), read.errors)
            for partition, (row, read) in enumerate(zip(ROWS, reads, strict=True))
            if (lost := missing(partition, read))
        ] == []
        deadline = time.monotonic() + 30
        while not is_whole(cluster, data_dir) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert [node.status()["damaged"] for node in cluster.nodes] == [[]] * nodes
    assert different(data_dir, nodes) == []


def log_bytes(node_folder: Path) -> list[bytes]:
    found = []
    for partition in range(len(ROWS)):
        [folder] = node_folder.glob(f"partitions-*/{TOPIC}-{partition}")
        found.append(b"".join(path.read_bytes() for path in sorted(folder.glob("*.log"))))
    return found
