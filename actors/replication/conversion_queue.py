"""Batches that a topic keeps in another form than they came in: converted in threads, in order.

A ConversionPool is the node's: a few separate threads, so that an fsync never waits behind a
compression, and a bound on the bytes in work. A ConversionQueue is a partition's: conversions of
successive batches run side by side, but what comes out is appended in the order of arrival,
whichever connection it came on. While a queue is not empty, batches of that partition which need no
conversion go through it, too: an idempotent producer has five in flight, and its sequence numbers
must reach the log in order.

What always holds: every batch that was taken in is answered, once.
It decides nothing of the order that keeps records safe: what comes out is appended by the replica's
step, as any other batch. It is a bounded queue before threads, and so it stands here.
Not here: what is converted and how (storage/log/batch_conversion).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from ...handlers.ports.replica_port import Appended
from ...protocol.columns.record_check import load_record_check
from ...protocol.errors import KafkaError, RequestTimedOut
from ...protocol.kernel_loading import is_worth_a_thread

T = TypeVar("T")
THREADS = 2
LEAST_RECORDS = 16
"""Minimum number of records of a batch for which the compiled loop pays."""
MOST_BYTES = 128 * 1024**2
"""Maximum bytes of batches in all conversion queues of one node."""


class ConversionPool:
    """Threads of a node for record conversion, used from one event loop."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._bytes = 0
        self._is_loading = False

    def run(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run `call` in one of the threads, which are made at the first use."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="conversion")
        return asyncio.get_running_loop().run_in_executor(self._threads, call)

    def load_when_it_pays(self, record_count: int) -> None:
        """Load the compiled check of records when it pays off; see protocol/kernel_loading.

        Called for each batch that is checked in plain Python. Small batches do not count: for them
        the loop saves a few us of the hundred that a request costs, and loading it takes Python's
        lock from the event loop for a second or two.
        """
        if record_count < LEAST_RECORDS or self._is_loading:
            return
        if is_worth_a_thread(record_count):
            self._is_loading = True
            self.run(load_record_check)

    def reserve(self, size: int) -> None:
        """Reserve memory. Raises RequestTimedOut, which producers retry, if too much is in work."""
        if self._bytes and self._bytes + size > MOST_BYTES:
            raise RequestTimedOut("the broker has too many records to convert; try again")
        self._bytes += size

    def release(self, size: int) -> None:
        self._bytes -= size

    def close(self) -> None:
        """Wait for running conversions; those that have not begun are cancelled."""
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)
            self._threads = None


class _Entry(NamedTuple):
    converted: asyncio.Future[bytearray]
    append: Callable[[bytearray], Appended]
    answer: asyncio.Future[Appended]
    size: int


class ConversionQueue:
    """Batches of one partition on their way into the log."""

    def __init__(self, pool: ConversionPool) -> None:
        self._pool = pool
        self._entries: deque[_Entry] = deque()
        self._appending: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def submit(
        self,
        batch: bytearray,
        convert: Callable[[bytearray], bytearray] | None,
        append: Callable[[bytearray], Appended],
    ) -> asyncio.Future[Appended]:
        """Convert a batch in a thread and append the result, after everything before it.

        `convert` None: the batch is appended unchanged.

        Raises:
            RequestTimedOut: too much is in work; `batch` was not taken.
        """
        loop = asyncio.get_running_loop()
        self._pool.reserve(len(batch))
        converted: asyncio.Future[bytearray]
        if convert is None:
            converted = loop.create_future()
            converted.set_result(batch)
        else:
            converted = self._pool.run(lambda: convert(batch))
        answer: asyncio.Future[Appended] = loop.create_future()
        self._entries.append(_Entry(converted, append, answer, len(batch)))
        if self._appending is None:
            self._appending = loop.create_task(self._append_in_order())
        return answer

    async def _append_in_order(self) -> None:
        try:
            while self._entries:
                converted, append, answer, size = self._entries[0]
                try:
                    appended = append(await converted)
                except Exception as error:  # noqa: BLE001 -- the caller that awaits the answer judges it
                    _answer(answer, error)
                else:
                    if not answer.done():
                        answer.set_result(appended)
                self._entries.popleft()
                self._pool.release(size)
        finally:
            if self._appending is asyncio.current_task():
                self._appending = None

    def abandon(self, error: KafkaError) -> None:
        """Stop appending; waiting callers get `error`."""
        if self._appending is not None:
            self._appending.cancel()
            self._appending = None
        while self._entries:
            converted, _, answer, size = self._entries.popleft()
            converted.cancel()
            _answer(answer, error)
            self._pool.release(size)


def _answer(answer: asyncio.Future[Appended], error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)
        answer.exception()  # retrieved, in case the producer is gone
