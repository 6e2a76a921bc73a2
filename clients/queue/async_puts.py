"""Puts of coroutines: items that are put at the same moment share records.

Invariants:
    Items of one loop and queue are in the order in which `put` was called.
    `put` returns when the item's record is acknowledged, and raises only errors of its item, or of
    the brokers. Numbers, text and bytes that were put one after the other share a
    record; anything else has one of its own, as it may fail to be pickled, or unpickled.

For one event loop. Not here: queues with a maxsize, whose actor counts the items.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from ...protocol.errors import MessageTooLarge
from ..producer.async_producer import AsyncProducer
from ..threads.awaitable_future import AwaitableFuture
from ..wire.record_metadata import RecordMetadata
from .frames.item_codec import MAX_RECORD_BYTES, encode_items, is_plain
from .queue_brokers import QueueBrokers

Failures = list[Exception | None]


class AsyncPuts:
    """Puts to one queue from one event loop."""

    def __init__(self, brokers: QueueBrokers, topic: str) -> None:
        self._producer = AsyncProducer(
            **brokers.client_options, linger_ms=0, max_request_size=MAX_RECORD_BYTES
        )
        self._topic = topic
        self._items: list[Any] = []
        self._together: asyncio.Future[Failures] | None = None
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def put(self, item: Any) -> None:
        """Put an item. Raises errors of pickling, MessageTooLarge, KafkaError, ConnectionFailed."""
        together = self._together
        if together is None:
            together = self._together = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(self._send_soon())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._items.append(item)
        place = len(self._items) - 1
        failures = await asyncio.shield(together)
        error = failures[place]
        if error is not None:
            raise error

    async def _send_soon(self) -> None:
        """Send all items together once each coroutine that is ready now has added its own."""
        async with self._turn:  # records are sent in the order of their items
            items, self._items = self._items, []
            together, self._together = self._together, None
            assert together is not None
            sent = [(run, await self._send(run)) for run in _runs(items)]
        failures: Failures = []
        for run, future in sent:
            failures += await self._ended(run, future)
        together.set_result(failures)

    async def _send(self, items: Sequence[Any]) -> AwaitableFuture[RecordMetadata] | Exception:
        """Send items as one record; return its future, or the error."""
        try:
            await self._producer.start()
            key, value = encode_items(items)
            return await self._producer.send(self._topic, value, key, partition=0)
        except Exception as error:  # noqa: BLE001 -- raised to the caller of put
            return error

    async def _ended(
        self, items: Sequence[Any], sent: AwaitableFuture[RecordMetadata] | Exception
    ) -> Failures:
        """Error of each item that is not in the log; None for those that are."""
        error: Exception | None = None
        try:
            if isinstance(sent, Exception):
                raise sent
            await sent
        except Exception as reason:  # noqa: BLE001 -- raised to the caller of put
            error = reason
        if isinstance(error, MessageTooLarge) and len(items) > 1:
            return [(await self._ended([item], await self._send([item])))[0] for item in items]
        return [error] * len(items)


def _runs(items: Sequence[Any]) -> Iterator[list[Any]]:
    """Items for one record each, in order."""
    for plain, run in groupby(items, is_plain):
        if plain:
            yield list(run)
        else:
            yield from ([item] for item in run)
