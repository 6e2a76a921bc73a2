"""The one thread that uses a consumer, which is not thread-safe, on behalf of coroutines.

Invariants:
    Calls run one after another, in the order in which they were made. A call whose coroutine was
    cancelled before its turn is omitted; a running call continues, and its result is dropped.
    While a call waits for a coroutine of the application (`call_back`), calls of that coroutine run
    at once, in between, as they would if the application had been called on this thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from queue import SimpleQueue
from typing import Any, TypeVar

from ...protocol.errors import KafkaError

T = TypeVar("T")


class _Call:
    """A function to call, and the future that its coroutine awaits."""

    __slots__ = ("_function", "_future", "_loop")

    def __init__(self, function: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self._function = function
        self._loop = loop
        self._future: asyncio.Future[Any] = loop.create_future()

    @property
    def awaited(self) -> asyncio.Future[Any]:
        return self._future

    def run(self) -> None:
        if self._future.cancelled():
            return
        result: Any = None
        error: BaseException | None = None
        try:
            result = self._function()
        except Exception as reason:  # noqa: BLE001 -- it is raised to the caller
            error = reason
        try:
            self._loop.call_soon_threadsafe(self._settle, result, error)
        except RuntimeError:
            pass  # the loop is closed: no coroutine waits any more

    def _settle(self, result: Any, error: BaseException | None) -> None:
        if self._future.done():
            return  # cancelled
        if error is None:
            self._future.set_result(result)
        else:
            self._future.set_exception(error)


class _Queue:
    """Calls to be run, until it is closed."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._open = True

    def put(self, call: _Call) -> bool:
        """Queue a call; return False if the queue is closed."""
        with self._lock:
            if self._open:
                self._calls.put(call)
            return self._open

    def close(self) -> None:
        """Close the queue; queued calls are still run."""
        with self._lock:
            if self._open:
                self._open = False
                self._calls.put(None)

    def run(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run()
            del call  # nothing is held while this waits for the next


_inner: ContextVar[_Queue | None] = ContextVar("bradbury_inner_calls", default=None)
"""Queue of the coroutine that a call waits for, and of tasks that it creates."""


class CallThread:
    """Starts with the first call. A daemon thread, which does not delay exit."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls = _Queue()
        self._thread: threading.Thread | None = None

    async def run(self, function: Callable[[], T]) -> T:
        """The result of `function`, called on the thread.

        Raises:
            KafkaError: the thread is stopped.
        """
        call = _Call(function, asyncio.get_running_loop())
        inner = _inner.get()
        if inner is None or not inner.put(call):
            self._put(call)
        result: T = await call.awaited
        return result

    def call_back(self, function: Callable[[], Awaitable[object] | object], loop: Any) -> None:
        """Call `function` on the loop and wait for it; on the thread, from within a call."""
        calls = _Queue()

        async def called() -> None:
            _inner.set(calls)
            returned = function()
            if isinstance(returned, Awaitable):
                await returned

        done = asyncio.run_coroutine_threadsafe(called(), loop)
        done.add_done_callback(lambda _: calls.close())
        calls.run()
        done.result()

    def stop(self) -> None:
        """End the thread when earlier calls are done."""
        self._calls.close()

    def _put(self, call: _Call) -> None:
        if not self._calls.put(call):
            raise KafkaError("the consumer is closed")
        if self._thread is None:
            self._thread = threading.Thread(target=self._calls.run, name=self._name, daemon=True)
            self._thread.start()
