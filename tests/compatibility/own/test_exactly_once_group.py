"""A group of actors from topic to topic, exactly once: members die, come and go all the while."""

import os
import random
import signal
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

import bradbury
from bradbury.benchmarks.support.kafka_broker import KafkaBroker
from bradbury.protocol.errors import InvalidConfig, UnknownTopicOrPartition
from bradbury.tests.compatibility.support.kafka_jars import require_kafka

pytestmark = [pytest.mark.slow, pytest.mark.ray]

SECONDS = 240.0


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("kafka", marks=[pytest.mark.java, pytest.mark.deep]),
        pytest.param("ours"),
    ],
)
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, ray_cluster: str
) -> Iterator[str]:
    if request.param == "ours":
        with bradbury.local() as cluster:
            yield cluster.bootstrap_servers
        return
    require_kafka()
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), heap="256m") as kafka:
        yield kafka.bootstrap_servers


@pytest.fixture
def topic(servers: str, new_name: str) -> str:
    """Its records are in `<topic>`; what becomes of them is in `<topic>-out`."""
    with bradbury.Admin(servers) as admin:
        admin.create_topic(new_name, 4)
        admin.create_topic(f"{new_name}-out", 3)
    return new_name


def fill(servers: str, topic: str, count: int) -> None:
    with bradbury.Producer(servers) as producer:
        producer.send_batch(topic, [str(number) for number in range(count)]).result(60)


def values_in(servers: str, topic: str, level: str = "read_committed") -> list[int]:
    with bradbury.Consumer(
        topic, bootstrap=servers, auto_offset_reset="earliest", isolation_level=level
    ) as consumer:
        ends = consumer.end_offsets()
        found: list[int] = []
        while any(consumer.position(key) < end for key, end in ends.items()):
            found += map(int, consumer.poll(100).column("value").to_pylist())
    return sorted(found)


def group_of(servers: str, topic: str, **options: object) -> bradbury.ConsumerGroup:
    settings = {
        "bootstrap": servers,
        "exactly_once": True,
        "auto_offset_reset": "earliest",
        "batch_records": 50,
        **options,
    }
    return bradbury.ConsumerGroup(topic, topic, **settings)


class Copy:
    def __init__(self, topic: str, pause_s: float = 0.0) -> None:
        self.topic = topic
        self.pause_s = pause_s

    def __call__(self, table: pa.Table) -> dict[str, pa.Table]:
        time.sleep(self.pause_s)
        return {f"{self.topic}-out": table.select(["key", "value"])}


# tests/ray/test_producer_actor_transactions.py kills an actor, tests/crash/chains more
@pytest.mark.long
@pytest.mark.parametrize(
    ("workers", "order"),
    [(0, None), (3, None), pytest.param(3, "key", marks=pytest.mark.deep)],  # four minutes
)
def test_each_record_comes_out_once_while_members_are_killed_and_shared_again(
    servers: str, topic: str, workers: int, order: str | None
) -> None:
    fill(servers, topic, 6_000)
    with group_of(servers, topic, actors=2, workers=workers, order=order) as group:
        run = group.for_each(Copy, fn_constructor_args=[topic, 0.1], stop_at_end=True)
        killer = threading.Thread(target=disturb, args=(group, workers), daemon=True)
        killer.start()
        run.wait(SECONDS)
        killer.join()
    assert values_in(servers, f"{topic}-out") == list(range(6_000))


def disturb(group: bradbury.ConsumerGroup, workers: int) -> None:
    for number in range(4):
        time.sleep(random.uniform(1.0, 3.0))
        if number == 2:
            group.resize(3, workers=workers)
            continue
        living = [member.pid for member in group.status().members if member.pid]
        if living:
            os.kill(random.choice(living), signal.SIGKILL)


def test_records_that_are_made_one_by_one_and_batches_without_any_output(
    servers: str, topic: str
) -> None:
    def halves(records: list) -> list[bradbury.ProducerRecord] | None:
        numbers = [int(record.value) for record in records if int(record.value) % 2 == 0]
        return [
            bradbury.ProducerRecord(f"{topic}-out", str(number // 2)) for number in numbers
        ] or None

    fill(servers, topic, 300)
    with group_of(servers, topic) as group:
        group.for_each(halves, batch_format="records", stop_at_end=True).wait(SECONDS)
    assert values_in(servers, f"{topic}-out") == list(range(150))
    with bradbury.Admin(servers) as admin:
        assert sum(one.offset for one in admin.group_offsets(topic).values()) == 300


def test_what_cannot_be_written_fails_its_batch_and_no_other(servers: str, topic: str) -> None:
    def send(table: pa.Table) -> dict[str, list[str]]:
        values = table.column("value").to_pylist()
        name = "there-is-none" if b"120" in values else f"{topic}-out"
        return {name: values}

    fill(servers, topic, 300)
    with group_of(servers, topic, producer_options={"linger_ms": 0}) as group:
        run = group.for_each(send, stop_at_end=True)
        with pytest.raises(bradbury.BatchFailed) as failed:
            run.wait(SECONDS)
        assert isinstance(failed.value.__cause__, UnknownTopicOrPartition)
        assert b"120" in failed.value.table.column("value").to_pylist()
        run.wait(SECONDS)  # it is dealt with; the others go on
    lost = {int(value) for value in failed.value.table.column("value").to_pylist()}
    assert values_in(servers, f"{topic}-out") == [n for n in range(300) if n not in lost]


def test_a_function_that_returns_something_else_is_told_what_to_return(
    servers: str, topic: str
) -> None:
    fill(servers, topic, 10)
    with group_of(servers, topic) as group:
        with pytest.raises(bradbury.BatchFailed, match="topic: table"):
            group.for_each(lambda table: table.num_rows, stop_at_end=True).wait(SECONDS)


def test_settings_that_promise_something_else_are_refused(servers: str, topic: str) -> None:
    with pytest.raises(InvalidConfig, match="choose one"):
        group_of(servers, topic, guarantee="at_most_once")
    with pytest.raises(InvalidConfig, match="acks"):
        group_of(servers, topic, producer_options={"acks": 1})
    with pytest.raises(InvalidConfig, match="exactly_once=True, which writes"):
        group_of(servers, topic, exactly_once=False, producer_options={"linger_ms": 1})
    with group_of(servers, topic) as group, pytest.raises(InvalidConfig, match="for_each"):
        group.map(lambda table: None)
