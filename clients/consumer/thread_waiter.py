"""Waiting in a consumer's calls: for an answer, for a time, or until `wakeup`.

A coroutine waits in another way (threads/loop_waiter).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from ...protocol.errors import KafkaError, RequestTimedOut
from ..fetch.fetcher import Fetcher
from ..fetch.record_stream import Chunk
from ..threads.io_thread import Steps
from ..wire.cluster_client import ClusterClient
from .poll_steps import PollSteps

T = TypeVar("T")


class Wakeup(Exception):
    """A call of a consumer was ended by `wakeup`."""


class ThreadWaiter:
    """Waiter for the consumer's thread; `wakeup` is callable from any thread."""

    def __init__(self, client: ClusterClient, fetcher: Fetcher) -> None:
        self.request_timeout_ms = client.config.request_timeout_ms
        self._client = client
        self._fetcher = fetcher
        self._woken = False

    def wakeup(self) -> None:
        """See Consumer.wakeup."""
        self._woken = True
        self._client.io.call_soon(
            self._fetcher.notify
        )  # without a lock, as signal handlers may call it

    def forget_wakeup(self) -> None:
        """Drop a pending `wakeup`."""
        self._woken = False

    def raise_if_woken(self) -> None:
        """Raise Wakeup, once for each `wakeup`."""
        if self._woken:
            self._woken = False
            raise Wakeup("wakeup() was called")

    def check_open(self) -> None:
        """Raise KafkaError after `close`."""
        if self._client.closed:
            raise KafkaError("the consumer is closed")

    def wait_for(self, predicate: Callable[[], bool]) -> None:
        """Wait until `predicate` holds, `wakeup` is called, or request_timeout_ms is over."""
        with self._fetcher.condition:
            self._fetcher.condition.wait_for(
                lambda: predicate() or self._woken, self.request_timeout_ms / 1000
            )

    def run(self, steps: Steps[T]) -> T:
        """Run `steps` in the background; wait for their result.

        Raises:
            Wakeup: `wakeup` was called.
            RequestTimedOut: no result within `request_timeout_ms`.
        """
        future = self._client.io.spawn(steps)
        fetcher = self._fetcher  # not self: a callback must not keep the consumer alive
        future.add_done_callback(lambda _: fetcher.notify())
        self.wait_for(future.done)
        if not future.done():
            self.raise_if_woken()
            raise RequestTimedOut(f"no result within {self.request_timeout_ms} ms")
        return future.result()

    def take(
        self, steps: PollSteps, timeout_ms: int | None, max_records: int | None
    ) -> list[Chunk]:
        """Wait for records that a poll can return; [] after `timeout_ms`."""
        self.check_open()
        if timeout_ms is None:
            steps.check_reads_something()
        deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        steps.metrics.on_poll()
        while True:
            self.raise_if_woken()
            chunks = steps.take(max_records)
            left_s = steps.longest_wait_s(deadline)
            if chunks or left_s == 0:
                steps.metrics.on_polled()
                return chunks
            with steps.condition:
                steps.condition.wait_for(lambda: self._woken or steps.may_go_on(), left_s)
