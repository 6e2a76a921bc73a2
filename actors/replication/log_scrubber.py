"""Driver of replication/logs/segment_healer and log_scrub: their rounds, threads and connections.

Every LOOK_SECONDS damage that readers found is examined and repaired; every END_SECONDS the scrub
continues if it is due. Files are read in threads of their own, those of the scrub at no more than
bradbury.log.scrub.io.max.bytes.per.second. Damage is logged, counted in a metric, and shown by
`bradbury status`, until it is repaired or the records are deleted.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final

from ...cluster.broker_config import BrokerConfig
from ...protocol.messages.fetch import FetchResponse
from ...replication.effects import RunScrubWork, SendRepairFetch
from ...replication.logs.log_scrub import LogScrub
from ...replication.logs.segment_healer import (
    MOST_BYTES,
    RecordsFetch,
    ScrubbingStopped,
    SegmentHealer,
)
from ...replication.procedure import ProcedureSteps
from ...storage.disk.throttler import Throttler
from ..loop.carry_through import until_thread_ends, within
from ..loop.step_driver import StepDriver
from ..network.peer_connection import PeerConnection
from ..network.peers import ConnectingNode, connect_to

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.1
END_SECONDS: Final = 1.0
FETCH_VERSION: Final = 17
ANSWER_SECONDS: Final = 30.0


class LogScrubber:
    """Scrubber of logs. Runs on the node's loop from start() to stop()."""

    def __init__(
        self, healer: SegmentHealer, scrub: LogScrub, driver: StepDriver, node: ConnectingNode
    ) -> None:
        self.healer = healer
        self.scrub = scrub
        self._driver = driver
        self._node = node
        self._throttler = Throttler(scrub.config.bradbury_log_scrub_io_max_bytes_per_second)
        self._throttling = threading.Lock()
        self._stopping = threading.Event()
        self._stopped = asyncio.Event()
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="scrub")
        self._rounds: list[asyncio.Task[None]] = []
        self._working: set[asyncio.Task[None]] = set()
        self._fetching: set[asyncio.Task[None]] = set()
        self._connections: dict[int, PeerConnection] = {}
        self.scrubbed_bytes = 0
        driver.on(RunScrubWork, self._begin_work)
        driver.on(SendRepairFetch, self._begin_fetch)

    def start(self) -> None:
        self._rounds = [
            asyncio.create_task(self._repeat(self._heal, LOOK_SECONDS)),
            asyncio.create_task(self._repeat(self.scrub.check_ends, END_SECONDS)),
            asyncio.create_task(self._repeat(self.scrub.scrub, END_SECONDS)),
        ]

    def configure(self, config: BrokerConfig) -> None:
        """Use these settings from now on."""
        self.scrub.config = config
        with self._throttling:
            self._throttler.set_rate(config.bradbury_log_scrub_io_max_bytes_per_second)

    async def stop(self) -> None:
        """Stop, and wait until its rounds and threads have ended."""
        self.healer.is_stopping = True
        self._stopping.set()
        self._stopped.set()
        for task in self._fetching:
            task.cancel()
        await asyncio.gather(*self._rounds, return_exceptions=True)
        self._threads.shutdown(wait=True)

    # --- rounds ----------------------------------------------------------------------------------

    async def _repeat(self, steps: Callable[[], ProcedureSteps], pause_seconds: float) -> None:
        while not self._stopped.is_set():
            try:
                await self._driver.run(steps())
            except ScrubbingStopped:
                return
            except Exception:
                logger.exception("the log scrubber failed; readers still detect damage")
            with suppress(TimeoutError):
                await within(pause_seconds, self._stopped.wait())

    def _heal(self) -> ProcedureSteps:
        try:
            yield from self.healer.heal_damaged()
        finally:
            for connection in self._connections.values():
                connection.close()
            self._connections.clear()

    # --- threads ---------------------------------------------------------------------------------

    def _begin_work(self, effect: RunScrubWork) -> None:
        task = asyncio.get_running_loop().create_task(self._work(effect))
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _work(self, effect: RunScrubWork) -> None:
        progress = self._progress if effect.work.is_throttled else self._count
        failure: Exception | None = None
        loop = asyncio.get_running_loop()
        try:
            await until_thread_ends(loop.run_in_executor(self._threads, effect.work.run, progress))
        except Exception as error:  # noqa: BLE001 -- the step says what it means
            failure = error
        effect.step.on_work_done(effect.work, failure, self._driver.now_ms())
        self._driver.carry_out()

    def _count(self, size: int) -> None:
        if self._stopping.is_set():
            raise ScrubbingStopped
        self.scrubbed_bytes += size

    def _progress(self, size: int) -> None:
        """Wait in the thread as long as the rate limit requires, unless the node ends."""
        self._count(size)
        with self._throttling:
            wait_ms = self._throttler.observe(size, time.monotonic() * 1000)
        if wait_ms and self._stopping.wait(wait_ms / 1000):
            raise ScrubbingStopped

    # --- other replicas --------------------------------------------------------------------------

    def _begin_fetch(self, effect: SendRepairFetch) -> None:
        task = asyncio.get_running_loop().create_task(self._fetch(effect.fetch))
        self._fetching.add(task)
        # A callback, so that a task cancelled before it starts reports, too: the step waits for it.
        task.add_done_callback(partial(self._on_fetched, effect))

    async def _fetch(self, fetch: RecordsFetch) -> None:
        connection = self._connections.get(fetch.node_id)
        if connection is None:
            connection = await connect_to(
                fetch.node_id, self._node, purpose="repair", most_bytes=MOST_BYTES
            )
            self._connections[fetch.node_id] = connection
        fetch.answer = await connection.request(
            fetch.request, FetchResponse, FETCH_VERSION, timeout_seconds=ANSWER_SECONDS
        )

    def _on_fetched(self, effect: SendRepairFetch, task: asyncio.Task[None]) -> None:
        self._fetching.discard(task)
        failure = ScrubbingStopped() if task.cancelled() else task.exception()
        assert failure is None or isinstance(failure, Exception)
        if failure is not None and (broken := self._connections.pop(effect.fetch.node_id, None)):
            broken.close()
        effect.step.on_work_done(effect.fetch, failure, self._driver.now_ms())
        self._driver.carry_out()
