"""Does a group go on when its cluster is stopped under its feet, or a member is killed?"""

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import bradbury

pytestmark = pytest.mark.slow

SECONDS = 60.0
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
            producer.send_batch("kept", rows, partition=partition).result(60)


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
        reported = [list(listener.events) for listener in listeners]
    with bradbury.local(str(tmp_path), config=CONFIG) as cluster:
        assert cluster.bootstrap_servers == servers
        produce(servers, range(100, 200))
        read_until(seen, lambda: len(seen) >= 200, *members)
        for member in members:
            member.commit()
        assert [(one.group_metadata(), one.assignment()) for one in members] == before
        assert [listener.events for listener in listeners] == reported
        for member in members:
            member.close()
    assert sorted(seen) == list(range(200))


VICTIM = """
    import bradbury
    with bradbury.Consumer(
        "kept", bootstrap={servers!r}, group="g", auto_offset_reset="earliest",
        partition_assignment_strategy={strategy!r}, heartbeat_interval_ms=100,
        session_timeout_ms=2_000, enable_auto_commit=False, max_poll_records=5,
    ) as consumer:
        while True:
            for value in consumer.poll(50)["value"].to_pylist():
                print(int(value), flush=True)
            consumer.commit()
"""


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_what_a_killed_member_had_is_read_on_by_the_others_from_its_commit(
    strategy: str,
) -> None:
    config = {**CONFIG, "group.min.session.timeout.ms": 1_000}
    with (
        bradbury.local(config=config) as cluster,
        bradbury.Admin(cluster.bootstrap_servers) as admin,
    ):
        servers = cluster.bootstrap_servers
        admin.create_topic("kept", 2)
        produce(servers, range(100))
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(VICTIM.format(**locals()))],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        try:
            assert child.stdout is not None
            printed = [int(child.stdout.readline()) for _ in range(100)]
        finally:
            child.kill()
            child.wait(60)
            assert child.stdout is not None
            child.stdout.close()
        assert sorted(printed) == list(range(100))
        produce(servers, range(100, 200))
        seen: list[int] = []
        with bradbury.Consumer(
            "kept",
            bootstrap=servers,
            group="g",
            partition_assignment_strategy=strategy,
            auto_offset_reset="earliest",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=100,
            max_poll_interval_ms=3_000,
        ) as survivor:
            read_until(seen, lambda: set(seen) >= set(range(100, 200)), survivor)
    again = [number for number in seen if number < 100]
    assert len(again) <= 5  # at most what the victim had printed and not yet committed
