"""The sockets of a queue's actor, with real brokers and processes: only Ray is not there."""

import asyncio
import itertools
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import pytest

import bradbury
from bradbury.clients.consumer.poll_steps import EMPTY
from bradbury.clients.queue.frames.item_codec import MAX_RECORD_BYTES, encode_items
from bradbury.clients.queue.frames.queue_frames import FrameKind
from bradbury.clients.queue.queue import Queue
from bradbury.clients.queue.queue_brokers import QueueBrokers
from bradbury.clients.queue.queue_connection import QueueAddress, QueueConnection
from bradbury.clients.queue.queue_log import POLL_RECORDS, QueueLog, create_queue_topics
from bradbury.clients.queue.queue_server import QueueServer
from bradbury.clients.queue.queue_state import MAX_READY_BYTES
from bradbury.clients.queue.received_item import Empty, Full
from bradbury.protocol.errors import MessageTooLarge
from bradbury.tests.support.ray.ray_nodes import wait_for

WAIT_S = 60
HOST = "127.0.0.1"
_numbers = itertools.count()


class SilentLog(QueueLog):
    """A log whose puts are written, and then nobody hears of them: the actor dies just there."""

    async def put(self, key: bytes, value: bytes, *arguments: Any) -> int:
        await super().put(key, value, *arguments)
        self.written.set()
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    written = threading.Event()


class SlowLog(QueueLog):
    """A log that takes its time for each read, as one of millions of items does."""

    async def read(self, *arguments: Any) -> None:
        await asyncio.sleep(0.3)
        await super().read(*arguments)


class Actor:
    """What serves a queue, in a thread in place of an actor's process."""

    def __init__(
        self,
        log: QueueLog,
        *,
        maxsize: int = 0,
        max_deliveries: int = 5,
        follows_another: bool = False,
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._log = log
        self.server = QueueServer(log, maxsize=maxsize, lease_s=30.0, max_deliveries=max_deliveries)
        self._run(self.server.start(HOST, follows_another=follows_another))

    @property
    def address(self) -> QueueAddress:
        settings = {"lease_s": 30.0, "max_deliveries": 5, "retention_s": 0.0}
        port, token = self.server.port, self.server.token
        return QueueAddress(HOST, port, token, maxsize=self.server.maxsize, **settings)

    def size(self) -> int:
        return self._run(self.server.size())

    def die(self) -> None:
        """End as a killed process does: connections are cut, and nothing is committed."""
        self._run(self._die())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()

    def cut(self) -> None:
        """End the connections, as a network may."""
        for process in self.server._processes:
            self._loop.call_soon_threadsafe(process.writer.transport.abort)

    async def _die(self) -> None:
        self.server._server.close()
        for process in self.server._processes:
            process.writer.transport.abort()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._log.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)


@pytest.fixture
def brokers(bootstrap: str) -> QueueBrokers:
    return QueueBrokers(bootstrap, None)


@pytest.fixture
def name(brokers: QueueBrokers) -> str:
    name = f"served-{next(_numbers)}"
    create_queue_topics(brokers, name)
    return name


Serve = Callable[..., Actor]


@pytest.fixture
def serve(brokers: QueueBrokers, name: str) -> Iterator[Serve]:
    """Makes actors of the queue; they end with the test."""
    actors: list[Actor] = []

    def make(log_type: type[QueueLog] = QueueLog, **options: Any) -> Actor:
        actors.append(Actor(log_type(brokers, name, 0.0), **options))
        return actors[-1]

    yield make
    for actor in actors:
        if not actor._loop.is_closed():
            actor.die()


def put(connection: QueueConnection, item: object, timeout_s: float | None = None) -> Future[int]:
    """Put an item where there is a maxsize."""
    value = encode_items([item])[1]
    return connection.ask(FrameKind.PUT, value, count=1, timeout_s=timeout_s)


def items_of(connection: QueueConnection) -> list[Any]:
    """Items, until there is none."""
    items = []
    while True:
        found, item = connection.pop()
        if found:
            items.append(item)
            continue
        try:
            connection.fetch(1, 0.0).result(WAIT_S)
        except Empty:
            return items


def test_a_put_whose_answer_dies_with_the_actor_is_in_the_queue_once(serve: Serve) -> None:
    actors = [serve(SilentLog, maxsize=9)]
    connection = QueueConnection(lambda: actors[-1].address)
    answer = put(connection, "a")
    assert SilentLog.written.wait(WAIT_S)
    actors[0].die()
    actors.append(serve(maxsize=9, follows_another=True))
    answer.result(WAIT_S)
    assert items_of(connection) == ["a"]
    connection.close()


def test_a_put_is_in_the_queue_once_when_only_its_connection_is_lost(serve: Serve) -> None:
    actor = serve(maxsize=1)
    connection = QueueConnection(lambda: actor.address)
    for item in ("a", "b", "c"):
        put(connection, item)
    connection.ask(FrameKind.SIZE).result(WAIT_S)  # the actor has the puts: two wait for room
    actor.cut()
    connection.ask(FrameKind.SIZE).result(WAIT_S)
    got = []
    while len(got) < 3:
        connection.fetch(1, WAIT_S).result(WAIT_S)
        got.append(connection.pop()[1])
    assert got == ["a", "b", "c"]
    assert items_of(connection) == []
    connection.close()


def test_a_long_queue_has_its_size_from_the_first_moment_on(
    serve: Serve, bootstrap: str, name: str
) -> None:
    count = 5 * POLL_RECORDS
    with bradbury.Producer(bootstrap) as producer:
        producer.send_batch(name, [b"item"] * count).result(WAIT_S)
    assert serve(SlowLog).size() == count


def test_a_full_queue_is_full_from_the_first_moment_on(
    serve: Serve, bootstrap: str, name: str
) -> None:
    with bradbury.Producer(bootstrap) as producer:
        producer.send(name, b"item", partition=0).result(WAIT_S)
    actor = serve(SlowLog, maxsize=1)
    connection = QueueConnection(lambda: actor.address)
    with pytest.raises(Full):
        put(connection, "more", 0.0).result(WAIT_S)
    connection.close()


def test_the_end_of_a_transaction_is_no_item(serve: Serve, bootstrap: str, name: str) -> None:
    with bradbury.Producer(bootstrap, transactional_id=name) as producer:
        with producer.transaction():
            producer.send(name, b"one")
        with suppress(KeyError), producer.transaction():
            producer.send(name, b"none")
            raise KeyError
    actor = serve()
    connection = QueueConnection(lambda: actor.address)
    assert actor.size() == 1
    assert items_of(connection) == [b"one"]
    connection.close()


def test_a_batch_may_be_larger_than_what_waits_in_memory(
    serve: Serve, bootstrap: str, name: str
) -> None:
    value, count = b"x" * 1_000_000, MAX_READY_BYTES // 1_000_000 + 5
    with bradbury.Producer(bootstrap, max_request_size=MAX_RECORD_BYTES) as producer:
        for _ in range(count):
            producer.send(name, value, partition=0)
    actor = serve()
    connection = QueueConnection(lambda: actor.address)
    connection.fetch(count, 0.0).result(WAIT_S)
    assert connection.pop_many(count) == [value] * count
    assert items_of(connection) == []
    connection.close()


def test_a_batch_takes_what_another_process_holds_ahead(
    serve: Serve, bootstrap: str, name: str
) -> None:
    with bradbury.Producer(bootstrap) as producer:
        producer.send_batch(name, [b"item"] * 10).result(WAIT_S)
    actor = serve()
    ahead, batch = (QueueConnection(lambda: actor.address) for _ in range(2))
    for _ in range(3):  # one, two and four, as they are taken one after the other
        ahead.fetch(1, 0.0).result(WAIT_S)
        ahead.pop()
    assert ahead.ahead
    batch.fetch(7, 0.0).result(WAIT_S)
    assert len(batch.pop_many(7)) == 7
    for connection in (ahead, batch):
        connection.close()


def test_what_is_too_large_says_where_it_belongs() -> None:
    with pytest.raises(MessageTooLarge, match=r"the item has .* its ObjectRef into the queue"):
        encode_items([b"x" * MAX_RECORD_BYTES])


def test_dead_letters_are_read_to_the_end(
    serve: Serve, brokers: QueueBrokers, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where brokers take longer for a record than a poll waits."""
    actor = serve(maxsize=9, max_deliveries=1)
    connection = QueueConnection(lambda: actor.address)
    for item in range(3):
        put(connection, item).result(WAIT_S)
        (received,) = connection.receive(1, 1, WAIT_S).result(WAIT_S)
        received.nack()
    wait_for(lambda: not connection.ask(FrameKind.SIZE).result(WAIT_S))
    queue = Queue.__new__(Queue)
    queue._name, queue._brokers = name, brokers
    wait_for(lambda: len(queue.dead_letters()) == 3)
    polls = itertools.count()
    ordinary = bradbury.Consumer.poll

    def poll(consumer: bradbury.Consumer, timeout_ms: int) -> Any:
        return ordinary(consumer, timeout_ms) if next(polls) % 2 else EMPTY

    monkeypatch.setattr(bradbury.Consumer, "poll", poll)
    assert [letter.item for letter in queue.dead_letters()] == [0, 1, 2]
    connection.close()


def test_what_was_consumed_does_not_come_again_from_an_actor_that_reads_slowly(
    serve: Serve, bootstrap: str, name: str
) -> None:
    count = 3 * POLL_RECORDS
    with bradbury.Producer(bootstrap) as producer:
        producer.send_batch(name, [b"%d" % number for number in range(count)]).result(WAIT_S)
    actors = [serve()]
    actors[0].size()
    ours, theirs = (QueueConnection(lambda: actors[-1].address) for _ in range(2))
    (received,) = ours.receive(1, 1, WAIT_S).result(WAIT_S)
    ours.fetch(1, WAIT_S).result(WAIT_S)
    assert (received.item, ours.pop()) == (b"0", (True, b"1"))
    actors[0].die()
    actors.append(serve(SlowLog, follows_another=True))
    theirs.fetch(1, WAIT_S).result(WAIT_S)
    assert theirs.pop() == (True, b"2")
    received.ack()
    assert ours.ask(FrameKind.SIZE).result(WAIT_S) == count - 3
    for connection in (ours, theirs):
        connection.close()
