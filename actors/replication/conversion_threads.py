"""Threads in which records are converted: the driver of replication/partition/conversion_queue.

A node has a few threads for this alone, so that an fsync never waits behind a compression. The step
(ConversionQueue) decides what is converted, in which order batches are appended and how many bytes
may be in progress.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ...handlers.ports.replica_port import Appended
from ...protocol.columns.record_check import load_record_check
from ...protocol.kernel_loading import is_worth_a_thread
from ...replication.partition.conversion_queue import (
    BatchAppended,
    ConvertRecords,
    RecordsCheckedSlowly,
)
from ..loop.step_driver import StepDriver

T = TypeVar("T")
THREADS = 2


class ConversionThreads:
    """Threads of a node for record conversion, used from one event loop."""

    def __init__(self, driver: StepDriver, *, wall_ms: Callable[[], int]) -> None:
        self._driver = driver
        self._wall_ms = wall_ms
        self._threads: ThreadPoolExecutor | None = None
        self._is_loading = False
        driver.on(ConvertRecords, self._convert)
        driver.on(RecordsCheckedSlowly, self._on_checked_slowly)
        driver.on(BatchAppended, answer_appended)

    def run(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run `call` in one of the threads, which are made at the first use."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="conversion")
        return asyncio.get_running_loop().run_in_executor(self._threads, call)

    def _convert(self, effect: ConvertRecords) -> None:
        def done(future: asyncio.Future[None]) -> None:
            error = asyncio.CancelledError() if future.cancelled() else future.exception()
            failure = error if error is None or isinstance(error, Exception) else OSError(error)
            effect.queue.on_converted(
                effect.conversion,
                failure,
                now_ms=self._driver.now_ms(),
                wall_ms=self._wall_ms(),
            )
            self._driver.carry_out()

        self.run(effect.conversion.run).add_done_callback(done)

    def _on_checked_slowly(self, effect: RecordsCheckedSlowly) -> None:
        """Load the compiled check when it pays: loading competes with the event loop for the GIL
        for a second or two.
        """
        if not self._is_loading and is_worth_a_thread(effect.record_count):
            self._is_loading = True
            self.run(load_record_check)

    def close(self) -> None:
        """Wait for running conversions; those that have not begun are cancelled."""
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)
            self._threads = None


def answer_appended(effect: BatchAppended) -> None:
    """Complete the ticket of an append, a Future, unless its request was cancelled."""
    base_offset, _, log_append_time_ms, log_start_offset, _ = effect.result
    if not effect.ticket.done():
        effect.ticket.set_result(
            Appended(base_offset, log_append_time_ms, log_start_offset, effect.committed)
        )
