"""A queue for Ray programs: the methods of ray.util.queue.Queue, and items that are not lost.

    queue = bradbury.Queue(name="jobs")         # the same queue, in any process and job
    queue.put({"path": "a.parquet"})            # it is in the log
    item = queue.get()                          # in order, one process each

    delivery = queue.receive()                  # or: acknowledged when it is done
    work(delivery.item)
    delivery.ack()

Invariants:
    When put returns, the item is acknowledged by the brokers (acks=all).
    An item is delivered to one process. It is delivered again only if the process ends before it
    has reported the item as consumed (a tenth of a second, with get), or does not acknowledge it
    (receive).
    Items are delivered in the order of the log: that of the puts of one process.

Not here: the connection and prefetched items (queue_connection), the actor (queue_actor).
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
import weakref
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar, Unpack
from weakref import WeakValueDictionary

import ray

from ...discovery.bootstrap import find_servers
from ...discovery.ray_connection import join_for_clients
from ...discovery.state_file import default_namespace
from ...protocol.errors import ConnectionFailed, RequestTimedOut
from ..consumer.consumer import Consumer
from ..producer.producer import Producer
from ..security.security_options import (
    SecurityOptions,
    given_security,
    refuse_secrets_for_actors,
)
from ..wire.offset_lookup import timestamp_of
from .async_puts import AsyncPuts
from .frames.item_codec import MAX_RECORD_BYTES, decode_items, encode_items
from .frames.queue_frames import FrameKind
from .queue_actor import queue_actor
from .queue_brokers import QueueBrokers
from .queue_connection import QueueAddress, QueueConnection
from .queue_log import (
    create_queue_topics,
    dead_letters_of,
    delete_queue_topics,
)
from .received_item import Empty, Full, ReceivedItem
from .temporary_queues import temporary_queues

__all__ = ["Empty", "Full", "Queue", "ReceivedItem"]

T = TypeVar("T")

LEASE_S: Final = 30.0
MAX_DELIVERIES: Final = 5
RETENTION_S: Final = 7 * 24 * 3600.0
LINGER_MS: Final = 0
LETTERS_S: Final = 60.0
EXIT_GRACE_S: Final = 2.0
"""Seconds that the actor of a queue without a name may take to end when the interpreter ends."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An item that was delivered too often. `offset` is that of its record in the queue's topic."""

    item: Any
    delivery_count: int
    offset: int
    index: int


class Queue:
    """A first-in, first-out queue for the processes of a Ray cluster, and beyond it.

    Args:
        maxsize: maximum items in the queue; 0: no limit. With a limit, puts go through the queue's
            actor, which counts the items.
        actor_options: Ray's options for that actor, e.g. {"num_cpus": 1}, if it does not run yet.
        name: name of the queue and of its topic. Its actor is detached, so it continues without
            this process, and other processes find it by the name. Without a name the queue is for
            processes that this object is passed to, and its topic is deleted with it.
        bootstrap: the brokers; None: found as all clients find them.
        lease_s: seconds in which a received item must be acknowledged, or is delivered again
            (Kafka's group.share.record.lock.duration.ms).
        max_deliveries: deliveries after which an item goes to the dead letters (Kafka's
            group.share.delivery.count.limit).
        retention_s: time that consumed items stay in the topic, for `replay`. Without a name: 0.
        security: security_protocol, ssl_* and sasl_* (see SecurityOptions), of the actor and of all
            processes that are given this Queue. Ray stores an actor's arguments, so give secrets as
            references.

    Raises:
        InvalidConfig, TypeError: invalid security settings.
        ValueError: the queue `name` exists, with other settings than those given; or the topic
            does, with several partitions or compaction.
        UpError, ConnectionFailed: there is no cluster.
    """

    def __init__(
        self,
        maxsize: int = 0,
        actor_options: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        bootstrap: str | None = None,
        lease_s: float = LEASE_S,
        max_deliveries: int = MAX_DELIVERIES,
        retention_s: float = RETENTION_S,
        **security: Unpack[SecurityOptions],
    ) -> None:
        if lease_s <= 0 or max_deliveries < 1 or retention_s < 0:
            raise ValueError(
                "lease_s and max_deliveries have to be positive, retention_s not negative"
            )
        refuse_secrets_for_actors(security)
        secured = given_security(security)
        join_for_clients(bootstrap, None)
        self._brokers = QueueBrokers(find_servers(bootstrap, default_namespace()), secured)
        self._is_temporary = name is None
        self._name = name or f"queue-{uuid.uuid4().hex}"
        create_queue_topics(self._brokers, self._name)
        if self._is_temporary:
            end = partial(_end_at_exit, weakref.ref(self))
            temporary_queues.add(self._brokers, self._name, end)
        options: dict[str, Any] = dict(actor_options or {})
        if name is not None:
            options = {
                "name": f"bradbury-queue-{name}",
                "namespace": default_namespace(),
                "lifetime": "detached",
                "get_if_exists": True,
                **options,
            }
        self.actor: Any = queue_actor(
            options,
            self._brokers,
            self._name,
            maxsize=max(0, maxsize),
            lease_s=lease_s,
            max_deliveries=max_deliveries,
            retention_s=0.0 if self._is_temporary else retention_s,
            is_temporary=self._is_temporary,
        )
        self.maxsize = maxsize
        self._connection = _connection_to(self.actor)
        if name is not None:
            running = self._connection.connect()
            self.maxsize = running.maxsize
            for setting, given, usual in (
                ("maxsize", max(0, maxsize), 0),
                ("lease_s", lease_s, LEASE_S),
                ("max_deliveries", max_deliveries, MAX_DELIVERIES),
                ("retention_s", retention_s, RETENTION_S),
            ):
                if given not in (usual, found := getattr(running, setting)):
                    raise ValueError(
                        f"queue {name!r} runs with {setting}={found}: leave out {setting}={given}, "
                        "or shut it down first"
                    )

    def __reduce__(self) -> tuple[Any, ...]:
        return _attach, (self._name, self._brokers, self.maxsize, self._is_temporary, self.actor)

    def __len__(self) -> int:
        return self.size()

    @property
    def name(self) -> str:
        """Name of the queue and its topic; records of Kafka clients there are items, as bytes."""
        return self._name

    # --- size --------------------------------------------------------------------------------

    def size(self) -> int:
        """Number of items that no process has."""
        return self._connected().ask(FrameKind.SIZE).result()

    def qsize(self) -> int:
        """Number of items that no process has."""
        return self.size()

    def empty(self) -> bool:
        return self.size() == 0

    def full(self) -> bool:
        return 0 < self.maxsize <= self.size()

    # --- put ---------------------------------------------------------------------------------

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Put an item; return when it is in the log.

        Raises:
            Full: there was no room in time, or at once without `block`.
            ValueError: `timeout` is negative.
            MessageTooLarge: it is more than 64 MiB. Put it into Ray's object store, and its
                ObjectRef into the queue.
        """
        self._put([item], block, timeout).result()

    async def put_async(
        self,
        item: Any,
        block: bool = True,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> None:
        """Async version of `put`."""
        if self.maxsize > 0:
            await asyncio.to_thread(self._connected().connect)
            await asyncio.wrap_future(self._put([item], block, timeout))
            return
        _check(timeout)
        await _async_puts(self._brokers, self._name).put(item)

    def put_nowait(self, item: Any) -> None:
        """Put an item without waiting for room: `put` with block=False."""
        self.put(item, block=False)

    def put_nowait_batch(self, items: Iterable[Any]) -> None:
        """Put all items, in order, as one record. Raises Full if they do not all fit."""
        if not isinstance(items, Iterable):
            raise TypeError("Argument 'items' must be an Iterable")
        items = list(items)
        if items:
            self._put(items, False, None).result()

    def _put(self, items: list[Any], block: bool, timeout: float | None) -> Future[Any]:
        if block:
            _check(timeout)
        else:
            timeout = 0.0
        key, value = encode_items(items)
        if self.maxsize > 0:
            connection = self._connected()
            return connection.ask(FrameKind.PUT, value, count=len(items), timeout_s=timeout)
        self._connected()
        return _producer(self._brokers).send(self._name, value, key, partition=0)

    # --- get ---------------------------------------------------------------------------------

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Return the next item, which is consumed.

        Raises:
            Empty: there was none in time, or at once without `block`.
            ValueError: `timeout` is negative.
        """
        connection = self._connected()
        found, item = connection.pop()
        if found:
            return item
        until = _until(block, timeout)
        while True:
            connection.fetch(1, _left(until)).result()
            found, item = connection.pop()
            if found:
                return item

    async def get_async(
        self,
        block: bool = True,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Any:
        """Async version of `get`. A cancelled coroutine consumes nothing."""
        connection = self._connected()
        until = _until(block, timeout)
        await asyncio.to_thread(connection.connect)
        while True:
            found, item = connection.pop()
            if found:
                return item
            await _awaited(connection, connection.fetch(1, _left(until)))

    def get_nowait(self) -> Any:
        """Return the next item without waiting: `get` with block=False."""
        return self.get(block=False)

    def get_nowait_batch(self, num_items: int) -> list[Any]:
        """Return `num_items` items. Raises Empty if there are fewer."""
        if not isinstance(num_items, int):
            raise TypeError("Argument 'num_items' must be an int")
        if num_items < 0:
            raise ValueError("'num_items' must be nonnegative")
        connection = self._connected()
        while num_items:
            items = connection.pop_many(num_items)
            if items:
                return items
            connection.fetch(max(1, num_items - connection.ahead), 0.0).result()
        return []

    # --- receive: acknowledged when it is done -----------------------------------------------

    def receive(self, block: bool = True, timeout: float | None = None) -> ReceivedItem:
        """The next item, which is consumed when it is acknowledged (ReceivedItem.ack).

        Raises:
            Empty, ValueError: as get.
        """
        return self.receive_batch(1, block, timeout)[0]

    def receive_batch(
        self, num_items: int, block: bool = True, timeout: float | None = None
    ) -> list[ReceivedItem]:
        """Receive at least one item, at most `num_items`."""
        if num_items < 1:
            raise ValueError(f"num_items is {num_items}; use at least 1")
        until = _until(block, timeout)
        return self._connected().receive(1, num_items, _left(until)).result()

    async def receive_async(
        self,
        block: bool = True,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> ReceivedItem:
        """Async version of `receive`. A cancelled coroutine receives nothing."""
        connection = self._connected()
        until = _until(block, timeout)
        await asyncio.to_thread(connection.connect)
        deliveries = await _awaited(connection, connection.receive(1, 1, _left(until)))
        return deliveries[0]

    def replay(self, start: str | int | datetime = "earliest") -> None:
        """Deliver again what came from `start` on: an offset, a time (UTC without a zone),
        "earliest" or "latest".

        Items that are being processed are delivered again, too. Consumed items that are older than
        `retention_s` may be deleted.
        """
        body = _replay_start(start).encode()
        self._connected().ask(FrameKind.REPLAY, body).result()

    def dead_letters(self) -> list[DeadLetter]:
        """Items that were delivered `max_deliveries` times and not acknowledged.

        Raises RequestTimedOut: the brokers did not return all in LETTERS_S.
        """
        letters: list[DeadLetter] = []
        deadline = time.monotonic() + LETTERS_S
        topic = dead_letters_of(self._name)
        options = self._brokers.client_options
        with Consumer(**options, isolation_level="read_committed") as consumer:
            consumer.assign([(topic, 0)])
            consumer.seek_to_beginning((topic, 0))
            (end,) = consumer.end_offsets((topic, 0)).values()
            while consumer.position((topic, 0)) < end:
                if time.monotonic() > deadline:
                    raise RequestTimedOut(
                        f"the dead letters of queue {self._name!r} were not read in "
                        f"{LETTERS_S:.0f} s; are its brokers up?"
                    )
                table = consumer.poll(100)  # empty where the log ends with a transaction marker
                for row in table.select(["key", "value", "headers"]).to_pylist():
                    letters += _letters(row)
        return letters

    # --- the end -----------------------------------------------------------------------------

    def shutdown(self, force: bool = False, grace_period_s: int = 5) -> None:
        """End the actor. With a name, the items stay, and Queue(name=...) continues with them.

        Args:
            force: kill it: items that were consumed just before may be delivered again.
            grace_period_s: time that it may take otherwise, before it is killed.
        """
        if self.actor is None:
            return
        self._end_actor(force=force, grace_period_s=grace_period_s)
        if self._is_temporary:
            temporary_queues.discard(self._brokers, self._name)
            delete_queue_topics(self._brokers, self._name)

    def _end_actor(self, *, force: bool, grace_period_s: float) -> None:
        """End the actor alone; see shutdown."""
        actor, self.actor = self.actor, None
        self._connection.close(0.0 if force else grace_period_s)
        _connections.pop(actor._actor_id.binary(), None)
        if not force:
            done = [actor.close.remote()]
            ready, _ = ray.wait(done, timeout=grace_period_s)
            if ready:
                done = [actor.__ray_terminate__.remote()]
                ready, _ = ray.wait(done, timeout=grace_period_s)
            force = not ready
        if force:
            ray.kill(actor, no_restart=True)

    def delete(self) -> None:
        """End the actor, and delete the topics with all items."""
        self.shutdown()
        delete_queue_topics(self._brokers, self._name)

    def _connected(self) -> QueueConnection:
        if self.actor is None:
            raise ValueError("the queue is shut down")
        return self._connection


# --- shared in a process -----------------------------------------------------------------------

_lock = threading.Lock()
_connections: WeakValueDictionary[bytes, QueueConnection] = WeakValueDictionary()
_producers: dict[QueueBrokers, Producer] = {}
_puts: dict[asyncio.AbstractEventLoop, dict[tuple[QueueBrokers, str], AsyncPuts]] = {}


def _attach(
    name: str, brokers: QueueBrokers, maxsize: int, is_temporary: bool, actor: Any
) -> Queue:
    queue = Queue.__new__(Queue)
    queue._name = name
    queue._brokers = brokers
    queue._is_temporary = is_temporary
    queue.maxsize = maxsize
    queue.actor = actor
    queue._connection = _connection_to(actor)
    return queue


def _connection_to(actor: Any) -> QueueConnection:
    """Connection that all Queues of a process with the same actor share."""
    with _lock:
        identity = actor._actor_id.binary()
        connection = _connections.get(identity)
        if connection is None:
            connection = QueueConnection(partial(_address_of, actor))
            _connections[identity] = connection
        return connection


def _address_of(actor: Any) -> QueueAddress:
    """Wait while the actor is being restarted. Raises ConnectionFailed, and Ray's exceptions."""
    if not ray.is_initialized():  # a call would join, or start, another cluster
        raise ConnectionFailed("this process is not connected to the queue's Ray any more")
    address: QueueAddress = ray.get(actor.address.remote())
    return address


def _end_at_exit(reference: weakref.ref[Queue]) -> None:
    queue = reference()
    if queue is not None and queue.actor is not None and ray.is_initialized():
        queue._end_actor(force=False, grace_period_s=EXIT_GRACE_S)


def _producer(brokers: QueueBrokers) -> Producer:
    with _lock:
        producer = _producers.get(brokers)
        if producer is None:
            producer = Producer(
                **brokers.client_options, linger_ms=LINGER_MS, max_request_size=MAX_RECORD_BYTES
            )
            _producers[brokers] = producer
        return producer


def _async_puts(brokers: QueueBrokers, topic: str) -> AsyncPuts:
    loop = asyncio.get_running_loop()
    with _lock:
        if loop not in _puts:
            for closed in [each for each in _puts if each.is_closed()]:
                del _puts[closed]  # and with it, its producers
            _puts[loop] = {}
        of_loop = _puts[loop]
    puts = of_loop.get((brokers, topic))
    if puts is None:
        puts = of_loop[brokers, topic] = AsyncPuts(brokers, topic)
    return puts


async def _awaited(connection: QueueConnection, answer: Future[T]) -> T:
    try:
        return await asyncio.wrap_future(answer)
    except asyncio.CancelledError:
        connection.cancel(answer)
        raise


def _letters(row: Mapping[str, Any]) -> list[DeadLetter]:
    headers = {each["key"]: each["value"] for each in row["headers"]}
    items = decode_items(row["key"] == b"pickled", row["value"])
    first, last = int(headers["first"]), int(headers["last"])
    return [
        DeadLetter(item, int(headers["deliveries"]), int(headers["offset"]), index)
        for index, item in enumerate(items[first:last], first)
    ]


def _replay_start(start: str | int | datetime) -> str:
    """Start of a replay, as the actor reads it."""
    if isinstance(start, datetime):
        return f"time:{timestamp_of(start)}"
    if isinstance(start, int) and not isinstance(start, bool):
        return f"offset:{start}"
    if start not in ("earliest", "latest"):
        raise ValueError(f"{start!r}: use an offset, a datetime, 'earliest' or 'latest'")
    return str(start)


def _check(timeout: float | None) -> None:
    if timeout is not None and timeout < 0:
        raise ValueError("'timeout' must be a non-negative number")


def _until(block: bool, timeout: float | None) -> float | None:
    """Deadline of a wait, time.monotonic(); None: no limit."""
    if not block:
        return 0.0
    _check(timeout)
    return None if timeout is None else time.monotonic() + timeout


def _left(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - time.monotonic())
