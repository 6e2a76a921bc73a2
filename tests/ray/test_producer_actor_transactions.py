"""Transactions of a ProducerActor: committed, aborted, fenced, and its process killed in between."""

import inspect
import os
import signal
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
import ray

import bradbury
from bradbury.clients.consumer_group.worker_actors import ProducerProcess
from bradbury.protocol.errors import InvalidTxnState, ProducerFenced, TransactionAbortable

pytestmark = [pytest.mark.ray, pytest.mark.slow]

NEVER_MS = 900_000
"""Longer than any of these tests: nobody but the next producer ends what was left open."""


@pytest.fixture
def topic(cluster: bradbury.Cluster, request: pytest.FixtureRequest) -> str:
    name = request.node.name.removeprefix("test_")[:100]
    with cluster.admin() as admin:
        admin.create_topic(name, 1)
    return name


def new_producer(name: str, **options: Any) -> Any:
    return bradbury.ProducerActor.remote(
        transactional_id=name, transaction_timeout_ms=NEVER_MS, **options
    )


def call(reference: Any) -> Any:
    return ray.get(reference, timeout=120)


def kill(producer: Any) -> None:
    """With -9; then wait until its next life answers."""
    os.kill(call(producer.__ray_call__.remote(lambda _: os.getpid())), signal.SIGKILL)
    insist(lambda: call(producer.metrics.remote()))


def insist(do: Callable[[], Any]) -> Any:
    """Again, while it meets an actor that dies or begins."""
    while True:
        try:
            return do()
        except ray.exceptions.RayActorError as error:
            assert not isinstance(error, ray.exceptions.ActorUnschedulableError)


def committed(topic: str, count: int) -> list[int]:
    """The first `count` values that a reader of committed records is given, and it waits for."""
    found: list[int] = []
    with bradbury.Consumer(
        topic, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        while len(found) < count:
            found += [int(value) for value in consumer.poll()["value"].to_pylist()]
    return found


def test_a_handle_has_every_call_of_a_producer() -> None:
    def calls(kind: type) -> dict[str, list[inspect.Parameter]]:
        """Ray adds parameters of its own, which begin with an underscore."""
        return {
            name: [one for one in inspect.signature(call).parameters.values() if one.name[0] != "_"]
            for name, call in inspect.getmembers(kind, inspect.isfunction)
            if name[0] != "_"
        }

    ours, theirs = calls(ProducerProcess), calls(bradbury.Producer)
    for name in ("send_encoded", "transaction"):
        assert theirs.pop(name)  # whole batches are the broker's form; a block needs no handle
    for name in ("send", "send_batch"):
        assert ours.pop(name) != theirs.pop(name)  # they do not return futures
    assert ours == theirs


def test_what_was_committed_is_shown_with_its_offsets_and_what_was_aborted_is_not(
    topic: str,
) -> None:
    producer = new_producer(topic)
    consumer = bradbury.ConsumerActor.remote(
        topic, group=topic, auto_offset_reset="earliest", enable_auto_commit=False
    )
    call(producer.init_transactions.remote())
    call(producer.begin.remote())
    call(producer.send.remote(topic, b"0"))
    call(producer.send_batch.remote(topic, pa.table({"value": [b"1", b"2"]})))
    call(producer.commit.remote())
    call(consumer.poll.remote(timeout_ms=30_000))
    member = call(consumer.group_metadata.remote())

    call(producer.begin.remote())
    call(producer.send.remote(topic, b"100"))
    call(producer.send_offsets.remote({(topic, 0): 1}, member))
    call(producer.abort.remote())
    call(producer.flush.remote())  # what was aborted is nobody's failure
    assert call(consumer.committed.remote()) == {(topic, 0): None}

    call(producer.begin.remote())
    call(producer.send.remote(topic, b"3"))
    call(producer.send_offsets.remote({(topic, 0): 3}, member))
    call(producer.commit.remote())
    assert call(consumer.committed.remote()) == {(topic, 0): 3}
    assert committed(topic, 4) == [0, 1, 2, 3]
    found = call(producer.metrics.remote())["producer-metrics"]
    assert found["txn-commit-time-ns-total"] > 0
    for actor in (producer, consumer):
        ray.kill(actor)


def test_calls_in_the_wrong_order_say_so(topic: str) -> None:
    producer = new_producer(topic)
    with pytest.raises(InvalidTxnState):
        call(producer.commit.remote())
    with pytest.raises(InvalidTxnState):
        call(producer.send.remote(topic, b"0"))
    plain = bradbury.ProducerActor.remote()
    with pytest.raises(InvalidTxnState, match="transactional_id"):
        call(plain.begin.remote())
    for actor in (producer, plain):
        ray.kill(actor)


def test_an_actor_with_the_same_id_fences_the_one_before(topic: str) -> None:
    first, second = new_producer(topic), new_producer(topic)
    call(first.begin.remote())
    call(first.send.remote(topic, b"100", wait=True))
    call(second.begin.remote())
    with pytest.raises((ProducerFenced, TransactionAbortable)):
        call(first.commit.remote())
    call(second.send.remote(topic, b"1"))
    call(second.commit.remote())
    with pytest.raises(ProducerFenced):
        call(first.begin.remote())
    assert committed(topic, 1) == [1]
    for actor in (first, second):
        ray.kill(actor)


@pytest.mark.long  # the test of every number kills it, too
def test_what_a_killed_actor_has_left_open_is_aborted_by_its_next_life(topic: str) -> None:
    producer = new_producer(topic)
    call(producer.begin.remote())
    call(producer.send.remote(topic, b"100", wait=True))
    with bradbury.Producer() as other:
        other.send(topic, b"1").result(60)  # behind the open transaction
    kill(producer)
    assert committed(topic, 1) == [1], "nobody has begun another transaction"
    with pytest.raises(InvalidTxnState):
        call(producer.send.remote(topic, b"101"))
    with pytest.raises(InvalidTxnState):
        call(producer.commit.remote())
    call(producer.begin.remote())
    call(producer.send.remote(topic, b"2"))
    call(producer.commit.remote())
    assert committed(topic, 2) == [1, 2]
    ray.kill(producer)


@pytest.mark.long  # the test of every number kills it, too
def test_calls_that_a_restart_comes_between_commit_nothing_by_halves(topic: str) -> None:
    producer = new_producer(topic)
    call(producer.begin.remote())
    call(producer.send.remote(topic, b"100", wait=True))
    process = call(producer.__ray_call__.remote(lambda _: os.getpid()))
    os.kill(process, signal.SIGKILL)
    calls = [producer.send.remote(topic, b"101"), producer.commit.remote()]
    for one in calls:
        with pytest.raises((ray.exceptions.RayActorError, InvalidTxnState)):
            call(one)
    insist(lambda: call(producer.init_transactions.remote()))
    call(producer.begin.remote())
    call(producer.send.remote(topic, b"1"))
    call(producer.commit.remote())
    assert committed(topic, 1) == [1]
    ray.kill(producer)


@pytest.mark.long  # a process is killed; make test has others of the kind
def test_each_number_is_once_in_the_output_however_often_the_actor_is_killed(topic: str) -> None:
    """Where it goes on after a call was lost is what the group has stored, as in the docs."""
    producer = new_producer(topic)
    reader = bradbury.Consumer(topic, group=topic, enable_auto_commit=False)
    place = bradbury.TopicPartition(topic, 0)
    kills = ["before the commit", "during the commit"]
    done = 0
    with reader:
        while done < 5:
            try:
                call(producer.begin.remote())
                process = call(producer.__ray_call__.remote(lambda _: os.getpid()))
                call(producer.send.remote(topic, b"%d" % done))
                call(producer.send_offsets.remote({place: done + 1}, topic))
                how = kills.pop() if kills and done % 2 else ""
                if how == "before the commit":
                    os.kill(process, signal.SIGKILL)
                last = producer.commit.remote()
                if how == "during the commit":
                    os.kill(process, signal.SIGKILL)
                call(last)
                done += 1
            except (ray.exceptions.RayActorError, InvalidTxnState):
                insist(lambda: call(producer.init_transactions.remote()))
                done = reader.committed(place)[place] or 0
    assert not kills
    assert committed(topic, 5) == list(range(5))
    ray.kill(producer)
