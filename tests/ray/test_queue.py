"""Is bradbury.Queue what Ray's own queue is, and what it promises beyond that?"""

import asyncio
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import ray
from confluent_kafka import Producer as ConfluentProducer
from ray.exceptions import GetTimeoutError, RayActorError

import bradbury
from bradbury.clients.queue.queue import Empty, Full
from bradbury.protocol.errors import MessageTooLarge, UnknownTopicOrPartition
from bradbury.tests.support.ray.ray_nodes import wait_for

pytestmark = [pytest.mark.ray, pytest.mark.slow]

MakeQueue = Callable[..., bradbury.Queue]
WAIT_S = 60
SHORT_S = 0.2


@pytest.fixture
def make_queue(cluster: bradbury.Cluster) -> Iterator[MakeQueue]:
    """Queues that are gone after the test."""
    queues: list[bradbury.Queue] = []

    def make(*arguments: Any, **options: Any) -> bradbury.Queue:
        queues.append(bradbury.Queue(*arguments, **options))
        return queues[-1]

    yield make
    for queue in queues:
        if queue.actor is not None:
            queue.delete()


@ray.remote(num_cpus=0)
def get_one(queue: bradbury.Queue) -> Any:
    return queue.get(block=True)


@ray.remote(num_cpus=0)
def put_one(queue: bradbury.Queue, item: Any) -> None:
    queue.put(item, block=True)


@ray.remote(num_cpus=0)
class Worker:
    """A process that gets and receives."""

    def __init__(self, queue: bradbury.Queue) -> None:
        self._queue = queue
        self._deliveries: list[Any] = []

    def get(self, count: int) -> list[Any]:
        return [self._queue.get(timeout=WAIT_S) for _ in range(count)]

    def get_all(self) -> list[Any]:
        items = []
        try:
            while True:
                items.append(self._queue.get_nowait())
        except Empty:
            return items

    def receive(self, count: int) -> list[tuple[Any, int]]:
        while len(self._deliveries) < count:
            self._deliveries += self._queue.receive_batch(count, timeout=WAIT_S)
        return [(each.item, each.delivery_count) for each in self._deliveries]

    def ack(self) -> None:
        for each in self._deliveries:
            each.ack()

    def process_id(self) -> int:
        return os.getpid()


# --- what Ray's queue does ---------------------------------------------------------------------


def test_items_come_in_the_order_in_which_they_were_put(make_queue: MakeQueue) -> None:
    queue = make_queue()
    items = [0, "one", b"two", None, {"three": [3.0]}, lambda: 5]
    for item in items:
        queue.put(item)
    assert [queue.get() for _ in items[:-1]] == items[:-1]
    assert queue.get()() == 5


def test_a_long_queue_is_as_long_as_was_put_and_comes_in_order(make_queue: MakeQueue) -> None:
    queue = make_queue()
    count = 3_000
    for start in range(0, count, 500):
        queue.put_nowait_batch(list(range(start, min(start + 500, count))))
    for number in range(count, count + 20):
        queue.put(number)
        assert queue.qsize() == number + 1
    assert queue.get_nowait_batch(count + 10) == list(range(count + 10))
    assert [queue.get(timeout=WAIT_S) for _ in range(10)] == list(range(count + 10, count + 20))
    with pytest.raises(Empty):
        queue.get_nowait()


@pytest.mark.parametrize("maxsize", [0, pytest.param(3, marks=pytest.mark.long)])
def test_get_waits_as_it_is_told(make_queue: MakeQueue, maxsize: int) -> None:
    queue = make_queue(maxsize)
    queue.put(0)
    assert queue.get(block=False) == 0
    queue.put(1)
    assert queue.get(timeout=SHORT_S) == 1
    with pytest.raises(ValueError, match="non-negative"):
        queue.get(timeout=-1)
    with pytest.raises(Empty):
        queue.get_nowait()
    with pytest.raises(Empty):
        queue.get(timeout=SHORT_S)


def test_coroutines_put_and_get(make_queue: MakeQueue) -> None:
    async def scenario(queue: bradbury.Queue) -> None:
        await queue.put_async(0)
        assert await queue.get_async(block=False) == 0
        await queue.put_async(1, timeout=SHORT_S)
        assert await queue.get_async(timeout=SHORT_S) == 1
        for wrong in (queue.get_async(timeout=-1), queue.put_async(0, timeout=-1)):
            with pytest.raises(ValueError, match="non-negative"):
                await wrong
        with pytest.raises(Empty):
            await queue.get_async(block=False)
        with pytest.raises(Empty):
            await queue.get_async(timeout=SHORT_S)
        getters = [asyncio.create_task(queue.get_async()) for _ in range(10)]
        await asyncio.gather(*(queue.put_async(number) for number in range(10)))
        assert sorted(await asyncio.gather(*getters)) == list(range(10))

    for maxsize in (0, 20):
        asyncio.run(scenario(make_queue(maxsize)))


def test_coroutines_receive_and_acknowledge(make_queue: MakeQueue) -> None:
    async def scenario(queue: bradbury.Queue) -> None:
        with pytest.raises(Empty):
            await queue.receive_async(block=False)
        with pytest.raises(Empty):
            await queue.receive_async(timeout=SHORT_S)
        with pytest.raises(ValueError, match="non-negative"):
            await queue.receive_async(timeout=-1)
        waiting = asyncio.create_task(queue.receive_async())
        await asyncio.sleep(SHORT_S)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        receivers = [asyncio.create_task(queue.receive_async(timeout=WAIT_S)) for _ in range(2)]
        await asyncio.gather(*(queue.put_async(item) for item in ("done", "refused")))
        received = {each.item: each for each in await asyncio.gather(*receivers)}
        received["done"].ack()
        received["refused"].nack()
        again = await queue.receive_async(timeout=WAIT_S)
        assert (again.item, again.delivery_count) == ("refused", 2)
        again.ack()

    queue = make_queue()
    asyncio.run(scenario(queue))
    assert queue.empty()


@pytest.mark.long  # a further queue, and so a further process
def test_a_coroutine_that_is_cancelled_has_got_nothing(make_queue: MakeQueue) -> None:
    async def scenario() -> None:
        queue = make_queue()
        waiting = asyncio.create_task(queue.get_async())
        await asyncio.sleep(SHORT_S)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await queue.put_async("item")
        assert await queue.get_async(timeout=WAIT_S) == "item"

    asyncio.run(scenario())


def test_a_full_queue_accepts_nothing(make_queue: MakeQueue) -> None:
    queue = make_queue(1)
    queue.put(0, block=False)
    assert queue.full()
    assert queue.get() == 0
    queue.put(1, timeout=SHORT_S)
    assert queue.get() == 1
    with pytest.raises(ValueError, match="non-negative"):
        queue.put(0, timeout=-1)
    queue.put(0)
    with pytest.raises(Full):
        queue.put_nowait(1)
    with pytest.raises(Full):
        queue.put(1, timeout=SHORT_S)
    assert queue.qsize() == 1


@pytest.mark.long  # a further queue, and so a further process
def test_a_get_in_another_process_waits_for_the_item(make_queue: MakeQueue) -> None:
    queue = make_queue()
    future = get_one.remote(queue)
    with pytest.raises(Empty):
        queue.get_nowait()
    with pytest.raises(GetTimeoutError):
        ray.get(future, timeout=SHORT_S)
    queue.put(1)
    assert ray.get(future, timeout=WAIT_S) == 1


@pytest.mark.long  # a further queue, and so a further process
def test_a_put_in_another_process_waits_for_room(make_queue: MakeQueue) -> None:
    queue = make_queue(1)
    queue.put(1)
    future = put_one.remote(queue, 2)
    with pytest.raises(Full):
        queue.put_nowait(3)
    with pytest.raises(GetTimeoutError):
        ray.get(future, timeout=SHORT_S)
    assert queue.get() == 1
    assert queue.get(timeout=WAIT_S) == 2
    ray.get(future, timeout=WAIT_S)


@pytest.mark.long  # a further queue, and so a further process
def test_batches_are_put_and_got_whole(make_queue: MakeQueue) -> None:
    small = make_queue(1)
    with pytest.raises(Full):
        small.put_nowait_batch([1, 2])
    with pytest.raises(Empty):
        small.get_nowait_batch(1)
    assert small.get_nowait_batch(0) == []
    for wrong in ("1", 1.0):
        with pytest.raises(TypeError):
            small.get_nowait_batch(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nonnegative"):
        small.get_nowait_batch(-1)
    with pytest.raises(TypeError):
        small.put_nowait_batch(1)  # type: ignore[arg-type]
    for large in (make_queue(100), make_queue()):
        large.put_nowait_batch(list(range(100)))
        with pytest.raises(Empty):
            large.get_nowait_batch(101)
        assert large.get_nowait_batch(30) == list(range(30))
        assert large.qsize() == 70
        assert large.get() == 30
        assert large.get_nowait_batch(69) == list(range(31, 100))


@pytest.mark.parametrize("maxsize", [pytest.param(0, marks=pytest.mark.long), 10])
def test_the_size_is_right_at_once(make_queue: MakeQueue, maxsize: int) -> None:
    queue = make_queue(maxsize)
    assert queue.qsize() == len(queue) == 0
    assert queue.empty()
    for count in range(10):
        queue.put(count)
        assert queue.qsize() == count + 1
    for count in range(10):
        assert queue.get() == count
        assert queue.size() == 9 - count


@pytest.mark.long  # a further queue, and so a further process
def test_after_shutdown_the_actor_is_gone(make_queue: MakeQueue) -> None:
    for force in (False, True):
        queue = make_queue()
        actor = queue.actor
        queue.put(1)
        queue.shutdown(force=force)
        assert queue.actor is None
        with pytest.raises(RayActorError):
            ray.get(actor.empty.remote())
        with pytest.raises(ValueError, match="shut down"):
            queue.get()


@pytest.mark.long  # a further queue, and so a further process
def test_the_actor_has_the_options_that_are_given(make_queue: MakeQueue) -> None:
    queue = make_queue(actor_options={"name": "queue-by-name", "num_cpus": 0})
    queue.put(1)
    assert ray.get(ray.get_actor("queue-by-name").qsize.remote()) == 1
    assert not ray.get(queue.actor.full.remote())


@pytest.mark.long  # a further queue, and so a further process
def test_references_to_objects_are_items(make_queue: MakeQueue) -> None:
    queue = make_queue()
    reference = ray.put("in the object store")
    queue.put_nowait_batch([reference])
    assert ray.get(queue.get()) == "in the object store"


# --- several processes -------------------------------------------------------------------------


@pytest.mark.long  # several processes of Ray
def test_each_item_is_got_by_one_process(make_queue: MakeQueue) -> None:
    queue = make_queue()
    workers = [Worker.remote(queue) for _ in range(3)]
    ray.get([put_one.remote(queue, f"task-{number}") for number in range(5)])
    for number in range(500):
        queue.put(number) if number % 2 else queue.put_nowait_batch([number])
    items = [each for got in ray.get([one.get_all.remote() for one in workers]) for each in got]
    assert sorted(map(str, items)) == sorted(
        [*(f"task-{number}" for number in range(5)), *(str(number) for number in range(500))]
    )


@pytest.mark.long  # a further queue, and so a further process
def test_what_one_process_holds_ahead_another_one_gets(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.put_nowait_batch(list(range(100)))
    assert queue.get() == 0, "the rest of the record has come with it"
    worker = Worker.remote(queue)
    assert ray.get(worker.get.remote(99), timeout=WAIT_S) == list(range(1, 100))
    with pytest.raises(Empty):
        queue.get_nowait()


def test_a_named_queue_is_found_by_its_name(make_queue: MakeQueue) -> None:
    name = f"jobs-{uuid.uuid4().hex[:8]}"
    queue = make_queue(5, name=name)
    make_queue(name=name).put("item")
    assert queue.get(timeout=WAIT_S) == "item"
    assert make_queue(name=name).maxsize == 5
    for other in ({"maxsize": 7}, {"lease_s": 1}, {"max_deliveries": 2}, {"retention_s": 0}):
        (setting,) = other
        with pytest.raises(ValueError, match=f"runs with {setting}=.*leave out {setting}="):
            bradbury.Queue(name=name, **other)


# --- what nothing loses ------------------------------------------------------------------------


@pytest.mark.long  # a process is killed; make test has others of the kind
def test_items_outlive_the_actor(make_queue: MakeQueue) -> None:
    queue = make_queue()
    for number in range(10):
        queue.put(number)
    assert [queue.get() for _ in range(3)] == [0, 1, 2]
    ray.kill(queue.actor, no_restart=False)
    assert [queue.get(timeout=WAIT_S) for _ in range(7)] == list(range(3, 10)), "none is got twice"
    assert queue.empty()


PROGRAM = """
import sys, ray, bradbury

ray.init(sys.argv[1], namespace="bradbury", logging_level="ERROR", log_to_driver=False)
queue = bradbury.Queue()
queue.put_nowait_batch([1, 2])
assert queue.get() == 1
dropped = bradbury.Queue()
dropped.put(3)
print(queue.name, dropped.name)
del dropped
"""


def test_without_a_name_it_ends_with_its_program_and_leaves_nothing(
    cluster: bradbury.Cluster, ray_cluster: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ray_cluster],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    names = done.stdout.split()
    assert len(names) == 2
    with cluster.admin() as admin:

        def is_gone() -> bool:  # the actor of the one that was dropped may be at it, too
            groups = [each.group_id for each in admin.list_groups()]
            return not any(
                name in left for name in names for left in [*admin.list_topics(), *groups]
            )

        wait_for(is_gone, WAIT_S)


@pytest.mark.long  # a further queue, and so a further process
def test_what_is_worked_on_outlives_the_actor(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.put_nowait_batch(["first", "second", "third"])
    first, second = queue.receive_batch(2)
    first.ack()
    ray.kill(queue.actor, no_restart=False)
    assert queue.receive(timeout=WAIT_S).item == "third", "the second one is still worked on"
    second.ack()
    assert queue.empty()


@pytest.mark.long  # a further queue, and so a further process
def test_a_named_queue_goes_on_after_a_shutdown(make_queue: MakeQueue) -> None:
    name = f"jobs-{uuid.uuid4().hex[:8]}"
    queue = make_queue(name=name)
    queue.put_nowait_batch(["first", "second", "third"])
    assert queue.get() == "first"
    delivery = queue.receive()
    queue.shutdown()
    queue = make_queue(name=name)
    again = queue.receive(timeout=WAIT_S)
    assert (delivery.item, again.item) == ("second", "second"), "it was not acknowledged"
    assert again.delivery_count == 2
    assert queue.get() == "third"


@pytest.mark.long  # a process is killed; make test has others of the kind
def test_items_of_a_process_that_dies_are_delivered_again(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.put_nowait_batch(["first", "second", "third"])
    worker = Worker.options(max_restarts=0).remote(queue)
    received = [("first", 1), ("second", 1)]
    assert ray.get(worker.receive.remote(2), timeout=WAIT_S) == received
    assert queue.get() == "third"
    os.kill(ray.get(worker.process_id.remote()), signal.SIGKILL)
    again = [queue.receive(timeout=WAIT_S) for _ in range(2)]
    assert [(each.item, each.delivery_count) for each in again] == [("first", 2), ("second", 2)]


def test_a_lease_ends_and_can_be_extended(make_queue: MakeQueue) -> None:
    queue = make_queue(lease_s=5.0)  # longer than a busy machine lets this process wait
    queue.put_nowait_batch(["kept", "lost"])
    kept, lost = queue.receive_batch(2)
    again = None
    deadline = time.monotonic() + WAIT_S
    while again is None and time.monotonic() < deadline:
        kept.extend()
        with suppress(Empty):
            again = queue.receive(timeout=SHORT_S)
    assert again is not None
    assert (again.item, again.delivery_count) == ("lost", 2)
    lost.ack()
    kept.ack()
    again.ack()
    assert queue.empty()


def test_a_refused_item_comes_again_and_then_to_the_dead_letters(make_queue: MakeQueue) -> None:
    queue = make_queue(max_deliveries=3)
    queue.put_nowait_batch(["good", "bad"])
    queue.receive().ack()
    for count in (1, 2, 3):
        delivery = queue.receive(timeout=WAIT_S)
        assert (delivery.item, delivery.delivery_count) == ("bad", count)
        delivery.nack(delay_s=SHORT_S)
    with pytest.raises(Empty):
        queue.receive(timeout=1.0)
    deadline = time.monotonic() + WAIT_S
    while not (letters := queue.dead_letters()) and time.monotonic() < deadline:
        time.sleep(SHORT_S)
    assert [(each.item, each.delivery_count, each.index) for each in letters] == [("bad", 3, 1)]
    assert queue.empty()


@pytest.mark.long  # a further queue, and so a further process
def test_consumed_items_are_delivered_again_when_they_are_replayed(make_queue: MakeQueue) -> None:
    queue = make_queue()
    for number in range(5):
        queue.put(number)
    assert [queue.get() for _ in range(5)] == [0, 1, 2, 3, 4]
    queue.replay()
    assert [queue.get() for _ in range(5)] == [0, 1, 2, 3, 4]
    queue.replay(3)
    assert queue.qsize() == 2
    assert queue.get_nowait_batch(2) == [3, 4]
    with pytest.raises(ValueError, match="use an offset"):
        queue.replay("yesterday")


def test_any_kafka_client_can_put(make_queue: MakeQueue, cluster: bradbury.Cluster) -> None:
    queue = make_queue()
    producer = ConfluentProducer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(queue.name, b"from librdkafka")
    assert producer.flush(WAIT_S) == 0
    assert queue.get(timeout=WAIT_S) == b"from librdkafka"


@pytest.mark.long  # a further queue, and so a further process
def test_a_backlog_larger_than_memory_is_read_again(
    make_queue: MakeQueue, cluster: bradbury.Cluster
) -> None:
    """Some 100 MB, of which the actor keeps 64."""
    queue = make_queue()
    filler = b"." * 100_000
    for number in range(0, 1_000, 10):
        queue.put_nowait_batch([(each, filler) for each in range(number, number + 10)])
    assert queue.qsize() == 1_000
    assert [queue.get(timeout=WAIT_S)[0] for _ in range(1_000)] == list(range(1_000))
    assert queue.empty()


@pytest.mark.long  # a further queue, and so a further process
def test_a_queue_without_a_name_takes_its_topic_with_it(
    make_queue: MakeQueue, cluster: bradbury.Cluster
) -> None:
    queue = make_queue()
    queue.put(1)
    topic = queue.name
    with cluster.admin() as admin:
        assert topic in admin.list_topics()
        queue.shutdown()
        assert topic not in admin.list_topics()
        with pytest.raises(UnknownTopicOrPartition):
            admin.describe_topics([topic])


@pytest.mark.long  # a further queue, and so a further process
def test_of_items_that_are_put_together_only_the_wrong_one_fails(make_queue: MakeQueue) -> None:
    async def scenario(queue: bradbury.Queue) -> None:
        generator = (each for each in ())  # cannot be pickled
        items: list[Any] = [0, 1, generator, 3, b"." * (65 * 1024 * 1024), 5]
        puts = [asyncio.ensure_future(queue.put_async(item)) for item in items]
        failures = await asyncio.gather(*puts, return_exceptions=True)
        assert isinstance(failures[2], TypeError)
        assert isinstance(failures[4], MessageTooLarge)
        assert [failure for place, failure in enumerate(failures) if place not in (2, 4)] == [
            None
        ] * 4
        assert [await queue.get_async() for _ in range(4)] == [0, 1, 3, 5]

    asyncio.run(scenario(make_queue()))


@pytest.mark.long  # a further queue, and so a further process
def test_threads_of_a_process_share_what_has_come(make_queue: MakeQueue) -> None:
    queue = make_queue()
    with ThreadPoolExecutor(5) as threads:
        waiting = [threads.submit(queue.get, timeout=WAIT_S) for _ in range(5)]
        queue.put_nowait_batch([0, 1, 2, 3, 4])
        assert sorted(one.result(WAIT_S) for one in waiting) == [0, 1, 2, 3, 4]
    assert queue.empty()


class Poison:
    """An item that no process can unpickle."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("not a number",)


@pytest.mark.long  # a further queue, and so a further process
def test_an_item_that_cannot_be_unpickled_harms_no_other(make_queue: MakeQueue) -> None:
    queue = make_queue(max_deliveries=2)
    for item in ("first", Poison(), "second"):
        queue.put(item)
    items, failures = [], 0
    while len(items) < 2 or failures < 2:
        try:
            items.append(queue.get(timeout=WAIT_S))
        except ValueError:
            failures += 1
    assert items == ["first", "second"]
    assert queue.empty(), "it is among the dead letters"


@pytest.mark.long  # a further queue, and so a further process
def test_a_batch_is_unpickled_as_a_whole(make_queue: MakeQueue) -> None:
    queue = make_queue(max_deliveries=1)
    queue.put_nowait_batch(["first", Poison()])
    with pytest.raises(ValueError, match="not a number"):
        queue.receive_batch(2, timeout=WAIT_S)
    assert queue.empty()


@pytest.mark.long  # a further queue, and so a further process
def test_coroutines_that_put_together_do_not_share_what_is_poison(make_queue: MakeQueue) -> None:
    async def scenario(queue: bradbury.Queue) -> list[Any]:
        puts = (queue.put_async(item) for item in ("first", Poison(), "second", 3))
        await asyncio.gather(*puts)
        items: list[Any] = []
        while len(items) < 4:
            try:
                items.append(await queue.get_async(timeout=WAIT_S))
            except ValueError:
                items.append("poison")
        return items

    queue = make_queue(max_deliveries=1)
    assert asyncio.run(scenario(queue)) == ["first", "poison", "second", 3]
