"""The consumer for coroutines: the same steps and threads, without blocking the event loop.

    async with bradbury.AsyncConsumer("flights", group="delays") as consumer:
        table = await consumer.poll()
        async for record in consumer:
            await work(record)

Invariants:
    One thread of this client uses the Consumer: it decodes and does the other steps of a poll; a
    poll waits on the event loop, so that the thread is free for other calls.
    Records that the thread has taken are consumed only when a poll returns them: records of a
    cancelled poll are returned by the next poll, and are not committed until then.
    One poll runs at a time. All other calls may be made while a poll waits.

A listener's methods, which may be coroutines, are called on the loop; they may call the consumer,
except its polls. Interceptors and strategies are called on the thread.

Bound to the event loop it was started in, asyncio's own or uvloop. Not here: steps of a poll
(poll_steps).
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import pyarrow as pa

from ...protocol.errors import KafkaError
from ...protocol.topic_partition import TopicPartition, TopicPartitionPair
from ..fetch.record_stream import Chunk, ConsumerRecord, records_of
from ..group.group_member import GivenOffsets
from ..group.membership import ConsumerGroupMetadata
from ..group.rebalance_listener import RebalanceListener
from ..security.security_options import check_names
from ..threads.call_thread import CallThread
from ..threads.loop_waiter import LoopWaiter
from ..wire.record_metadata import OffsetAndMetadata, OffsetAndTimestamp
from ..wire.sampled_stats import Metrics
from .consumer import Consumer
from .poll_steps import PollSteps

T = TypeVar("T")

ITERATED_RECORDS: Final = 1_000
"""Records that iteration returns without yielding to the event loop: about a millisecond."""


class AsyncConsumer:
    """Consumer for asyncio. Arguments are those of Consumer; `start` it, or use `async with`.

    Args:
        listener: a RebalanceListener, whose methods may be coroutines.

    Raises:
        TypeError: there is no such argument. `start` raises the exceptions of Consumer.
    """

    def __init__(self, *topics: str, listener: Any = None, **options: Any) -> None:
        bound = inspect.signature(Consumer).bind(*topics, **options)
        check_names(bound.arguments.get("security", {}), Consumer)
        self._topics = topics
        self._options = options
        self._listener = listener
        self._calls = CallThread(f"{options.get('client_id', 'bradbury-consumer')}-calls")
        self._consumer: Consumer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn = asyncio.Lock()
        self._taken: list[Chunk] = []  # taken by the thread, and not returned by a poll yet
        self._iterated: list[Chunk] = []  # returned to iteration, which yields their records
        self._records: Iterator[ConsumerRecord] = iter(())
        self._closing = False
        self._finalizer = weakref.finalize(self, self._calls.stop)

    async def start(self) -> Self:
        """Find the cluster and the topics. Idempotent.

        Raises:
            InvalidConfig, InvalidGroupId, ConnectionFailed, UnknownTopicOrPartition: see Consumer.
        """
        if self._consumer is None:
            self._loop = asyncio.get_running_loop()
            options = self._options
            if self._listener is not None:
                options = {**options, "listener": self._on_loop(self._listener)}
            make = functools.partial(Consumer, *self._topics, **options)
            consumer = await self._calls.run(make)
            if self._closing:
                await self._calls.run(consumer.close)
            self._check_open()
            self._waiter = LoopWaiter(consumer._steps.condition, self._loop)
            self._consumer = consumer
        return self

    # --- subscription and assignment ---------------------------------------------------------

    async def subscribe(
        self,
        topics: str | Iterable[str] | re.Pattern[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: Any = None,
    ) -> None:
        consumer = self._started()
        wrapped = None if listener is None else self._on_loop(listener)
        await self._calls.run(lambda: consumer.subscribe(topics, pattern=pattern, listener=wrapped))

    async def unsubscribe(self) -> None:
        await self._calls.run(self._started().unsubscribe)

    def subscription(self) -> list[str]:
        return self._started().subscription()

    async def assign(self, partitions: Iterable[TopicPartitionPair]) -> None:
        consumer = self._started()
        await self._calls.run(lambda: consumer.assign(partitions))

    def assignment(self) -> list[TopicPartition]:
        return self._started().assignment()

    async def partitions_for(self, topic: str) -> int:
        consumer = self._started()
        return await self._calls.run(lambda: consumer.partitions_for(topic))

    def pause(self, *partitions: TopicPartitionPair) -> None:
        self._started().pause(*partitions)

    def resume(self, *partitions: TopicPartitionPair) -> None:
        self._started().resume(*partitions)

    def paused(self) -> list[TopicPartition]:
        return self._started().paused()

    def enforce_rebalance(self, reason: str = "the application asked for it") -> None:
        self._started().enforce_rebalance(reason)

    def group_metadata(self) -> ConsumerGroupMetadata:
        return self._started().group_metadata()

    # --- records -----------------------------------------------------------------------------

    async def poll(
        self, timeout_ms: int | None = None, *, max_records: int | None = None
    ) -> pa.Table:
        """Async version of Consumer.poll: without `timeout_ms` it waits until there is a record.

        It can be cancelled at any time: the next poll returns its records.
        """
        chunks, table = await self._take(timeout_ms, max_records, PollSteps.table_of)
        for chunk in chunks:
            chunk.hand_out()
        return table

    def batches(self, *, max_records: int | None = None) -> AsyncIterator[pa.Table]:
        """Yield a table for each poll, until the consumer is closed."""
        return self._batches(max_records)

    def __aiter__(self) -> Self:
        """Iterate over records, now and in the future, until the consumer is closed.

        The position moves with each record. If a loop is left early, the next poll or loop returns
        the remaining records.
        """
        return self

    async def __anext__(self) -> ConsumerRecord:
        while True:
            record = next(self._records, None)
            if record is not None:
                return record
            try:
                chunks, shown = await self._take(None, ITERATED_RECORDS, PollSteps.all_as_shown)
            except KafkaError:
                if self._closing:
                    raise StopAsyncIteration from None
                raise
            self._iterated = chunks
            self._records = chain.from_iterable(map(records_of, shown))

    def metrics(self) -> Metrics:
        """Metrics of the consumer; see Consumer.metrics."""
        return self._started().metrics()

    # --- positions ---------------------------------------------------------------------------

    def seek(self, partition: TopicPartitionPair, offset: int) -> None:
        self._started().seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartitionPair) -> None:
        self._started().seek_to_beginning(*partitions)

    def seek_to_end(self, *partitions: TopicPartitionPair) -> None:
        self._started().seek_to_end(*partitions)

    def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartitionPair) -> None:
        self._started().seek_to_time(timestamp_ms, *partitions)

    async def position(self, partition: TopicPartitionPair) -> int:
        consumer = self._started()
        return await self._calls.run(lambda: consumer.position(partition))

    async def beginning_offsets(self, *partitions: TopicPartitionPair) -> dict[TopicPartition, int]:
        consumer = self._started()
        return await self._calls.run(lambda: consumer.beginning_offsets(*partitions))

    async def end_offsets(self, *partitions: TopicPartitionPair) -> dict[TopicPartition, int]:
        consumer = self._started()
        return await self._calls.run(lambda: consumer.end_offsets(*partitions))

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartitionPair, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        consumer = self._started()
        return await self._calls.run(lambda: consumer.offsets_for_times(timestamps_ms))

    async def lag(self, *partitions: TopicPartitionPair) -> dict[TopicPartition, int]:
        consumer = self._started()
        return await self._calls.run(lambda: consumer.lag(*partitions))

    def current_lag(self, partition: TopicPartitionPair) -> int | None:
        return self._started().current_lag(partition)

    # --- committed offsets -------------------------------------------------------------------

    async def commit(self, offsets: GivenOffsets | None = None) -> None:
        """Async version of Consumer.commit. A cancelled commit may have been stored."""
        consumer = self._started()
        await self._calls.run(lambda: consumer.commit(offsets))

    async def committed(self, *partitions: TopicPartitionPair) -> dict[TopicPartition, int | None]:
        consumer = self._started()
        return await self._calls.run(lambda: consumer.committed(*partitions))

    async def committed_metadata(
        self, *partitions: TopicPartitionPair
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        consumer = self._started()
        return await self._calls.run(lambda: consumer.committed_metadata(*partitions))

    # --- the end -----------------------------------------------------------------------------

    async def close(self, *, leave: bool | None = None, timeout_ms: int = 30_000) -> None:
        """Async version of Consumer.close. Waiting polls raise KafkaError, loops end. Idempotent.

        A listener is called, and may commit.
        """
        self._closing = True
        consumer = self._consumer
        if consumer is None or not self._finalizer.alive:
            return
        self._waiter.wake()
        await self._calls.run(lambda: consumer.close(leave=leave, timeout_ms=timeout_ms))
        self._finalizer()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # --- steps of a poll ---------------------------------------------------------------------

    async def _take(
        self,
        timeout_ms: int | None,
        max_records: int | None,
        show: Callable[[PollSteps, list[Chunk]], T],
    ) -> tuple[list[Chunk], T]:
        """Take records, which the caller returns before it awaits anything else; [] after
        `timeout_ms`.

        Args:
            show: called on the thread, converts them to the application's result.
        """
        steps = self._started()._steps
        self._check_open()
        if timeout_ms is None:
            steps.check_reads_something()
        deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        if not await self._has_turn(deadline):
            return [], show(steps, [])
        steps.metrics.on_poll()
        self._records = iter(())  # records that a loop has not returned are taken first
        try:
            while True:
                self._check_open()
                shown = await self._calls.run(lambda: self._step(steps, max_records, show))
                left_s = steps.longest_wait_s(deadline)
                # A concurrent call may have sought, paused or unassigned their partitions.
                if all(chunk.is_current and not chunk.state.paused for chunk in self._taken):
                    if self._taken or left_s == 0:
                        chunks, self._taken = self._taken, []
                        steps.metrics.on_polled()
                        return chunks, shown
                    await self._waiter.wait_for(lambda: self._closing or steps.may_go_on(), left_s)
        finally:
            self._turn.release()

    def _check_open(self) -> None:
        if self._closing:
            raise KafkaError("the consumer is closed")

    async def _has_turn(self, deadline: float | None) -> bool:
        if deadline is None or not self._turn.locked():
            return await self._turn.acquire()
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                return await self._turn.acquire()
        except TimeoutError:
            return False

    def _step(
        self, steps: PollSteps, max_records: int | None, show: Callable[[PollSteps, list[Chunk]], T]
    ) -> T:
        """One step of a poll, on the thread: records that no poll has returned yet come first."""
        steps.put_back([*self._iterated, *self._taken])
        self._iterated, self._taken = [], []
        self._taken = steps.take(max_records)
        return show(steps, self._taken)

    async def _batches(self, max_records: int | None) -> AsyncIterator[pa.Table]:
        while True:
            try:
                yield await self.poll(max_records=max_records)
            except KafkaError:
                if self._closing:
                    return
                raise

    def _started(self) -> Consumer:
        if self._consumer is None:
            raise KafkaError("the consumer is not started: await start(), or use `async with`")
        if asyncio.get_running_loop() is not self._loop:
            raise KafkaError(
                "the AsyncConsumer was started in another event loop: use it in that one"
            )
        return self._consumer

    def _on_loop(self, listener: Any) -> RebalanceListener:
        return _LoopListener(listener, self._calls, asyncio.get_running_loop())


class _LoopListener(RebalanceListener):
    """Listener on the consumer's thread that calls the application's on the loop, and waits."""

    def __init__(self, listener: Any, calls: CallThread, loop: asyncio.AbstractEventLoop) -> None:
        self._listener = listener
        self._calls = calls
        self._loop = loop

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._call(self._listener.on_partitions_assigned, partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._call(self._listener.on_partitions_revoked, partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        inherited = RebalanceListener.on_partitions_lost
        if getattr(type(self._listener), "on_partitions_lost", inherited) is inherited:
            self.on_partitions_revoked(partitions)  # which may be a coroutine
        else:
            self._call(self._listener.on_partitions_lost, partitions)

    def _call(self, method: Callable[..., Any], partitions: Sequence[TopicPartition]) -> None:
        self._calls.call_back(lambda: method(partitions), self._loop)
