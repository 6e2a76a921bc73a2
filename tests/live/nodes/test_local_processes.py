"""Does `local(processes=N)` serve partitions from processes, which come back and leave nothing?"""

import fcntl
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import bradbury
from bradbury.launch.processes import node_process
from bradbury.storage.disk.storage_failure import DataDirectoryError

pytestmark = pytest.mark.slow
SECONDS = 60.0


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        threading.Event().wait(0.02)


def create(servers: str, topic: str, partitions: int, replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, partitions, replicas)])[topic].result(60)


def produce(servers: str, topic: str, partitions: int, values: range) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    failures: list[object] = []
    for value in values:
        producer.produce(
            topic,
            b"%d" % value,
            partition=value % partitions,
            on_delivery=lambda error, _: error and failures.append(error),
        )
    assert producer.flush(60) == 0
    assert failures == []


def read(servers: str, topic: str, partitions: int, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "x"})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values: list[int] = []
    while len(values) < count:
        messages = consumer.consume(count - len(values), 30)
        assert messages, f"only {len(values)} of {count} records came"
        values += [int(message.value() or b"") for message in messages if not message.error()]
    consumer.close()
    return sorted(values)


def pids(cluster: bradbury.LocalCluster) -> list[int]:
    return [each.pid or 0 for own in cluster.processes for each in own]


def is_in_sync(cluster: bradbury.LocalCluster) -> bool:
    assert cluster.controller is not None
    return cluster.controller.health().under_replicated == 0


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_partitions_are_in_the_processes_and_groups_are_here() -> None:
    with bradbury.local(processes=2) as cluster:
        servers = cluster.bootstrap_servers
        create(servers, "t", 6)
        described = AdminClient({"bootstrap.servers": servers}).list_topics("t", timeout=60)
        leaders = [part.leader for part in described.topics["t"].partitions.values()]
        assert sorted(leaders) == sorted(
            3 * [each.life[0] for each in cluster.processes[0] if each.life is not None]
        )
        produce(servers, "t", 6, range(60))
        assert read(servers, "t", 6, 60) == [*range(60)]
        with bradbury.Consumer("t", bootstrap=servers, group="g") as consumer:
            until(lambda: consumer.poll(100).num_rows >= 0 and len(consumer.assignment()) == 6)
            consumer.commit()
        with cluster.admin() as admin:
            host, port = admin.describe_groups(["g"])[0].coordinator
        assert f"{host}:{port}" == cluster.nodes[0].address
        running = pids(cluster)
        assert len(set(running)) == 2
        assert os.getpid() not in running
    assert not any(is_there(pid) for pid in running)


def test_a_process_that_dies_comes_back_with_all_that_was_acknowledged() -> None:
    with bradbury.local(processes=2) as cluster:
        servers = cluster.bootstrap_servers
        create(servers, "t", 4)
        count = 0
        for round_number in range(3):
            produce(servers, "t", 4, range(count, count + 400))
            count += 400
            killed = cluster.processes[0][round_number % 2]
            pid = killed.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            produce(servers, "t", 4, range(count, count + 400))  # waits for it
            count += 400
            until(lambda killed=killed, pid=pid: killed.life is not None and killed.pid != pid)
        assert read(servers, "t", 4, count) == [*range(count)]


def test_a_node_is_stopped_and_started_with_its_processes() -> None:
    with bradbury.local(nodes=3, processes=1) as cluster:
        servers = cluster.bootstrap_servers
        create(servers, "t", 3, 3)
        produce(servers, "t", 3, range(300))
        before = pids(cluster)
        cluster.stop_node(1)
        assert not is_there(before[1])
        assert is_there(before[0])
        assert is_there(before[2])
        produce(servers, "t", 3, range(300, 600))
        cluster.start_node(1)
        until(lambda: is_in_sync(cluster))
        cluster.stop_node(0)
        cluster.stop_node(2)
        cluster.start_node(0)
        assert read(cluster.bootstrap_servers, "t", 3, 600) == [*range(600)]


def test_data_is_kept_and_no_fewer_processes_are_taken_for_it(tmp_path: Path) -> None:
    with bradbury.local(tmp_path) as cluster:  # all of it in this process
        create(cluster.bootstrap_servers, "early", 2)
        produce(cluster.bootstrap_servers, "early", 2, range(20))
    with bradbury.local(tmp_path, processes=1) as cluster:
        create(cluster.bootstrap_servers, "late", 2)
        produce(cluster.bootstrap_servers, "late", 2, range(20))
        assert read(cluster.bootstrap_servers, "early", 2, 20) == [*range(20)]
    with pytest.raises(DataDirectoryError, match=r"partitions-1 has .*local\(processes=1\)"):
        bradbury.local(tmp_path)
    with bradbury.local(tmp_path, processes=3) as cluster:
        produce(cluster.bootstrap_servers, "early", 2, range(20, 40))
        assert read(cluster.bootstrap_servers, "early", 2, 40) == [*range(40)]
        assert read(cluster.bootstrap_servers, "late", 2, 20) == [*range(20)]


def test_what_a_process_cannot_use_is_one_line_here_and_nothing_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "partitions-2"
    folder.mkdir()
    (folder / ".lock").touch()
    with (folder / ".lock").open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DataDirectoryError, match=r"partitions-2.* in use by a running broker"):
            bradbury.local(tmp_path, processes=2)
    with bradbury.local(tmp_path, processes=2) as cluster:
        create(cluster.bootstrap_servers, "t", 1)
    with pytest.raises(ValueError, match="must be 0 or more"):
        bradbury.local(processes=-1)


def test_a_process_that_hangs_is_killed_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_process, "END_SECONDS", 1.0)
    cluster = bradbury.local(processes=2)
    hanging, other = pids(cluster)
    os.kill(hanging, signal.SIGSTOP)
    cluster.close()
    assert not is_there(hanging)
    assert not is_there(other)
    assert not Path(cluster.data_dir).exists()


def test_they_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    program = f"""
        import os, sys, time
        import bradbury
        cluster = bradbury.local({str(tmp_path)!r}, processes=2)
        with cluster.admin() as admin:
            admin.create_topic("t", 2)
        with bradbury.Producer(cluster.bootstrap_servers) as producer:
            for value in range(20):
                producer.send("t", b"%d" % value, partition=value % 2)
        print(*(each.pid for each in cluster.processes[0]), flush=True)
        time.sleep(600)
    """
    caller = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert caller.stdout is not None
        running = [int(pid) for pid in caller.stdout.readline().split()]
        assert len(running) == 2
        assert all(is_there(pid) for pid in running)
    finally:
        caller.kill()
        caller.communicate()
    until(lambda: not any(is_there(pid) for pid in running))
    with bradbury.local(tmp_path, processes=2) as cluster:
        assert read(cluster.bootstrap_servers, "t", 2, 20) == [*range(20)]
