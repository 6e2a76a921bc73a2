"""Do the clients work as Ray actors, and find their cluster by themselves?"""

import inspect
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import ray

import bradbury
from bradbury.clients.consumer_group.worker_actors import ConsumerProcess
from bradbury.protocol.errors import OffsetOutOfRange, UnknownTopicOrPartition
from bradbury.tests.support.certificates import CertificateAuthority

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROWS = 2000


@pytest.fixture
def topic(cluster: bradbury.Cluster, request: pytest.FixtureRequest) -> str:
    name = f"actors-{request.node.name}".replace("[", "-").replace("]", "")
    with bradbury.Admin(cluster.bootstrap_servers) as admin:
        admin.create_topic(name, 2)
    return name


@pytest.fixture
def consumer(topic: str) -> Iterator[Any]:
    """A member of a group; the topic has ROWS records."""
    with bradbury.Producer() as producer:
        producer.send_batch(topic, table(ROWS)).result(30)
    handle = bradbury.ConsumerActor.remote(
        topic, group=topic, auto_offset_reset="earliest", enable_auto_commit=False
    )
    yield handle
    ray.kill(handle)


class Diary(bradbury.RebalanceListener):
    """Writes down what it is told, where the test can read it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_partitions_assigned(self, partitions: Sequence[bradbury.TopicPartition]) -> None:
        self._write("assigned", partitions)

    def on_partitions_revoked(self, partitions: Sequence[bradbury.TopicPartition]) -> None:
        self._write("revoked", partitions)

    def _write(self, what: str, partitions: Sequence[bradbury.TopicPartition]) -> None:
        with self.path.open("a") as diary:
            diary.write(f"{what} {[one.partition for one in partitions]}\n")


def table(count: int) -> pa.Table:
    numbers = [b"%d" % number for number in range(count)]
    return pa.table({"key": [b"%d" % (number % 10) for number in range(count)], "value": numbers})


def values(tables: list[pa.Table]) -> list[int]:
    return [int(value) for one in tables for value in one.column("value").to_pylist()]


def poll_until(consumer: Any, count: int) -> list[pa.Table]:
    tables: list[pa.Table] = []
    while sum(one.num_rows for one in tables) < count:
        tables.append(ray.get(consumer.poll.remote(timeout_ms=30_000), timeout=60))
        assert tables[-1].num_rows
    return tables


def test_actors_and_tasks_find_the_brokers_without_an_address(topic: str) -> None:
    @ray.remote(num_cpus=0)
    def produce(rows: pa.Table) -> int:
        with bradbury.Producer() as producer:
            return producer.send_batch(topic, rows).result(30).count

    assert ray.get(produce.remote(table(ROWS)), timeout=60) == ROWS
    consumer = bradbury.ConsumerActor.remote(topic, group=topic, auto_offset_reset="earliest")
    tables = poll_until(consumer, ROWS)
    assert sorted(values(tables)) == list(range(ROWS))
    ray.get(consumer.close.remote())
    ray.kill(consumer)


def test_a_polled_table_is_read_from_the_object_store_without_a_copy(topic: str) -> None:
    producer = bradbury.ProducerActor.remote()
    ray.get(producer.send_batch.remote(topic, table(ROWS)), timeout=60)
    consumer = bradbury.ConsumerActor.remote(topic, auto_offset_reset="earliest")
    reference = consumer.poll.remote(timeout_ms=30_000)
    first, second = ray.get(reference, timeout=60), ray.get(reference)
    addresses = [
        np.asarray(one.column("offset").chunk(0)).__array_interface__["data"][0]
        for one in (first, second)
    ]
    assert addresses[0] == addresses[1]  # the same shared memory
    for actor in (producer, consumer):
        ray.kill(actor)


@pytest.mark.long  # an actor is killed and restarted
def test_a_restarted_consumer_goes_on_where_its_group_committed(topic: str) -> None:
    producer = bradbury.ProducerActor.remote()
    ray.get(producer.send_batch.remote(topic, table(ROWS)), timeout=60)
    consumer = bradbury.ConsumerActor.remote(
        topic,
        group=topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6_000,
    )
    before = ray.get(consumer.poll.remote(max_records=700, timeout_ms=30_000), timeout=60)
    ray.get(consumer.commit.remote())
    ray.get(consumer.poll.remote(max_records=300, timeout_ms=30_000))  # not committed
    pid = ray.get(consumer.__ray_call__.remote(lambda _: os.getpid()))
    os.kill(pid, signal.SIGKILL)
    while True:
        try:
            ray.get(consumer.assignment.remote(), timeout=60)
            break
        except ray.exceptions.RayActorError:
            continue  # the call met the dying actor
    after = poll_until(consumer, ROWS - before.num_rows)
    assert sorted(values([before, *after])) == list(range(ROWS))
    for actor in (producer, consumer):
        ray.kill(actor)


@pytest.mark.long  # a further actor; tests/clients tries it without one
def test_single_records_are_flushed_and_failures_are_raised_by_flush(topic: str) -> None:
    producer = bradbury.ProducerActor.remote()
    for number in range(20):
        producer.send.remote(topic, b"%d" % number, partition=0)
    ray.get(producer.flush.remote(30), timeout=60)
    last = ray.get(producer.send.remote(topic, b"20", partition=0, wait=True))
    assert (last.partition, last.offset) == (0, 20)
    ray.get(producer.close.remote())
    ray.kill(producer)


def test_errors_reach_the_caller_as_what_they_are(topic: str) -> None:
    consumer = bradbury.ConsumerActor.remote(topic, auto_offset_reset="none")
    with pytest.raises(OffsetOutOfRange):
        ray.get(consumer.poll.remote(timeout_ms=10_000), timeout=60)
    ray.get(consumer.seek_to_beginning.remote())
    assert ray.get(consumer.poll.remote(timeout_ms=50)).num_rows == 0
    ray.kill(consumer)


def call(reference: Any) -> Any:
    return ray.get(reference, timeout=60)


def test_a_handle_has_every_call_of_a_consumer() -> None:
    def calls(kind: type) -> dict[str, list[inspect.Parameter]]:
        """Ray adds parameters of its own, which begin with an underscore."""
        return {
            name: [one for one in inspect.signature(call).parameters.values() if one.name[0] != "_"]
            for name, call in inspect.getmembers(kind, inspect.isfunction)
            if name[0] != "_"
        }

    ours, theirs = calls(ConsumerProcess), calls(bradbury.Consumer)
    one_by_one = theirs.pop("records")
    assert one_by_one  # the only one that makes no sense over a handle
    assert ours.pop("poll") != theirs.pop("poll")  # max_records comes first
    assert ours == theirs


def test_a_handle_pauses_seeks_and_says_where_it_is(consumer: Any, topic: str) -> None:
    poll_until(consumer, ROWS)
    assert call(consumer.assignment.remote()) == [(topic, 0), (topic, 1)]
    assert call(consumer.subscription.remote()) == [topic]
    assert call(consumer.partitions_for.remote(topic)) == 2
    assert call(consumer.lag.remote()) == {(topic, 0): 0, (topic, 1): 0}

    call(consumer.pause.remote((topic, 0)))
    call(consumer.seek_to_time.remote(0))
    assert call(consumer.paused.remote()) == [(topic, 0)]
    count = call(consumer.end_offsets.remote((topic, 1)))[topic, 1]
    tables = poll_until(consumer, count)
    assert {one for each in tables for one in each["partition"].to_pylist()} == {1}
    assert call(consumer.position.remote((topic, 0))) == 0
    assert call(consumer.lag.remote((topic, 0))) == {(topic, 0): ROWS - count}
    assert call(consumer.current_lag.remote((topic, 1))) == 0

    call(consumer.resume.remote((topic, 0)))
    poll_until(consumer, ROWS - count)
    assert call(consumer.beginning_offsets.remote()) == {(topic, 0): 0, (topic, 1): 0}
    [found] = call(consumer.offsets_for_times.remote({(topic, 1): 0})).values()
    assert found.offset == 0


@pytest.mark.long  # a further actor; tests/clients tries it without one
def test_a_handle_commits_in_each_way(consumer: Any, topic: str, tmp_path: Path) -> None:
    poll_until(consumer, ROWS)
    text = bradbury.OffsetAndMetadata(7, "file 7")
    call(consumer.commit.remote({(topic, 0): text, (topic, 1): 3}))
    assert call(consumer.committed_metadata.remote((topic, 0))) == {(topic, 0): text}

    reported = tmp_path / "told"

    def tell(offsets: dict[bradbury.TopicPartition, Any], error: Exception | None) -> None:
        reported.write_text(f"{[stored.offset for stored in offsets.values()]} {error}")

    call(consumer.commit_async.remote({(topic, 1): 9}, tell))
    call(consumer.commit.remote({}))  # waits for those before
    assert reported.read_text() == "[9] None"
    assert call(consumer.committed.remote()) == {(topic, 0): 7, (topic, 1): 9}
    me = call(consumer.group_metadata.remote())
    assert (me.group_id, me.generation) == (topic, 1)


@pytest.mark.long  # a further actor; tests/clients tries it without one
def test_a_handles_listener_lives_in_the_actor(consumer: Any, topic: str, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    call(consumer.subscribe.remote(pattern=f"{topic}.*", listener=Diary(diary)))
    poll_until(consumer, ROWS)
    assert diary.read_text() == "assigned [0, 1]\n"
    call(consumer.enforce_rebalance.remote("a test wants one"))
    before = call(consumer.group_metadata.remote()).generation
    while call(consumer.group_metadata.remote()).generation == before:
        call(consumer.poll.remote(timeout_ms=100))
    call(consumer.unsubscribe.remote())
    expected = ["assigned [0, 1]", "revoked [0, 1]"] * 2
    assert diary.read_text().splitlines() == expected
    assert call(consumer.assignment.remote()) == []


@pytest.mark.long  # a further actor; tests/clients tries it without one
def test_wakeup_ends_a_poll_that_waits_and_the_calls_behind_it_go_on(consumer: Any) -> None:
    poll_until(consumer, ROWS)
    waiting = consumer.poll.remote(timeout_ms=600_000)
    behind = [consumer.seek_to_beginning.remote(), consumer.poll.remote(timeout_ms=30_000)]
    call(consumer.wakeup.remote())
    with pytest.raises(bradbury.Wakeup):
        call(waiting)
    assert call(behind[1]).num_rows


@pytest.mark.long  # a further actor; tests/clients tries it without one
def test_a_poll_without_a_time_waits_and_what_goes_past_it_still_does(
    consumer: Any, topic: str
) -> None:
    poll_until(consumer, ROWS)
    waiting = consumer.poll.remote()
    assert call(consumer.metrics.remote())["consumer-fetch-manager-metrics"]["fetch-total"] >= 1
    with bradbury.Producer() as producer:
        producer.send(topic, b"1", partition=0).result(60)
    assert values([call(waiting)]) == [1]
    waiting = consumer.poll.remote()
    behind = consumer.position.remote((topic, 0))
    call(consumer.wakeup.remote())
    with pytest.raises(bradbury.Wakeup):
        call(waiting)
    assert call(behind) > 0


def test_a_producing_actor_says_what_it_sent(topic: str) -> None:
    producer = bradbury.ProducerActor.remote()
    call(producer.send_batch.remote(topic, table(ROWS)))
    found = call(producer.metrics.remote())
    assert found["producer-metrics"]["record-send-total"] == ROWS
    assert found[f"producer-topic-metrics,topic={topic}"]["record-send-total"] == ROWS
    ray.kill(producer)


@pytest.mark.long  # tests/clients has it without an actor
def test_an_actor_creates_a_topic_only_if_that_is_allowed(topic: str) -> None:
    name = f"{topic}-not-made"
    refusing = bradbury.ProducerActor.remote()
    with pytest.raises(UnknownTopicOrPartition, match=name):
        call(refusing.send.remote(name, b"", wait=True))
    making = bradbury.ProducerActor.remote(allow_auto_create_topics=True)
    assert call(making.send.remote(name, b"", wait=True)).offset == 0
    for actor in (refusing, making):
        ray.kill(actor)


def test_calls_of_a_handle_run_in_its_order(consumer: Any, topic: str) -> None:
    poll_until(consumer, ROWS)
    references = []
    for offset in range(200):
        consumer.seek.remote((topic, 0), offset)
        references.append(consumer.position.remote((topic, 0)))
    assert call(references) == list(range(200))


@pytest.mark.long  # test_secured_topics.py speaks TLS
def test_they_speak_tls_to_a_cluster_that_is_not_rays(
    cluster: bradbury.Cluster, tmp_path: Path
) -> None:
    authority = CertificateAuthority(tmp_path)
    config = {
        "listeners": "SSL://:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.sign("broker"),
    }
    security: Any = {
        "security_protocol": "SSL",
        "ssl_truststore_location": authority.certificate,
    }
    with bradbury.local(config=config) as secured:
        with secured.admin(**security) as admin:
            admin.create_topic("secured")
        options = {"bootstrap": secured.bootstrap_servers, **security}
        producer = bradbury.ProducerActor.remote(**options)
        consumer = bradbury.ConsumerActor.remote("secured", auto_offset_reset="earliest", **options)
        ray.get(producer.send_batch.remote("secured", table(ROWS)), timeout=60)
        ray.get(producer.flush.remote(), timeout=60)
        assert ray.get(consumer.poll.remote(), timeout=60).num_rows > 0
        ray.kill(producer)
        ray.kill(consumer)
