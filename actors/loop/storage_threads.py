"""Driver of storage work: the threads of one node for calls that block on the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TypeVar

from ...handlers.ports.request_metrics import Histogram
from ...replication.effects import RunWork
from ...replication.storage_work import LogFlush
from .carry_through import until_thread_ends
from .step_driver import StepDriver

T = TypeVar("T")
STORAGE_THREADS = 4


class StorageThreads:
    """Threads for storage work, used from one event loop."""

    def __init__(self, driver: StepDriver) -> None:
        self._driver = driver
        self._threads = ThreadPoolExecutor(STORAGE_THREADS, thread_name_prefix="storage")
        self._working: set[asyncio.Task[None]] = set()
        self.fsyncs = Histogram()
        driver.on(RunWork, self._begin)

    async def run(self, call: Callable[[], T]) -> T:
        """Run `call` in a thread; returns its result. It waits for the thread even if cancelled."""
        loop = asyncio.get_running_loop()
        return await until_thread_ends(loop.run_in_executor(self._threads, call))

    def _begin(self, effect: RunWork) -> None:
        task = asyncio.get_running_loop().create_task(self._work(effect))
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _work(self, effect: RunWork) -> None:
        failure: Exception | None = None
        started = perf_counter()
        try:
            await self.run(effect.work.run)
        except Exception as error:  # noqa: BLE001 -- the step says what it means
            failure = error
        else:
            if isinstance(effect.work, LogFlush):
                self.fsyncs.observe(perf_counter() - started)
        effect.step.on_work_done(effect.work, failure, self._driver.now_ms())
        self._driver.carry_out()

    async def settle(self) -> None:
        """Wait until no work of a step is in progress."""
        while self._working:
            await asyncio.gather(*self._working, return_exceptions=True)

    def close(self) -> None:
        self._threads.shutdown(wait=True)
