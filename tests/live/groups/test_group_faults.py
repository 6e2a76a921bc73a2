"""What do the members of a group notice when its coordinator, its leader, or a stranger dies or runs wild?

The broker is a process of its own here, which SIGKILL ends wherever it happens to be.
"""

import itertools
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from bradbury.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from bradbury.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from bradbury.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from bradbury.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from bradbury.tests.support.groups.group_driver import subscription
from bradbury.tests.support.wire.raw_client import RawClient

SECONDS = 60.0
PARTITIONS = 4
BROKER = """
    import sys, time, bradbury
    config = {"offsets.topic.num.partitions": 2, "group.min.session.timeout.ms": 1_000}
    with bradbury.local(sys.argv[1], config=config) as cluster:
        print(cluster.bootstrap_servers, flush=True)
        while True:
            time.sleep(60)
"""


class Broker:
    """A broker that can be killed and started again at the same address."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(BROKER), str(self._data_dir)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.servers = self._process.stdout.readline().strip()
        assert self.servers

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    found = Broker(tmp_path)
    admin = AdminClient({"bootstrap.servers": found.servers})
    admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(60)
    yield found
    found.kill()


def until(happened: Callable[[], bool]) -> None:
    """`happened` waits for the broker itself; so there is nothing to sleep for."""
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"


def member(servers: str, events: list[str], name: str, **settings: object) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 30_000,
            "partition.assignment.strategy": "range",
            "reconnect.backoff.max.ms": 500,
            **settings,
        }
    )
    consumer.subscribe(
        ["t"],
        on_assign=lambda _, found: events.append(f"{name} got {len(found)}"),
        on_revoke=lambda _, found: events.append(f"{name} lost {len(found)}"),
    )
    return consumer


def join(
    member_id: str = "",
    *,
    instance_id: str | None = None,
    session_timeout_ms: int = 6_000,
    rebalance_timeout_ms: int = 6_000,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", subscription("t"))],
    )


@pytest.mark.slow
def test_a_generation_survives_the_kill_of_its_coordinator_and_nobody_rebalances(
    broker: Broker,
) -> None:
    events: list[str] = []
    members = [member(broker.servers, events, name) for name in ("one", "two")]

    def polled() -> None:
        for consumer in members:
            consumer.poll(0.05)

    until(lambda: polled() or [len(m.assignment()) for m in members] == [2, 2])  # type: ignore[func-returns-value]
    where = [sorted(p.partition for p in m.assignment()) for m in members]
    offsets = [TopicPartition("t", partition, 7) for partition in where[0]]
    members[0].commit(offsets=offsets, asynchronous=False)
    events.clear()

    for round_number in range(2):
        broker.kill()
        polled()
        broker.start()
        offsets = [TopicPartition("t", p, 8 + round_number) for p in where[1]]

        def committed(offsets: list[TopicPartition] = offsets) -> bool:
            polled()
            try:
                members[1].commit(offsets=offsets, asynchronous=False)
            except KafkaException as error:
                assert error.args[0].name() in {
                    "_TRANSPORT",
                    "_WAIT_COORD",
                    "_TIMED_OUT",
                    "_ALL_BROKERS_DOWN",
                    "_DESTROY",
                    "REQUEST_TIMED_OUT",
                    "COORDINATOR_LOAD_IN_PROGRESS",
                    "COORDINATOR_NOT_AVAILABLE",
                    "NOT_COORDINATOR",
                }
                return False
            return True

        until(committed)
        polled()
    assert events == []
    assert [sorted(p.partition for p in m.assignment()) for m in members] == where
    asked = [TopicPartition("t", partition) for partition in range(PARTITIONS)]
    found = {p.partition: p.offset for p in members[0].committed(asked, timeout=60)}
    assert found == {**dict.fromkeys(where[0], 7), **dict.fromkeys(where[1], 9)}
    for consumer in members:
        consumer.close()


@pytest.mark.slow
def test_a_commit_that_was_acknowledged_outlives_a_kill_in_the_middle_of_the_next_ones(
    broker: Broker,
) -> None:
    for round_number in range(3):
        acknowledged = committing(broker, first=round_number * 1_000_000)
        last = next(offset for offset in acknowledged if offset % 1_000_000 > 100)
        dying = threading.Timer(0.05, broker.kill)
        dying.start()
        last = max(acknowledged, default=last)  # the generator ends with the connection
        dying.join()
        broker.start()
        until(lambda last=last: found(broker) >= last)  # type: ignore[misc]
        assert found(broker) <= last + 1


def committing(broker: Broker, *, first: int) -> Iterator[int]:
    """Commits one offset after another; gives each that was acknowledged."""
    with RawClient(broker.servers) as client:
        client.find_coordinator("commits")
        for offset in itertools.count(first):
            partitions = [OffsetCommitRequestPartition(0, offset)]
            topics = [OffsetCommitRequestTopic(name="t", partitions=partitions)]
            request = OffsetCommitRequest(group_id="commits", topics=topics)
            try:
                answer = client.call(request, OffsetCommitResponse, 9)
            except (OSError, struct.error):
                return  # cut off
            error = answer.topics[0].partitions[0].error_code
            if error == 0:
                yield offset
            else:
                assert error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def found(broker: Broker) -> int:
    """What the group of `committing` has committed; -1 while it is being loaded."""
    with RawClient(broker.servers) as client:
        groups = [OffsetFetchRequestGroup("commits", topics=None)]
        request = OffsetFetchRequest(groups=groups, require_stable=True)
        answer = client.call(request, OffsetFetchResponse, 9).groups[0]
    if answer.error_code:
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return -1
    return answer.topics[0].partitions[0].committed_offset


@pytest.mark.slow
def test_a_leader_that_dies_between_join_and_sync_holds_the_others_for_its_session_at_most(
    broker: Broker,
) -> None:
    with RawClient(broker.servers) as leader:
        leader.find_coordinator("g")
        member_id = leader.call(join(), JoinGroupResponse, 9).member_id
        short = join(member_id, session_timeout_ms=2_000, rebalance_timeout_ms=60_000)
        answer = leader.call(short, JoinGroupResponse, 9)
        assert (answer.error_code, answer.leader) == (0, member_id)
    events: list[str] = []
    began = time.monotonic()
    follower = member(broker.servers, events, "follower")
    until(lambda: bool(follower.poll(0.1)) or len(follower.assignment()) == PARTITIONS)
    assert time.monotonic() - began < 45  # the rebalance alone would have a minute
    follower.close()


@pytest.mark.slow
def test_a_client_that_joins_ten_thousand_times_and_never_syncs_harms_nobody(
    broker: Broker,
) -> None:
    events: list[str] = []
    consumer = member(broker.servers, events, "good")
    until(lambda: bool(consumer.poll(0.1)) or len(consumer.assignment()) == PARTITIONS)
    other = member(broker.servers, events, "other", **{"group.id": "another"})
    until(lambda: bool(other.poll(0.1)) or len(other.assignment()) == PARTITIONS)
    events.clear()
    with RawClient(broker.servers) as flood:
        frames = bytearray()
        for _ in range(500):
            frames += flood.frame(join(), 9)
        for _ in range(20):
            flood.socket.sendall(frames)
            for _ in range(500):
                assert flood.receive(JoinGroupResponse, 9)[1].error_code in {
                    ErrorCode.MEMBER_ID_REQUIRED,
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                }
            began = time.monotonic()
            other.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
            assert time.monotonic() - began < 10
    consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    other.poll(0)
    consumer.poll(0)
    assert events == []
    consumer.close()
    other.close()


def test_requests_of_one_connection_are_answered_in_their_order_with_what_came_before_in_them(
    broker: Broker,
) -> None:
    """A client need not wait for the answer to its join to send its heartbeat behind it."""
    with RawClient(broker.servers) as client:
        client.find_coordinator("g")
        answer = client.call(join(instance_id="one"), JoinGroupResponse, 9)
        given = [SyncGroupRequestAssignment(answer.member_id, b"mine")]
        sent = [
            client.send(
                SyncGroupRequest("g", 1, answer.member_id, "one", "consumer", "range", given), 5
            ),
            client.send(HeartbeatRequest("g", 1, answer.member_id, "one"), 4),
        ]
        number, synced = client.receive(SyncGroupResponse, 5)
        assert (number, synced.error_code, bytes(synced.assignment)) == (sent[0], 0, b"mine")
        number, alive = client.receive(HeartbeatResponse, 4)
        assert (number, alive.error_code) == (sent[1], 0)


def test_a_deleted_topic_takes_its_offsets_along_and_a_new_one_starts_without(
    broker: Broker,
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.servers})
    admin.create_topics([NewTopic("short", 1, 1)])["short"].result(60)
    producer = Producer({"bootstrap.servers": broker.servers})
    producer.produce("short", b"x")
    assert producer.flush(10) == 0
    consumer = Consumer({"bootstrap.servers": broker.servers, "group.id": "short"})
    partition = TopicPartition("short", 0, 1)
    consumer.commit(offsets=[partition], asynchronous=False)
    admin.delete_topics(["short"])["short"].result(60)
    admin.create_topics([NewTopic("short", 1, 1)])["short"].result(60)
    (found,) = consumer.committed([TopicPartition("short", 0)], timeout=60)
    assert found.offset < 0
    consumer.close()
