"""asyncio over virtual time: what handlers and drivers of one simulated process await runs as shipped.

A loop lives as long as its process: after its end no callback runs any more, and whoever waited is
never resumed. What is ready runs as one event of the process, at the same virtual millisecond.
"""

from __future__ import annotations

import asyncio
import math
import warnings
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from bradbury.handlers.records import poll_timers
from bradbury.protocol.errors import ConnectionFailed, KafkaError

from .simulated_network import Answer, Process

_loops: weakref.WeakSet[VirtualLoop] = weakref.WeakSet()
WITHIN_MS = 0.25
"""The time lies within its millisecond, so that no rounding takes it for the one before."""
THREAD_MS = 1


class VirtualLoop(asyncio.AbstractEventLoop):
    """The part of an event loop that coroutines, futures, tasks and timeouts use."""

    def __init__(
        self, process: Process, *, fail_in_thread: Callable[[], Exception | None] = lambda: None
    ) -> None:
        """`fail_in_thread`: what goes wrong with the next thing that is done in a thread."""
        self._process = process
        self._fail_in_thread = fail_in_thread
        self._ready: deque[asyncio.Handle] = deque()
        self._is_due = False
        self._tasks: dict[asyncio.Task[Any], None] = {}
        _loops.add(self)

    # --- for the simulation ----------------------------------------------------------------------

    def answer(self, call: Callable[[], Any], answer: Answer) -> None:
        """Call a handler; `answer` is given its response, or what it has raised, now or later."""
        try:
            with self.running():
                response = call()
                if isinstance(response, Awaitable):
                    task = asyncio.ensure_future(response)
                    if not task.done():
                        task.add_done_callback(lambda done: answer(_result_of(done)))
                        return
                    response = _result_of(task)
        except (KafkaError, ConnectionFailed) as error:
            response = error
        answer(response)

    def end(self) -> None:
        """The process has ended: what waits never goes on."""
        with warnings.catch_warnings():
            # What was just to be awaited never is.
            warnings.simplefilter("ignore", RuntimeWarning)
            for task in list(self._tasks):
                coroutine: Any = task.get_coro()
                coroutine.close()
            self._tasks.clear()
            self._ready.clear()
        # Its timers know the loop, and would keep it, and with it all of the process.
        poll_timers._timers.pop(self, None)

    @contextmanager
    def running(self) -> Iterator[None]:
        """What is called inside finds this loop running, as events of the process do."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(before)

    # --- asyncio's own ---------------------------------------------------------------------------

    def time(self) -> float:
        return (self._process.clock.now_ms + WITHIN_MS) / 1000

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Coroutine[Any, Any, Any], *, name: object = None, context: Any = None
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task

    def call_soon(
        self, callback: Callable[..., object], *arguments: Any, context: Any = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, arguments, self, context)
        self._ready.append(handle)
        if not self._is_due:
            self._is_due = True
            self._process.after(0, self._run_ready)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *arguments: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *arguments, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *arguments: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, arguments, self, context)
        delay_ms = max(0, math.ceil(when * 1000 - WITHIN_MS - 1e-6) - self._process.clock.now_ms)
        self._process.after(delay_ms, lambda: self._run(handle))
        return handle

    def run_in_executor(
        self, executor: object, function: Callable[..., Any], *arguments: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()

        def run() -> None:
            result: Any = self._fail_in_thread()
            if result is None:
                try:
                    result = function(*arguments)
                except (KafkaError, OSError) as error:
                    result = error
            settle(future, result)

        self._process.after(THREAD_MS, run)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An error of a callback ends the simulation; what nobody waits for any more does not."""
        if "handle" in context and "exception" in context:
            raise context["exception"]

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is passed over when its time has come."""

    def _run_ready(self) -> None:
        self._is_due = False
        while self._ready:
            self._run(self._ready.popleft())

    def _run(self, handle: asyncio.Handle) -> None:
        if not handle.cancelled():
            with self.running():
                handle._run()


def end_all() -> None:
    """The simulation is over, for all of its processes."""
    for loop in list(_loops):
        loop.end()


def settle(future: asyncio.Future[Any], result: Any) -> None:
    """Give a future its result, unless nobody waits for it any more."""
    if future.done():
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
        future.exception()  # retrieved, in case its client is gone
    else:
        future.set_result(result)


def _result_of(done: asyncio.Future[Any]) -> Any:
    error = done.exception()
    if error is None:
        return done.result()
    if isinstance(error, KafkaError | ConnectionFailed):
        return error
    raise error
