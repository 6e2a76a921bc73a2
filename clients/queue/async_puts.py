"""Items that coroutines put at the same moment, as one record.

What always holds:
    Items of one loop and queue are in the order in which `put` was called.
    `put` ends when the record is acknowledged. If what was put together cannot be one record (an
    item that cannot be pickled, too many bytes), each item is sent alone, and fails alone.

For one loop. Not here: queues with a maxsize, whose actor counts.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ...protocol.errors import MessageTooLarge
from ..producer.async_producer import AsyncProducer
from .item_codec import encode_items
from .queue_log import MAX_RECORD_BYTES

Failures = list[Exception | None] | None
"""Of each item; None: there is none."""


class AsyncPuts:
    """Of one queue, in one loop."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = AsyncProducer(bootstrap, linger_ms=0, max_request_size=MAX_RECORD_BYTES)
        self._topic = topic
        self._loop = asyncio.get_running_loop()
        self._items: list[Any] = []
        self._together: asyncio.Future[Failures] | None = None
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def put(self, item: Any) -> None:
        """Raises what pickling raises; MessageTooLarge, KafkaError."""
        together = self._together
        if together is None:
            together = self._together = self._loop.create_future()
            task = self._loop.create_task(self._send_soon())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._items.append(item)
        place = len(self._items) - 1
        await asyncio.shield(together)
        failures = together.result()
        error = None if failures is None else failures[place]
        if error is not None:
            raise error

    async def _send_soon(self) -> None:
        """Its first step is after those of all coroutines that are ready now."""
        async with self._turn:  # records are sent in the order of their items
            await self._producer.start()
            items, self._items = self._items, []
            together, self._together = self._together, None
            assert together is not None
            try:
                key, value = encode_items(items)
                acknowledged = await self._producer.send(self._topic, value, key, partition=0)
            except Exception as error:  # noqa: BLE001 -- which item it is shows one by one
                together.set_result(await self._one_by_one(items, error))
                return
        try:
            await acknowledged
        except MessageTooLarge as error:
            together.set_result(await self._one_by_one(items, error))
        except Exception as error:  # noqa: BLE001 -- to all of them
            together.set_result([error] * len(items))
        else:
            together.set_result(None)

    async def _one_by_one(self, items: list[Any], error: Exception) -> Failures:
        """Why each was not sent; None for those that are acknowledged. `error`: of all together."""
        if len(items) == 1:
            return [error]
        failures: list[Exception | None] = []
        for item in items:
            try:
                key, value = encode_items([item])
                await (await self._producer.send(self._topic, value, key, partition=0))
            except Exception as reason:  # noqa: BLE001 -- to the coroutine that has put it
                failures.append(reason)
            else:
                failures.append(None)
        return failures
