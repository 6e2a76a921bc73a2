"""What do replicas tell each other of their damage? Nobody takes another one's gap for nothing."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import bradbury
from bradbury.launch.local import LocalCluster
from bradbury.storage.segments.lost_segments import LOST

RECORDS = 60
SMALL = {"segment.bytes": "4000", "index.interval.bytes": "200", "retention.ms": "-1"}
COMPACTED = {
    **SMALL,
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": "3600000",
    "bradbury.damaged.segment": "skip",
}
BROKER = {"offsets.topic.num.partitions": "1", "default.replication.factor": "3"}


def create(servers: str, config: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("t", 1, 3, config=config)])["t"].result(60)


def produce(servers: str, first: int, count: int) -> None:
    """A record a batch, each with its own key."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0})
    for number in range(first, first + count):
        producer.produce("t", b"%03d" % number * 100, key=b"%d" % number, partition=0)
        assert producer.flush(30) == 0


def logs(data_dir: Path, node: int) -> list[Path]:
    [folder] = (data_dir / f"node-{node}").glob("partitions-*/t-0")
    return sorted(folder.glob("*.log"))


def content(data_dir: Path, node: int) -> bytes:
    return b"".join(path.read_bytes() for path in logs(data_dir, node))


def until(holds: Callable[[], bool], *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def damaged(cluster: LocalCluster, node: int) -> list[str]:
    return list(cluster.nodes[node].status()["damaged"])


def leader_of(cluster: LocalCluster) -> int:
    """Index of the node that leads the partition."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    led: list[int] = []

    def is_known() -> bool:  # not at once by every broker after the topic's creation
        partitions = admin.list_topics("t", timeout=30).topics["t"].partitions
        led[:] = [
            number
            for number, node in enumerate(cluster.nodes)
            if partitions and node.node_id == partitions[0].leader
        ]
        return bool(led)

    until(is_known)
    return led[0]


@pytest.mark.long  # two copies with the same damage at once
@pytest.mark.slow
def test_a_replica_that_skips_heals_no_other(tmp_path: Path) -> None:
    """Two have lost the same segment of a compacted topic, where a gap may be right."""
    data_dir = tmp_path / "data"
    with bradbury.local(str(data_dir), nodes=3, config=BROKER) as cluster:
        create(cluster.bootstrap_servers, COMPACTED)
        produce(cluster.bootstrap_servers, 0, RECORDS)
        until(lambda: len({content(data_dir, node) for node in range(3)}) == 1)
    whole = content(data_dir, 2)
    lost = [logs(data_dir, node)[1] for node in range(3)]
    kept = lost[2].read_bytes()
    for path in lost:
        path.unlink()
    with bradbury.local(str(data_dir), nodes=3, config=BROKER) as cluster:
        until(lambda: all(damaged(cluster, node) for node in range(3)))
        time.sleep(12)  # longer than readers wait for others
        assert [path.read_bytes() for path in lost] == [LOST] * 3
        cluster.stop_node(2)
        lost[2].write_bytes(kept)
        cluster.start_node(2)
        until(lambda: not any(damaged(cluster, node) for node in range(3)), seconds=120)
        assert [content(data_dir, node) for node in range(3)] == [whole] * 3


@pytest.mark.slow
def test_a_leader_looks_at_what_its_follower_cannot_take(tmp_path: Path) -> None:
    """What it has written itself it does not doubt, until another one cannot go on."""
    data_dir = tmp_path / "data"
    with bradbury.local(str(data_dir), nodes=3, config=BROKER) as cluster:
        create(cluster.bootstrap_servers, {**SMALL, "min.insync.replicas": "2"})
        servers = cluster.bootstrap_servers
        of_leader = leader_of(cluster)
        behind = 2 if of_leader != 2 else 1
        produce(servers, 0, RECORDS // 2)
        cluster.stop_node(behind)
        produce(servers, RECORDS // 2, RECORDS // 2)
        other = 3 - of_leader - behind
        whole = content(data_dir, other)
        until(lambda: content(data_dir, other) == content(data_dir, of_leader))
        whole = content(data_dir, other)
        for path in logs(data_dir, of_leader)[-3:]:
            with path.open("r+b") as file:
                file.seek(path.stat().st_size - 20)
                byte = file.read(1)[0]
                file.seek(-1, 1)
                file.write(bytes([byte ^ 1]))
        assert content(data_dir, of_leader) != whole
        cluster.start_node(behind)
        until(
            lambda: all(content(data_dir, node) == whole for node in range(3)),
            seconds=120,
        )
        assert not any(damaged(cluster, node) for node in range(3))
