"""A future of the clients: a concurrent.futures.Future that coroutines can await.

metadata = producer.send("flights", b"{}").result(10)
metadata = await producer.send("flights", b"{}")
await asyncio.wait_for(asyncio.wrap_future(future), 10)
concurrent.futures.wait(futures)
"""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class AwaitableFuture(Future[T]):
    """Cannot be cancelled: a request to a broker cannot be withdrawn.

    A coroutine that awaits it can be cancelled; the future goes on.
    """

    def cancel(self) -> bool:
        return False

    def __await__(self) -> Generator[Any, None, T]:
        if not self.done():
            from asyncio import wrap_future

            return (yield from wrap_future(self).__await__())
        return self.result()
