"""Driver of replication/logs/log_compactor: the cleaner's workers, threads and throttle.

Each of `log.cleaner.threads` workers cleans the log that needs it most, one after the other; when
there is none it waits log.cleaner.backoff.ms. Reads and writes of all workers together stay below
log.cleaner.io.max.bytes.per.second on average.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from ...cluster.broker_config import BrokerConfig
from ...replication.effects import RunCleanerWork
from ...replication.logs.log_compactor import LogCompactor
from ...storage.cleaner.cleaner import CleaningAborted
from ...storage.cleaner.cleaner_config import CleanerConfig
from ...storage.disk.throttler import Throttler
from ...storage.log.partition_log import PartitionLog
from ..loop.carry_through import within
from ..loop.step_driver import StepDriver

logger = logging.getLogger(__name__)

MOST_THREADS = 64
"""Maximum number of threads, started on demand; beyond it workers share them."""


class LogCleaner:
    """Cleaner of logs. Runs on the node's loop from start() to stop()."""

    def __init__(self, step: LogCompactor, driver: StepDriver, config: BrokerConfig) -> None:
        """Make a cleaner that does not run yet."""
        self.step = step
        self._driver = driver
        self._is_enabled = config.log_cleaner_enable
        self._backoff_seconds = config.log_cleaner_backoff_ms / 1000
        self._throttler = Throttler(config.log_cleaner_io_max_bytes_per_second)
        self._throttling = threading.Lock()
        self._stopping = threading.Event()
        self._woken = asyncio.Event()
        self._workers: dict[int, asyncio.Task[None]] = {}
        self._working: set[asyncio.Task[None]] = set()
        self._threads: ThreadPoolExecutor | None = None
        driver.on(RunCleanerWork, self._begin)

    def start(self) -> None:
        if not self._is_enabled:
            return
        self._threads = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="cleaner")
        self._start_workers()

    def _start_workers(self) -> None:
        for number in range(self.step.config.threads):
            if number not in self._workers or self._workers[number].done():
                self._workers[number] = asyncio.create_task(self._work(number))

    def configure(self, config: BrokerConfig) -> None:
        """Use these settings from the next cleaning on; one in progress keeps the old ones."""
        self.step.config = cleaner_config(config)
        self._backoff_seconds = config.log_cleaner_backoff_ms / 1000
        with self._throttling:
            self._throttler.set_rate(config.log_cleaner_io_max_bytes_per_second)
        if self._threads is None or self._stopping.is_set():
            return
        self._start_workers()
        self._woken.set()
        self._woken = asyncio.Event()

    async def stop(self) -> None:
        """Wait until none of its threads runs; a cleaning in progress is aborted."""
        self._stopping.set()
        self._woken.set()
        await asyncio.gather(*self._workers.values(), return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=True)

    async def _work(self, number: int) -> None:
        while not self._stopping.is_set() and number < self.step.config.threads:
            cleaned: list[PartitionLog] = []
            try:
                await self._driver.run(self.step.clean_filthiest(cleaned))
            except Exception:
                logger.exception("the log cleaner failed")
            if not cleaned:
                await self._back_off()

    async def _back_off(self) -> None:
        try:
            await within(self._backoff_seconds, self._woken.wait())
        except TimeoutError:
            return

    def _begin(self, effect: RunCleanerWork) -> None:
        task = asyncio.get_running_loop().create_task(self._run(effect))
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _run(self, effect: RunCleanerWork) -> None:
        """Run one piece of work in a cleaner's thread."""
        assert self._threads is not None
        failure: Exception | None = None
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._threads, effect.work.run, self._progress)
        except Exception as error:  # noqa: BLE001 -- the step says what it means
            failure = error
        effect.step.on_work_done(effect.work, failure, self._driver.now_ms())
        self._driver.carry_out()

    def _progress(self, size: int) -> None:
        """Wait in a cleaner's thread as long as the rate limit requires, or until it stops."""
        with self._throttling:
            wait_ms = self._throttler.observe(size, time.monotonic() * 1000)
        if self._stopping.wait(wait_ms / 1000) if wait_ms else self._stopping.is_set():
            raise CleaningAborted("the cleaner stops")


def cleaner_config(config: BrokerConfig) -> CleanerConfig:
    return CleanerConfig(
        threads=config.log_cleaner_threads,
        dedupe_buffer_size=config.log_cleaner_dedupe_buffer_size,
        io_buffer_size=config.log_cleaner_io_buffer_size,
        io_buffer_load_factor=config.log_cleaner_io_buffer_load_factor,
    )
