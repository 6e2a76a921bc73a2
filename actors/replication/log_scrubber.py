"""Finds damaged segments before a reader does, and has them healed.

In this order:
    suspects    what a reader has stumbled over: examined at once
    at first    the ends of all segments that were there at the start: a file that is gone, emptied
                or cut short is found within moments
    scrub       every closed segment is read whole, slowly (bradbury.log.scrub.io.max.bytes.per.
                second), those first that were not read since the start; and again every
                bradbury.log.scrub.interval.ms. After a restart it begins again.

Files are read in a thread of its own. What is found is one line in the node's log, a metric, and a
problem that `bradbury status` names; other replicas are asked for it (segment_repairer) until it is
healed, or the records are deleted.

Not here: what counts as damage (storage/log/log_damage).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TypeVar
from weakref import WeakSet

from ...cluster.broker_config import BrokerConfig
from ...protocol.errors import KafkaStorageError
from ...replication.partition.replica import Replica
from ...storage.directories.log_directories import LogDirectories
from ...storage.disk.throttler import Throttler
from ...storage.log.log_damage import (
    DamagedRange,
    LogDamage,
    SegmentExamination,
    doubtful_ends,
)
from ...storage.log.partition_log import PartitionLog
from ...storage.log.segment_patch import SegmentChanged
from ...storage.segments.log_segment import LogSegment
from ..loop.carry_through import until_thread_ends, within
from .segment_repairer import SegmentRepairer

logger = logging.getLogger(__name__)

T = TypeVar("T")
LOOK_SECONDS = 0.1
END_SECONDS = 1.0
FIRST_RETRY_SECONDS = 0.5
LAST_RETRY_SECONDS = 60.0
HOPEFUL_ATTEMPTS = 4
"""So often other replicas are asked before readers are told that the records are lost."""


class ScrubbingStopped(Exception):
    """The node ends."""


class _Healing:
    """What is tried about the damage of one log."""

    __slots__ = ("attempts", "due", "pause")

    def __init__(self) -> None:
        self.attempts = 0
        self.due = 0.0
        self.pause = FIRST_RETRY_SECONDS


class LogScrubber:
    """Runs on the node's loop from start() to stop()."""

    def __init__(
        self,
        directories: LogDirectories,
        replicas: Callable[[], Iterable[Replica]],
        repairer: SegmentRepairer,
        config: BrokerConfig,
        *,
        now_ms: Callable[[], int],
        on_failure: Callable[[], None],
    ) -> None:
        self._directories = directories
        self._replicas = replicas
        self.repairer = repairer
        self._config = config
        self._now_ms = now_ms
        self._on_failure = on_failure
        self._throttler = Throttler(config.bradbury_log_scrub_io_max_bytes_per_second)
        self._throttling = threading.Lock()
        self._stopping = threading.Event()
        self._stopped = asyncio.Event()
        self._thread = ThreadPoolExecutor(2, thread_name_prefix="scrub")
        self._tasks: list[asyncio.Task[None]] = []
        self._healing: dict[LogDamage, _Healing] = {}
        self.scrubbed_bytes = 0
        self.scrubs = 0
        """Times that all closed segments were read."""

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._look()),
            asyncio.create_task(self._look_at_ends()),
            asyncio.create_task(self._scrub()),
        ]

    def configure(self, config: BrokerConfig) -> None:
        """Use these settings from now on."""
        self._config = config
        with self._throttling:
            self._throttler.set_rate(config.bradbury_log_scrub_io_max_bytes_per_second)

    async def stop(self) -> None:
        """Returns when nothing of it runs any more."""
        self._stopping.set()
        self._stopped.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._thread.shutdown(wait=True)

    # --- what is known ---------------------------------------------------------------------------

    def damaged(self) -> list[tuple[Replica, DamagedRange]]:
        """All that cannot be read on this node now."""
        by_damage = {replica.log.damage: replica for replica in self._replicas()}
        return [
            (by_damage[damage], each)
            for damage in self._known()
            if damage in by_damage
            for each in damage.ranges
        ]

    def _known(self) -> list[LogDamage]:
        found: list[LogDamage] = []
        for directory in self._directories.online:
            for damage in list(directory.health.damaged):
                if damage.is_closed or not (damage.ranges or damage.suspects):
                    directory.health.damaged.pop(damage, None)
                    self._healing.pop(damage, None)
                else:
                    found.append(damage)
        return found

    # --- suspects, and what was found ------------------------------------------------------------

    async def _look(self) -> None:
        while not self._stopped.is_set():
            known = self._known()
            if known:
                by_damage = {replica.log.damage: replica for replica in self._replicas()}
                for damage in known:
                    if damage in by_damage:
                        await self._deal_with(by_damage[damage])
            await self._pause(LOOK_SECONDS)

    async def _deal_with(self, replica: Replica) -> None:
        damage = replica.log.damage
        try:
            for segment, reason in list(damage.suspects.items()):
                logger.info("%s: %s is examined: %s", replica, segment.files.path, reason)
                await self._examine(replica, segment)
            if damage.ranges:
                await self._heal(replica)
        except KafkaStorageError as error:
            logger.warning("%s: %s", replica, error)
            self._on_failure()
        except (ScrubbingStopped, SegmentChanged):
            return
        except OSError as error:  # of the machine: nothing is known of the file
            logger.warning("%s is examined later: %s", replica, error)
        except Exception:
            logger.exception("looking after the damage of %s failed", replica)
            damage.suspects.clear()

    async def _examine(
        self, replica: Replica, segment: LogSegment, *, throttled: bool = False
    ) -> SegmentExamination | None:
        log = replica.log
        examination = log.damage.begin_examination(segment)
        if examination is None:
            return None
        progress = self._progress if throttled else self._count
        await self._in_thread(lambda: examination.run(progress))
        known = set(log.damage.ranges)
        leader = replica.leader
        log.damage.has_other_replicas = leader is not None and bool(leader.followers)
        found = log.damage.complete_examination(examination)
        for each in found:
            if each not in known:
                healing = (
                    "asking other replicas"
                    if self.repairer.sources(replica)
                    else (
                        "no other replica: put the file back, delete the records before "
                        f"{each.end}, or set bradbury.damaged.segment=skip on the topic"
                    )
                )
                log.damage.may_heal = bool(self.repairer.sources(replica))
                logger.error("%s has lost %s; %s", replica, each, healing)
        return examination if found else None

    async def _heal(self, replica: Replica) -> None:
        log = replica.log
        damage, now = log.damage, time.monotonic()
        healing = self._healing.setdefault(damage, _Healing())
        if now < healing.due:
            return
        if not self.repairer.sources(replica) and healing.attempts >= HOPEFUL_ATTEMPTS:
            damage.may_heal = False
            healing.due = now + FIRST_RETRY_SECONDS
            return
        reason: str | None = None
        for path in dict.fromkeys(each.path for each in damage.ranges):
            segment = next((each for each in log.segments if each.files.path == path), None)
            if segment is None:
                damage.on_healed(path)
                continue
            if segment is log.segments.active:
                log.local.roll(now_ms=self._now_ms())
            examination = await self._examine(replica, segment)
            if examination is not None:
                reason = await self.repairer.heal(replica, examination) or reason
        if reason is None:
            damage.may_heal = False
            self._healing.pop(damage, None)
            return
        healing.attempts += 1
        healing.due = time.monotonic() + healing.pause
        healing.pause = min(2 * healing.pause, LAST_RETRY_SECONDS)
        if healing.attempts == HOPEFUL_ATTEMPTS:
            damage.may_heal = False
            if self.repairer.sources(replica):
                logger.error("%s could not be healed from other replicas: %s", replica, reason)

    # --- the scrub -------------------------------------------------------------------------------

    async def _look_at_ends(self) -> None:
        """Of logs that were there at the start, as soon as a partition is found to be of them."""
        looked: WeakSet[PartitionLog] = WeakSet()
        while not self._stopped.is_set():
            for replica in list(self._replicas()):
                log = replica.log
                if log in looked:
                    continue
                looked.add(log)
                ends = log.damage.ends()
                for segment in await self._in_thread(partial(doubtful_ends, ends)) if ends else ():
                    log.damage.suspect(segment, "it does not end where the next one begins")
            await self._pause(END_SECONDS)

    async def _scrub(self) -> None:
        interval = self._config.bradbury_log_scrub_interval_ms / 1000
        due = time.monotonic() + interval
        while not self._stopped.is_set():
            if self._config.bradbury_log_scrub_enable:
                try:
                    await self._scrub_all(only_doubted=True)
                    if time.monotonic() >= due:
                        await self._scrub_all(only_doubted=False)
                        self.scrubs += 1
                        due = time.monotonic() + self._config.bradbury_log_scrub_interval_ms / 1000
                except ScrubbingStopped:
                    return
                except Exception:
                    logger.exception("the scrub failed; readers still find what is damaged")
            await self._pause(END_SECONDS)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await within(seconds, self._stopped.wait())

    async def _scrub_all(self, *, only_doubted: bool) -> None:
        for replica in list(self._replicas()):
            log = replica.log
            for segment in log.segments:
                if only_doubted and segment.is_proven:
                    continue
                if segment is log.segments.active and not only_doubted:
                    continue
                if self._stopped.is_set() or not log.health.is_online:
                    break
                if any(each.path == segment.files.path for each in log.damage.ranges):
                    continue  # it is known
                await self._examine(replica, segment, throttled=True)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        return await until_thread_ends(loop.run_in_executor(self._thread, call))

    def _count(self, size: int) -> None:
        if self._stopping.is_set():
            raise ScrubbingStopped
        self.scrubbed_bytes += size

    def _progress(self, size: int) -> None:
        """In the thread: wait as long as the rate wants, unless the node ends."""
        self._count(size)
        with self._throttling:
            wait_ms = self._throttler.observe(size, time.monotonic() * 1000)
        if wait_ms and self._stopping.wait(wait_ms / 1000):
            raise ScrubbingStopped
