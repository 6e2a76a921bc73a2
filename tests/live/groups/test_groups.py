"""Do the consumer groups of the Kafka clients that people use work with us, alone and together?"""

import asyncio
import itertools
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition as AsyncTopicPartition
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException as ConfluentError,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, TopicPartition as KafkaTopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import InvalidGroupIdError
from kafka.structs import OffsetAndMetadata

import bradbury
from bradbury.protocol.errors import InvalidGroupId

PARTITIONS = 4
COUNT = 200
JOIN_MS = 60_000
"""kafka-python 3.0.12 loses a SyncGroup answer that arrives after its poll() has timed out, and joins
again only 30 s later; so its polls get all the time there is. They return as soon as there are
records."""
SECONDS = 120.0
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    config = {
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1_000,
        "offsets.topic.num.partitions": 5,
    }
    with bradbury.local(nodes=2, config=config) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def topic(servers: str) -> str:
    """A fresh topic of four partitions with 200 records."""
    name = f"groups-{next(_numbers)}"
    create(servers, name)
    return name


@pytest.fixture
def group() -> str:
    return f"group-{next(_numbers)}"


def create(servers: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(60)
    produce(servers, name, range(COUNT))


def produce(servers: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in numbers:
        producer.produce(topic, value=str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(10) == 0


def until(happened: Callable[[], bool]) -> None:
    """`happened` polls a client, which waits for the broker; so there is nothing to sleep for."""
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"


def poll(*consumers: Consumer) -> None:
    """One turn of each, whatever it reads."""
    for consumer in consumers:
        consumer.poll(0.05)


def owned(consumer: Consumer) -> set[int]:
    return {partition.partition for partition in consumer.assignment()}


def confluent(servers: str, group: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 6_000,
            **settings,
        }
    )


def kafka_python(servers: str, group: str, **settings: object) -> KafkaConsumer:
    return KafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        session_timeout_ms=6_000,
        **settings,
    )


def read_with_confluent(servers: str, topic: str, group: str, count: int) -> set[int]:
    consumer = confluent(servers, group)
    consumer.subscribe([topic])
    seen: list[int] = []
    until(
        lambda: (
            seen.extend(int(m.value()) for m in consumer.consume(500, 0.2)) or len(seen) >= count
        )
    )
    consumer.commit(asynchronous=False)
    consumer.close()
    assert len(seen) == count
    return set(seen)


def read_with_kafka_python(servers: str, topic: str, group: str, count: int) -> set[int]:
    consumer = kafka_python(servers, group)
    consumer.subscribe([topic])
    seen: list[int] = []

    def poll() -> bool:
        for records in consumer.poll(timeout_ms=JOIN_MS).values():
            seen.extend(int(record.value) for record in records)
        return len(seen) >= count

    until(poll)
    consumer.commit()
    consumer.close()
    assert len(seen) == count
    return set(seen)


def read_with_aiokafka(servers: str, topic: str, group: str, count: int) -> set[int]:
    async def read() -> set[int]:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        try:
            seen = [int((await consumer.getone()).value) for _ in range(count)]
            await consumer.commit()
        finally:
            await consumer.stop()
        return set(seen)

    return asyncio.run(asyncio.wait_for(read(), SECONDS))


READERS = [read_with_confluent, read_with_kafka_python, read_with_aiokafka]


@pytest.mark.parametrize("read", READERS)
def test_a_group_reads_from_the_beginning_commits_and_resumes(
    servers: str, topic: str, group: str, read: Callable[[str, str, str, int], set[int]]
) -> None:
    assert read(servers, topic, group, COUNT) == set(range(COUNT))
    produce(servers, topic, range(COUNT, COUNT + 40))
    assert read(servers, topic, group, 40) == set(range(COUNT, COUNT + 40))


@pytest.mark.parametrize("read", READERS)
def test_every_group_reads_everything(
    servers: str, topic: str, read: Callable[[str, str, str, int], set[int]]
) -> None:
    for _ in range(2):
        assert read(servers, topic, f"group-{next(_numbers)}", COUNT) == set(range(COUNT))


def test_what_one_client_commits_every_client_sees(servers: str, topic: str, group: str) -> None:
    one = kafka_python(servers, group)
    partition = KafkaTopicPartition(topic, 2)
    one.assign([partition])
    one.commit({partition: OffsetAndMetadata(17, "so far", -1)})
    one.close()

    two = confluent(servers, group)
    found, never = two.committed([TopicPartition(topic, 2), TopicPartition(topic, 1)], timeout=60)
    assert (found.offset, found.metadata) == (17, "so far")
    assert never.offset < 0
    two.close()

    async def read() -> int | None:
        three = AIOKafkaConsumer(
            bootstrap_servers=servers, group_id=group, enable_auto_commit=False
        )
        await three.start()
        try:
            three.assign([AsyncTopicPartition(topic, 2)])
            return await three.committed(AsyncTopicPartition(topic, 2))
        finally:
            await three.stop()

    assert asyncio.run(asyncio.wait_for(read(), SECONDS)) == 17


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_two_members_share_the_partitions_and_the_one_that_stays_takes_over(
    servers: str, topic: str, group: str, strategy: str
) -> None:
    settings = {"partition.assignment.strategy": strategy}
    first, second = confluent(servers, group, **settings), confluent(servers, group, **settings)
    first.subscribe([topic])
    until(lambda: poll(first) or len(owned(first)) == PARTITIONS)
    second.subscribe([topic])
    until(lambda: poll(first, second) or (len(owned(first)) == len(owned(second)) == 2))
    assert owned(first) | owned(second) == set(range(PARTITIONS))
    second.close()
    until(lambda: poll(first) or len(owned(first)) == PARTITIONS)
    assert owned(first) == set(range(PARTITIONS))
    first.close()


def test_members_of_different_clients_share_one_group(servers: str, topic: str, group: str) -> None:
    one = confluent(servers, group, **{"partition.assignment.strategy": "range"})
    two = kafka_python(servers, group)
    one.subscribe([topic])
    two.subscribe([topic])
    enough = threading.Event()

    def poll_two() -> None:
        """In its own thread: `one` rejoins in its polls only, and may be waited for here."""
        while not enough.is_set():
            two.poll(timeout_ms=JOIN_MS)

    thread = threading.Thread(target=poll_two)
    thread.start()

    def shared() -> bool:
        one.poll(0.05)
        theirs = {partition.partition for partition in two.assignment()}
        ours = owned(one)
        return len(ours) == len(theirs) == 2 and ours | theirs == set(range(PARTITIONS))

    admin = AdminClient({"bootstrap.servers": servers})

    def described() -> bool:
        one.poll(0.05)
        found = admin.describe_consumer_groups([group])[group].result(60)
        if found.state != ConsumerGroupState.STABLE:
            return False
        assert found.partition_assignor == "range"
        assert {member.host for member in found.members} == {"/127.0.0.1"}
        shares = [p.partition for m in found.members for p in m.assignment.topic_partitions]
        assert sorted(shares) == list(range(PARTITIONS))
        return True

    try:
        until(shared)
        until(described)
    finally:
        enough.set()
        produce(servers, topic, range(PARTITIONS))  # ends the poll of `two`
        thread.join(JOIN_MS / 1000)
        one.close()
        two.close()


def test_a_member_that_is_killed_is_replaced_after_its_session(
    servers: str, topic: str, group: str
) -> None:
    script = f"""
        from confluent_kafka import Consumer
        consumer = Consumer({{
            "bootstrap.servers": {servers!r}, "group.id": {group!r},
            "session.timeout.ms": 2500, "partition.assignment.strategy": "range",
        }})
        consumer.subscribe([{topic!r}])
        while not consumer.assignment():
            consumer.poll(0.05)
        print("in", flush=True)
        while True:
            consumer.poll(0.05)
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "in\n"
        child.send_signal(signal.SIGKILL)
        child.wait(60)
        consumer = confluent(servers, group, **{"partition.assignment.strategy": "range"})
        consumer.subscribe([topic])
        until(lambda: poll(consumer) or len(owned(consumer)) == PARTITIONS)
        consumer.close()
    finally:
        child.kill()
        child.wait(60)
        if child.stdout is not None:
            child.stdout.close()


def test_a_static_member_restarts_without_a_rebalance(servers: str, topic: str, group: str) -> None:
    rebalances: list[str] = []

    def member(name: str) -> Consumer:
        consumer = confluent(servers, group, **{"group.instance.id": name})
        consumer.subscribe([topic], on_assign=lambda *_: rebalances.append(name))
        return consumer

    stays, restarts = member("stays"), member("restarts")
    until(lambda: poll(stays, restarts) or len(owned(stays)) == len(owned(restarts)) == 2)
    before = owned(restarts)
    rebalances.clear()
    restarts.close()
    restarts = member("restarts")
    until(lambda: poll(stays, restarts) or len(owned(restarts)) == 2)
    assert owned(restarts) == before
    assert rebalances == ["restarts"]
    stays.close()
    restarts.close()


def test_the_second_of_two_members_with_one_instance_id_fences_the_first(
    servers: str, topic: str, group: str
) -> None:
    first = confluent(servers, group, **{"group.instance.id": "only"})
    second = confluent(servers, group, **{"group.instance.id": "only"})
    first.subscribe([topic])
    until(lambda: poll(first) or len(owned(first)) == PARTITIONS)
    second.subscribe([topic])
    until(lambda: poll(second) or len(owned(second)) == PARTITIONS)

    with pytest.raises(ConfluentError) as fenced:
        first.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    assert fenced.value.args[0].name() in {"FENCED_INSTANCE_ID", "_FATAL"}
    second.close()
    first.close()


def test_auto_commit_is_enough(servers: str, topic: str, group: str) -> None:
    consumer = kafka_python(servers, group)
    consumer.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=100,
    )
    seen: list[int] = []

    def poll() -> bool:
        for records in consumer.poll(timeout_ms=JOIN_MS).values():
            seen.extend(int(record.value) for record in records)
        return len(seen) >= COUNT

    until(poll)
    consumer.close()
    admin = KafkaAdminClient(bootstrap_servers=servers)
    offsets = admin.list_group_offsets([group])[group]
    admin.close()
    assert sum(offset.offset for offset in offsets.values()) == COUNT


def test_operators_list_describe_move_and_delete_groups(
    servers: str, topic: str, group: str
) -> None:
    read_with_confluent(servers, topic, group, COUNT)
    admin = AdminClient({"bootstrap.servers": servers})
    listed = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(60)
    assert group in {found.group_id for found in listed.valid}
    assert listed.errors == []
    stable = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(60)
    assert group not in {found.group_id for found in stable.valid}
    described = admin.describe_consumer_groups([group])[group].result(60)
    assert (described.state, described.members) == (ConsumerGroupState.EMPTY, [])
    to_start = [TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]
    asked = ConsumerGroupTopicPartitions(group, to_start)
    admin.alter_consumer_group_offsets([asked])[group].result(60)
    assert read_with_confluent(servers, topic, group, COUNT) == set(range(COUNT))
    admin.delete_consumer_groups([group])[group].result(60)
    with pytest.raises(ConfluentError, match=r"GROUP_ID_NOT_FOUND|does not exist"):
        admin.delete_consumer_groups([group])[group].result(60)


def test_the_group_without_a_name_keeps_offsets_but_has_no_members(
    servers: str, topic: str
) -> None:
    at = KafkaTopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=servers, group_id="", enable_auto_commit=False)
    consumer.assign([at])
    consumer.commit({at: OffsetAndMetadata(7, "", -1)})
    assert consumer.committed(at) == 7
    consumer.unsubscribe()
    consumer.subscribe([topic])
    with pytest.raises(InvalidGroupIdError):
        consumer.poll(timeout_ms=10_000)
    consumer.close()
    with pytest.raises(InvalidGroupId):
        bradbury.Consumer(topic, bootstrap=servers, group=" ")


def test_the_nodes_of_a_cluster_share_the_coordination_of_its_groups(
    servers: str, topic: str
) -> None:
    names = [f"shared-{next(_numbers)}" for _ in range(20)]
    admin = AdminClient({"bootstrap.servers": servers})
    for name in names:
        asked = ConsumerGroupTopicPartitions(name, [TopicPartition(topic, 0, 1)])
        admin.alter_consumer_group_offsets([asked])[name].result(60)
    described = admin.describe_consumer_groups(names)
    coordinators = {name: described[name].result(60).coordinator.id for name in names}
    assert len(set(coordinators.values())) == 2
    with KafkaAdminClient(bootstrap_servers=servers) as other:
        found = other.describe_groups(names)
    assert {name: found[name]["group_state"] for name in names} == dict.fromkeys(names, "Empty")


def test_a_group_with_members_cannot_be_deleted(servers: str, topic: str, group: str) -> None:
    consumer = confluent(servers, group)
    consumer.subscribe([topic])
    until(lambda: poll(consumer) or len(owned(consumer)) == PARTITIONS)
    admin = AdminClient({"bootstrap.servers": servers})
    with pytest.raises(ConfluentError, match=r"NON_EMPTY_GROUP|not empty"):
        admin.delete_consumer_groups([group])[group].result(60)
    consumer.close()


def test_offsets_and_generations_survive_a_restart_of_the_cluster(tmp_path: Path) -> None:
    """The members keep their generation: nobody rebalances because the coordinator went away."""
    config = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 3}
    assigned: list[int] = []
    with bradbury.local(str(tmp_path), config=config) as cluster:
        servers = cluster.bootstrap_servers
        create(servers, "kept")
        consumer = confluent(servers, "kept-group", **{"session.timeout.ms": 30_000})
        consumer.subscribe(["kept"], on_assign=lambda _, found: assigned.append(len(found)))
        seen: list[int] = []
        until(
            lambda: (
                seen.extend(int(m.value()) for m in consumer.consume(500, 0.2))
                or len(seen) >= COUNT
            )
        )
        consumer.commit(asynchronous=False)
    with bradbury.local(str(tmp_path), config=config) as cluster:
        assert cluster.bootstrap_servers == servers
        produce(servers, "kept", range(COUNT, COUNT + 40))
        until(
            lambda: (
                seen.extend(int(m.value()) for m in consumer.consume(500, 0.2) if not m.error())
                or len(seen) >= COUNT + 40
            )
        )
        consumer.commit(asynchronous=False)
        consumer.close()
    assert sorted(seen) == list(range(COUNT + 40))
    assert assigned == [PARTITIONS]
