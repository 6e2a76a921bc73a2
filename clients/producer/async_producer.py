"""The producer for coroutines: the same accumulator, sender and thread, without blocking the loop.

    async with bradbury.AsyncProducer() as producer:
        future = await producer.send("flights", b"{}", key=b"UA1545")    # it is in the buffer
        metadata = await future                                          # it is in the log
        metadata = await producer.send_and_wait("flights", b"{}")        # both

Invariants:
    The loop's thread does not wait for room, for brokers, or for locks that other threads hold
    during longer work, and does not encode: records that `send` has collected are encoded by the
    client's own thread, tables by threads of this producer.
    A coroutine that is cancelled while it waits for room has sent nothing; a coroutine that is
    cancelled later, or while it waits for the acknowledgement, has sent its record.

Bound to the event loop it was started in, asyncio's own or uvloop. Not here: the calls of
transactions (transaction_calls).
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from threading import get_ident
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar

from ...protocol.errors import KafkaError, RequestTimedOut
from ...protocol.topic_partition import TopicPartitionPair
from ..group.membership import ConsumerGroupMetadata
from ..security.security_options import check_names
from ..threads.awaitable_future import AwaitableFuture
from ..threads.loop_waiter import LoopWaiter
from ..wire.interceptors import Content, Headers, ProducerRecord
from ..wire.record_metadata import BatchMetadata, RecordMetadata
from ..wire.sampled_stats import Metrics
from .batches.accumulator import RECORD_OVERHEAD, Accumulator, TopicBuffer
from .batches.deliveries import RecordFuture
from .producer import Producer
from .transactions.producer_transactions import GivenOffset, ProducerTransactions
from .transactions.transaction_calls import AsyncTransactionCalls

T = TypeVar("T")
P = ParamSpec("P")

YIELD_RECORDS: Final = 200
"""Records that are sent before other tasks of the loop run: about a millisecond."""

TABLE_THREADS: Final = 4


class AsyncProducer:
    """Sends records to topics. Arguments are those of Producer; `start` it, or use `async with`.

    Raises:
        TypeError: there is no such argument. `start` raises the exceptions of Producer.
    """

    def __init__(self, bootstrap: str | None = None, **options: Any) -> None:
        bound = inspect.signature(Producer).bind(bootstrap, **options)
        check_names(bound.arguments.get("security", {}), Producer)
        self._make = functools.partial(_LoopProducer, bootstrap, **options)
        self._producer: _LoopProducer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._senders = asyncio.Lock()
        self._since_yield = 0
        self._threads: ThreadPoolExecutor | None = None

    async def start(self) -> Self:
        """Find the cluster. Idempotent.

        Raises:
            InvalidConfig, ConnectionFailed: as Producer.
        """
        if self._producer is None:
            producer = await self._in_thread(self._make)
            self._loop = asyncio.get_running_loop()
            producer.accumulator.loop_thread = get_ident()
            producer.accumulator.memory.never_waits = get_ident()
            self._waiter = LoopWaiter(producer.accumulator.condition, self._loop)
            self._producer = producer
        return self

    async def send(
        self,
        topic: str,
        value: Content = None,
        key: Content = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> RecordFuture:
        """Put one record into the buffer; the returned future, awaited again, has its metadata.

        Arguments and exceptions are those of Producer.send.
        """
        producer = self._started()
        if producer.transactions is not None:
            producer.transactions.manager.check_open()
        pairs = _pairs(headers)
        if producer.interceptors is not None:
            shown = ProducerRecord(topic, value, key, partition, timestamp_ms, pairs)
            topic, value, key, partition, timestamp_ms, headers = producer.interceptors.on_send(
                shown
            )
            pairs = _pairs(headers)
        try:
            await self._prepare(producer, topic, _size(value, key, pairs), partition or 0)
        except Exception as error:
            producer.on_not_sent(topic, 1, error)
            raise
        return producer.send(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=pairs
        )

    async def send_and_wait(
        self,
        topic: str,
        value: Content = None,
        key: Content = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> RecordMetadata:
        """Send one record and wait until it is acknowledged.

        Raises:
            KafkaError, ConnectionFailed: it was not delivered, and why; and as Producer.send.
        """
        return await (
            await self.send(
                topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
            )
        )

    async def send_batch(
        self, topic: str, data: Any, **columns: Any
    ) -> AwaitableFuture[BatchMetadata]:
        """Send many records, as Producer.send_batch; awaited again, the future has their offsets.

        A thread encodes them and waits for room; it continues if the call is cancelled.
        """
        producer = self._started()
        return await self._in_thread(producer.send_batch, topic, data, **columns)

    async def partitions_for(self, topic: str) -> int:
        """Number of partitions of `topic`.

        Raises:
            UnknownTopicOrPartition: there is no such topic.
        """
        return await self._in_thread(self._started().partitions_for, topic)

    def metrics(self) -> Metrics:
        """Metrics of the producer; see Producer.metrics."""
        return self._started().metrics()

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 -- as Producer
        """Wait until everything sent so far is acknowledged or failed, at most `timeout` seconds.

        Failures are in the futures; it raises none of them.

        Raises:
            RequestTimedOut: some are still open.
        """
        producer = self._started()
        await producer.drain_all()
        waiting = producer.accumulator.incomplete()

        def are_done() -> bool:
            while waiting and waiting[-1].is_done():
                waiting.pop()
            return not waiting

        if not await self._waiter.wait_for(are_done, timeout):
            count = sum(batch.record_count for batch in waiting if not batch.is_done())
            raise RequestTimedOut(f"{count} records are not acknowledged within {timeout} s")

    # --- transactions ------------------------------------------------------------------------
    # A call whose coroutine is cancelled continues; repeat the call to wait for its end.

    async def init_transactions(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Async version of Producer.init_transactions."""
        await self._transaction_calls.init_transactions(timeout)

    async def begin(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Async version of Producer.begin."""
        await self._transaction_calls.begin(timeout)

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartitionPair, GivenOffset],
        group: ConsumerGroupMetadata | str,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> None:
        """Async version of Producer.send_offsets."""
        await self._transaction_calls.send_offsets(offsets, group, timeout)

    async def commit(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Async version of Producer.commit."""
        await self._transaction_calls.commit(timeout)

    async def abort(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Async version of Producer.abort."""
        await self._transaction_calls.abort(timeout)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Async version of Producer.transaction, for `async with`."""
        async with self._transaction_calls.transaction():
            yield self

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 -- as Producer
        """Flush, at most `timeout` seconds, then fail what is left and end. Idempotent.

        A transaction that is open is aborted.
        """
        producer = self._producer
        if producer is None or producer.closed:
            return
        try:
            if producer.transactions is None or not producer.transactions.may_abort:
                await self.flush(timeout)
            else:
                await asyncio.to_thread(producer.close, timeout)
        except RequestTimedOut:
            pass  # the remaining records fail now, with the reason
        finally:
            await asyncio.to_thread(producer.close, 0)
            if self._threads is not None:
                self._threads.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # --- waiting -----------------------------------------------------------------------------

    @property
    def _transaction_calls(self) -> AsyncTransactionCalls:
        """Made for each call: stored here, it would keep this producer alive without close."""
        return AsyncTransactionCalls(lambda: self._started().transactions)

    def _started(self) -> _LoopProducer:
        producer = self._producer
        if producer is None:
            raise KafkaError("the producer is not started: await start(), or use `async with`")
        if producer.closed:
            raise KafkaError("the producer is closed")
        if asyncio.get_running_loop() is not self._loop:
            raise KafkaError(
                "the AsyncProducer was started in another event loop: use it in that one"
            )
        return producer

    async def _prepare(
        self, producer: _LoopProducer, topic: str, size: int, partition: int
    ) -> None:
        """Wait, as Producer.send would, for the topic's partitions, for the encoding of earlier
        records, and for room.
        """
        buffer = producer.accumulator.topics.get(topic)
        if buffer is None:
            await self._in_thread(producer.partitions_for, topic)
        elif partition >= buffer.partition_count:
            await self._in_thread(producer.look_for, topic, partition)
        self._since_yield += 1
        if self._since_yield >= YIELD_RECORDS:
            self._since_yield = 0
            await asyncio.sleep(0)
        accumulator = producer.accumulator
        if accumulator.is_behind(topic):
            await self._waiter.wait_for(lambda: not accumulator.is_behind(topic))
        if self._senders.locked() or not producer.accumulator.memory.has_room(size):
            await self._wait_for_room(producer, size)

    async def _wait_for_room(self, producer: _LoopProducer, size: int) -> None:
        """Wait for room, in the order of the callers."""
        memory = producer.accumulator.memory
        try:
            async with asyncio.timeout(producer.max_block_ms / 1000), self._senders:
                with memory.waiting():
                    await self._waiter.wait_for(lambda: memory.has_room(size))
        except TimeoutError:
            raise memory.no_room(size) from None

    async def _in_thread(
        self, function: Callable[P, T], *arguments: P.args, **options: P.kwargs
    ) -> T:
        """Run `function` in a thread of this producer, as tables may wait long for room."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(TABLE_THREADS, "bradbury-async-producer")
        call = functools.partial(function, *arguments, **options)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


def _pairs(headers: Headers | None) -> list[tuple[str, bytes | None]] | None:
    if headers is None:
        return None
    return [*(headers.items() if isinstance(headers, Mapping) else headers)]


def _size(value: Content, key: Content, headers: Sequence[tuple[str, bytes | None]] | None) -> int:
    """Approximate size of a record, as Producer.send counts it; types are checked there."""
    size = RECORD_OVERHEAD
    for content in (value, key):
        size += len(content) if isinstance(content, Sized) else 0
    for name, content in headers or ():
        size += len(name) + len(content or b"") + 8
    return size


class _LoopAccumulator(Accumulator):
    """An accumulator for the loop's thread: it neither waits for room nor encodes.

    loop_thread: its id. drain_later: drains a topic on another thread.
    """

    loop_thread = -1
    drain_later: Callable[[TopicBuffer], None]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._asked: set[str] = set()

    def is_behind(self, topic: str) -> bool:
        """Whether records of two batches have been collected that are not being encoded yet."""
        if topic not in self._asked:
            return False
        run = self.topics[topic].run
        return run is not None and run.size >= 2 * self.batch_size and self.memory.closed is None

    def drain(self, topic: TopicBuffer, *, wait: bool = True) -> bool:
        if get_ident() != self.loop_thread:
            self._asked.discard(topic.name)  # before it is drained: later records ask again
            return super().drain(topic, wait=wait)
        if topic.name not in self._asked:
            self._asked.add(topic.name)
            self.drain_later(topic)
        return True


class _LoopProducer(Producer):
    """Used on the loop's thread for single records, on others for tables."""

    _accumulator_class = _LoopAccumulator
    accumulator: _LoopAccumulator

    def __init__(self, bootstrap: str | None = None, **options: Any) -> None:
        super().__init__(bootstrap, **options)
        assert isinstance(self._accumulator, _LoopAccumulator)
        self.accumulator = self._accumulator
        self.accumulator.drain_later = self._sender.runs.drain_soon
        self.max_block_ms = self._max_block_ms
        self.interceptors = self._interceptors
        self._record_interceptors = None  # AsyncProducer calls them, before anything is awaited

    @property
    def closed(self) -> bool:
        return self._client.closed

    @property
    def transactions(self) -> ProducerTransactions | None:
        return self._transactions

    def look_for(self, topic: str, partition: int) -> None:
        """Request metadata if `partition` is not known, as it may have been added."""
        super()._count_partitions(topic, partition)

    def _count_partitions(self, topic: str, partition: int) -> int:
        """No request on the loop's thread, as AsyncProducer has called look_for."""
        if get_ident() == self.accumulator.loop_thread:
            return self._client.view.partition_count(topic)
        return super()._count_partitions(topic, partition)

    def on_not_sent(self, topic: str, count: int, error: Exception) -> None:
        self._on_not_sent(topic, count, error)

    async def drain_all(self) -> None:
        """Encode all collected records, and hand them to the sender."""
        await self._client.io.spawn(self._sender.runs.drain_all())


__all__: Sequence[str] = ["AsyncProducer"]
