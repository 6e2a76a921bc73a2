"""Does a group go on as it was when its cluster is stopped and started under its feet?"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import bradbury

pytestmark = pytest.mark.slow

SECONDS = 30.0
CONFIG = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 3}


class Counted(bradbury.RebalanceListener):
    def __init__(self) -> None:
        self.events: list[str] = []

    def on_partitions_assigned(self, partitions: Sequence[bradbury.TopicPartition]) -> None:
        self.events.append("assigned")

    def on_partitions_revoked(self, partitions: Sequence[bradbury.TopicPartition]) -> None:
        self.events.append("revoked")


def produce(servers: str, numbers: range) -> None:
    with bradbury.Producer(servers) as producer:
        for partition in range(2):
            rows = [b"%d" % number for number in numbers if number % 2 == partition]
            producer.send_batch("kept", rows, partition=partition).result(10)


def read_until(seen: list[int], happened: Callable[[], bool], *members: bradbury.Consumer) -> None:
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        for member in members:
            seen += map(int, member.poll(50)["value"].to_pylist())


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_outlive_their_coordinator_without_a_rebalance(
    tmp_path: Path, strategy: str
) -> None:
    listeners = [Counted(), Counted()]
    seen: list[int] = []
    members: list[bradbury.Consumer] = []
    with bradbury.local(str(tmp_path), config=CONFIG) as cluster:
        servers = cluster.bootstrap_servers
        with bradbury.Admin(servers) as admin:
            admin.create_topic("kept", 2)
        members = [
            bradbury.Consumer(
                "kept",
                bootstrap=servers,
                group="g",
                listener=listener,
                partition_assignment_strategy=strategy,
                auto_offset_reset="earliest",
                auto_commit_interval_ms=50,
                heartbeat_interval_ms=100,
                session_timeout_ms=30_000,
            )
            for listener in listeners
        ]
        read_until(seen, lambda: all(len(one.assignment()) == 1 for one in members), *members)
        produce(servers, range(100))
        read_until(seen, lambda: len(seen) == 100, *members)
        before = [(one.group_metadata(), one.assignment()) for one in members]
        told = [list(listener.events) for listener in listeners]
    with bradbury.local(str(tmp_path), config=CONFIG) as cluster:
        assert cluster.bootstrap_servers == servers
        produce(servers, range(100, 200))
        read_until(seen, lambda: len(seen) >= 200, *members)
        for member in members:
            member.commit()
        assert [(one.group_metadata(), one.assignment()) for one in members] == before
        assert [listener.events for listener in listeners] == told
        for member in members:
            member.close()
    assert sorted(seen) == list(range(200))
