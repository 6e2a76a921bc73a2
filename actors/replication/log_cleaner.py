"""Compacts the logs of a node, one after the other, in the background.

Each of `log.cleaner.threads` workers takes the log that needs it most
(storage/log/cleaner_manager), cleans it in its own thread (storage/cleaner/cleaner) and looks
for the next; when there is none it waits log.cleaner.backoff.ms. Reading and writing of all
together stays below log.cleaner.io.max.bytes.per.second on average. What is decided or changed
about a log happens on the loop that owns it; a thread only ever reads closed segments and writes
new files.

A damaged log is said to be uncleanable, once, and left alone until restart, and so is one that the
cleaner itself fails on; others go on. A full disk, a truncation, a deletion or a stop ends a
cleaning without harm: what was not finished is done again.
Source: apache/kafka core/.../log/LogCleaner.scala (CleanerThread), LogCleanerManager.scala.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar
from weakref import WeakKeyDictionary

from ...cluster.broker_config import BrokerConfig
from ...protocol.errors import KafkaError, KafkaStorageError
from ...storage.cleaner.cleaner import Cleaning, CleaningAborted, CleaningReport, UncleanableLog
from ...storage.cleaner.cleaner_config import CleanerConfig
from ...storage.cleaner.cleaner_rows import SEED_BYTES
from ...storage.disk.storage_failure import StorageFailure
from ...storage.disk.throttler import Throttler
from ...storage.log.cleaner_manager import LogToClean, choose_filthiest, find_cleanable
from ...storage.log.partition_log import PartitionLog
from ..loop.carry_through import within

logger = logging.getLogger(__name__)

T = TypeVar("T")
MEGABYTE = 1024**2
MOST_THREADS = 64
"""They come when they are needed; beyond, workers share them."""


class LogCleaner:
    """Runs on the node's loop from start() to stop()."""

    def __init__(
        self,
        logs: Callable[[], Iterable[PartitionLog]],
        config: BrokerConfig,
        *,
        now_ms: Callable[[], int],
        checkpoint: Callable[[], Awaitable[None]],
        on_failure: Callable[[], None],
    ) -> None:
        """Nothing runs yet.

        Args:
            logs: the node's logs of this moment; those that are not compacted are passed over.
            config: the broker's settings.
            now_ms: the time now.
            checkpoint: writes the checkpoints of the log directories.
            on_failure: called when a log directory has gone offline.
        """
        self._logs = logs
        self._config = _config_of(config)
        self._is_enabled = config.log_cleaner_enable
        self._backoff_seconds = config.log_cleaner_backoff_ms / 1000
        self._now_ms = now_ms
        self._checkpoint = checkpoint
        self._on_failure = on_failure
        self._throttler = Throttler(config.log_cleaner_io_max_bytes_per_second)
        self._throttling = threading.Lock()
        self._stopping = threading.Event()
        self._woken = asyncio.Event()
        self._workers: dict[int, asyncio.Task[None]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._in_progress: set[PartitionLog] = set()
        self.uncleanable: WeakKeyDictionary[PartitionLog, str] = WeakKeyDictionary()
        """Logs that are left alone, and why."""
        self.cleanings = 0
        """Finished ones since the start."""
        self.totals = CleaningReport()
        """Bytes of them all."""
        self.max_dirty_ratio = 0.0
        """The largest part that could be compacted, of the logs that were looked at last."""

    def start(self) -> None:
        if not self._is_enabled:
            return
        self._threads = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="cleaner")
        self._start_workers()

    def _start_workers(self) -> None:
        for number in range(self._config.threads):
            if number not in self._workers or self._workers[number].done():
                self._workers[number] = asyncio.create_task(self._work(number))

    def configure(self, config: BrokerConfig) -> None:
        """Use these settings from the next cleaning on; what is under way goes on as it began."""
        self._config = _config_of(config)
        self._backoff_seconds = config.log_cleaner_backoff_ms / 1000
        with self._throttling:
            self._throttler.set_rate(config.log_cleaner_io_max_bytes_per_second)
        if self._threads is None or self._stopping.is_set():
            return
        self._start_workers()
        self._woken.set()
        self._woken = asyncio.Event()

    async def stop(self) -> None:
        """Returns when no thread of it runs any more; a cleaning in progress ends unfinished."""
        self._stopping.set()
        self._woken.set()
        await asyncio.gather(*self._workers.values(), return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=True)

    async def _work(self, number: int) -> None:
        while not self._stopping.is_set() and number < self._config.threads:
            try:
                has_cleaned = await self._clean_filthiest()
            except Exception:
                logger.exception("the log cleaner failed")
                has_cleaned = False
            if not has_cleaned:
                await self._back_off()

    async def _back_off(self) -> None:
        try:
            await within(self._backoff_seconds, self._woken.wait())
        except TimeoutError:
            return

    async def _clean_filthiest(self) -> bool:
        """Whether a log was cleaned: then there may be another one."""
        found = self._find_filthiest()
        if found is None:
            return False
        log = found.log
        self._in_progress.add(log)
        try:
            await self._clean(found)
        except CleaningAborted as error:
            logger.info("compaction of %s is postponed: %s", log.directory, error)
            return False
        except UncleanableLog as error:
            self.uncleanable[log] = str(error)
            logger.error("%s; not compacted until restart", error)  # noqa: TRY400 - it says all
        except StorageFailure:
            self._on_failure()
            return False
        except KafkaStorageError as error:
            logger.warning("compaction of %s is postponed: %s", log.directory, error)
            return False
        except Exception as error:
            # Or it would be tried again at once, forever, and the others never.
            self.uncleanable[log] = repr(error)
            logger.exception("compacting %s failed; not compacted until restart", log.directory)
        finally:
            self._in_progress.discard(log)
        return True

    def _find_filthiest(self) -> LogToClean | None:
        now = self._now_ms()
        candidates: list[LogToClean] = []
        for log in list(self._logs()):
            if not log.config.is_compacted or log in self._in_progress or log in self.uncleanable:
                continue
            if not log.health.is_online:
                continue
            try:
                log.compaction.roll_if_overdue(now)
                candidates.append(find_cleanable(log, now))
            except StorageFailure:
                self._on_failure()
            except KafkaStorageError as error:
                logger.warning("%s cannot be rolled: %s", log.directory, error)
            except OSError as error:
                self.uncleanable[log] = str(error)
                logger.error("%s", log.damage.on_read_error(log.segments[:-1], -1, error))  # noqa: TRY400
        self.max_dirty_ratio = max((each.cleanable_ratio for each in candidates), default=0.0)
        return choose_filthiest(candidates)

    async def _clean(self, found: LogToClean) -> None:
        log = found.log
        started = time.monotonic()
        cleaning = log.compaction.begin_cleaning(
            self._config,
            first_dirty_offset=found.first_dirty_offset,
            end_offset=found.end_offset,
            now_ms=self._now_ms(),
            seed=os.urandom(SEED_BYTES),
        )
        # A start must know that this log may have gaps before it has one.
        await self._checkpoint()
        await self._step(log, cleaning, partial(cleaning.build_offset_map, self._progress))
        for group in cleaning.groups():
            step = partial(cleaning.clean_group, group, self._progress)
            cleaned = await self._step(log, cleaning, step)
            log.compaction.replace_segments(cleaning, cleaned, self._now_ms())
        await self._step(log, cleaning, partial(log.compaction.sync_names))
        log.compaction.complete_cleaning(cleaning)
        self.cleanings += 1
        self.totals.map_bytes_read += cleaning.report.map_bytes_read
        self.totals.bytes_read += cleaning.report.bytes_read
        self.totals.bytes_written += cleaning.report.bytes_written
        await self._checkpoint()
        _log_result(log, cleaning, time.monotonic() - started)

    async def _step(self, log: PartitionLog, cleaning: Cleaning, call: Callable[[], T]) -> T:
        """One blocking step, in a cleaner's thread."""
        assert self._threads is not None
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except (OSError, KafkaError) as error:
            raise log.compaction.explain_cleaning_failure(cleaning, error) from error

    def _progress(self, size: int) -> None:
        """In a cleaner's thread: wait as long as the rate wants, unless the cleaner stops."""
        with self._throttling:
            wait_ms = self._throttler.observe(size, time.monotonic() * 1000)
        if self._stopping.wait(wait_ms / 1000) if wait_ms else self._stopping.is_set():
            raise CleaningAborted("the cleaner stops")


def _config_of(config: BrokerConfig) -> CleanerConfig:
    return CleanerConfig(
        threads=config.log_cleaner_threads,
        dedupe_buffer_size=config.log_cleaner_dedupe_buffer_size,
        io_buffer_size=config.log_cleaner_io_buffer_size,
        io_buffer_load_factor=config.log_cleaner_io_buffer_load_factor,
    )


def _log_result(log: PartitionLog, cleaning: Cleaning, seconds: float) -> None:
    report = cleaning.report
    logger.info(
        "compacted %s from offset %d to %d in %.2f s (%.1f MB/s): %d segments to %d, "
        "%.1f MB to %.1f MB, %d records to %d, offset map %.0f%% full",
        log.directory,
        cleaning.first_dirty_offset,
        cleaning.end_offset,
        seconds,
        report.bytes_read / MEGABYTE / max(seconds, 1e-6),
        report.segments_before,
        report.segments_after,
        report.bytes_read / MEGABYTE,
        report.bytes_written / MEGABYTE,
        report.records_read,
        report.records_written,
        100 * report.buffer_utilization,
    )
    if report.keyless_records:
        logger.warning(
            "%d records without a key were dropped from %s",
            report.keyless_records,
            log.directory,
        )
