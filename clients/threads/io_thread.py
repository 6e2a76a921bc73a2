"""The one background thread of a client: sockets, timers, and steps that wait for either.

Invariants:
    Everything a callback touches belongs to this thread, so connections, the sender and the fetcher
    need no locks among themselves. Other threads use only `call_soon` and `spawn`.
    A callback that raises is logged and dropped; the thread continues, as a bug with one answer
    must not stop all other partitions.

Steps are generators: `yield future` waits for its result, `yield 0.1` sleeps. They read like
blocking code and cost no thread, which is all of asyncio that a client needs.

Not here: what is sent, and to which broker.
"""

from __future__ import annotations

import heapq
import logging
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from itertools import count
from typing import Any, Protocol, TypeVar

from ...protocol.errors import ConnectionFailed
from .awaitable_future import AwaitableFuture

T = TypeVar("T")

logger = logging.getLogger(__name__)

Callback = Callable[[], None]
Steps = Generator["Future[Any] | float", Any, T]
READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE


class Watched(Protocol):
    """A socket, or an object that has one."""

    def fileno(self) -> int: ...


class Timer:
    """A callback at a time (`time.monotonic` seconds). `cancel` is for its own thread."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callback) -> None:
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        self.callback = None


class IoThread:
    """Starts with the first call from outside, ends with `stop`. A daemon: does not delay exit."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._selector = selectors.DefaultSelector()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)
        self._selector.register(self._wake_receiver, READ, self._on_wake)
        self._soon: deque[Callback] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._timer_ids = count()
        self._start_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._awake = False
        self._stopping = False
        self.tasks: set[Future[Any]] = set()

    # --- from any thread ---------------------------------------------------------------------

    def call_soon(self, callback: Callback) -> None:
        """Run `callback` on the thread, after earlier callbacks. Dropped after `stop`."""
        self._soon.append(callback)
        if self._thread is None:
            self._start()
        if not self._awake and threading.current_thread() is not self._thread:
            self._awake = True  # one byte wakes it, however many callbacks wait
            try:
                self._wake_sender.send(b"\0")
            except OSError:
                pass  # full: it will wake anyway; closed: the thread has ended

    def spawn(self, steps: Steps[T]) -> AwaitableFuture[T]:
        """Run `steps` on the thread; their return value is the future's result.

        Raises:
            ConnectionFailed: the client is closed.
        """
        if self._stopping:
            raise ConnectionFailed("the client is closed")
        future: AwaitableFuture[T] = AwaitableFuture()
        self.tasks.add(future)
        future.add_done_callback(self.tasks.discard)
        self.call_soon(lambda: self._advance(steps, future, None, None))
        return future

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the thread. Pending futures fail with ConnectionFailed."""
        self._stopping = True
        thread = self._thread
        if thread is None:
            self._close()
            return
        self._awake = False
        self.call_soon(lambda: None)
        if thread is not threading.current_thread():
            thread.join(timeout_s)

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the thread; return whether it has ended."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return self._stopping
        thread.join(timeout_s)
        return not thread.is_alive()

    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    @property
    def has_begun(self) -> bool:
        """Whether there is, or was, a thread."""
        return self._thread is not None

    @property
    def stopped(self) -> bool:
        return self._stopping

    # --- on the thread -----------------------------------------------------------------------

    def call_later(self, delay_s: float, callback: Callback) -> Timer:
        timer = Timer(callback)
        entry = (time.monotonic() + delay_s, next(self._timer_ids), timer)
        heapq.heappush(self._timers, entry)
        return timer

    def watch(self, watched: Watched, events: int, callback: Callable[[int], None]) -> None:
        """Call `callback(ready events)`; a second call for the same socket replaces the first."""
        try:
            self._selector.modify(watched, events, callback)
        except KeyError:
            self._selector.register(watched, events, callback)

    def unwatch(self, watched: Watched) -> None:
        try:
            self._selector.unregister(watched)
        except (KeyError, ValueError):
            pass

    # --- the loop ----------------------------------------------------------------------------

    def _start(self) -> None:
        with self._start_lock:
            if self._thread is None and not self._stopping:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread = thread
                thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping:
                for key, events in self._selector.select(self._wait_s()):
                    self._guarded(key.data, events)
                self._run_timers()
                for _ in range(len(self._soon)):
                    self._guarded(self._soon.popleft())
        finally:
            self._close()

    def _wait_s(self) -> float | None:
        if self._soon:
            return 0.0
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return None
        return max(0.0, self._timers[0][0] - time.monotonic())

    def _run_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            callback = heapq.heappop(self._timers)[2].callback
            if callback is not None:
                self._guarded(callback)

    def _guarded(self, callback: Callable[..., None], *arguments: Any) -> None:
        try:
            callback(*arguments)
        except Exception:
            logger.exception(
                "%s: a callback failed; this is a bug in Bradbury's client", self._name
            )

    def _on_wake(self, _events: int) -> None:
        try:
            self._wake_receiver.recv(4096)  # the next select reports remaining bytes
        except BlockingIOError:
            pass
        self._awake = False  # after the bytes are gone, or a wake-up could be lost

    def _advance(
        self,
        steps: Steps[T],
        future: Future[T],
        value: Any,
        error: BaseException | None,
    ) -> None:
        try:
            awaited = steps.send(value) if error is None else steps.throw(error)
        except StopIteration as stop:
            future.set_result(stop.value)
        except Exception as reason:  # noqa: BLE001 -- it is raised to the caller
            future.set_exception(reason)
        else:
            if isinstance(awaited, Future):
                awaited.add_done_callback(lambda done: self._resume(steps, future, done))
            else:
                self.call_later(awaited, lambda: self._advance(steps, future, None, None))

    def _resume(self, steps: Steps[T], future: Future[T], done: Future[Any]) -> None:
        def resume() -> None:
            error = done.exception()
            self._advance(steps, future, None if error else done.result(), error)

        self.call_soon(resume)

    def _close(self) -> None:
        self._selector.close()
        self._wake_receiver.close()
        self._wake_sender.close()
        for future in list(self.tasks):
            if not future.done():
                future.set_exception(ConnectionFailed("the client was closed"))


def wait(future: Future[T]) -> Steps[T]:
    """Typed waiting inside steps, with `yield from`."""
    result: T = yield future
    return result
