"""Driver of replication/replica: what handlers reach of it, with Futures for those who wait.

No rule is decided here. It gives the step the time, carries out its effects, and does in threads
what takes long: conversions of records, look-ups by time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

from ...cluster.partition.leader_state import FollowerFetch
from ...handlers.ports.replica_port import ActiveProducer, Appended, FoundOffset, FoundSlice
from ...protocol.errors import NotLeaderOrFollower
from ...protocol.records.message_set import convert_down
from ...protocol.records.record_batch import CODEC_MASK
from ...replication.replica import FetchWaiter, Replica
from ...storage.log.batch_conversion import convert_batch, convert_message_set, target_codec
from ...storage.log.batch_validation import opens_records
from ...storage.log.partition_log import PartitionLog
from ...storage.log.timestamp_search import TimestampOffset, TimestampSearch, begin_search
from ...storage.log_config import LogConfig
from ..loop.step_driver import StepDriver
from .conversion_queue import ConversionPool, ConversionQueue

MOST_BYTES_OPENED_AT_ONCE = 8 * 1024
"""A batch whose records must be looked at is looked at here and now if it is no larger."""
MOST_BYTES_CONVERTED_DOWN = 16 * 1024**2
CODEC_POSITION = 22

T = TypeVar("T")


class InThread(Protocol):
    """Runs a blocking call in one of the node's storage threads."""

    def __call__(self, call: Callable[[], T]) -> Awaitable[T]: ...


class HostedReplica:
    """Implements handlers.replica_port.LeaderReplica."""

    def __init__(
        self,
        step: Replica,
        driver: StepDriver,
        *,
        wall_ms: Callable[[], int],
        in_thread: InThread,
        conversions: ConversionPool,
    ) -> None:
        self.step = step
        self._driver = driver
        self._wall_ms = wall_ms
        self._in_thread = in_thread
        self._pool = conversions
        self._conversions = ConversionQueue(conversions, self._append_opened)

    # --- its log ---------------------------------------------------------------------------------

    @property
    def leader_epoch(self) -> int:
        assert self.step.leader is not None
        return self.step.leader.leader_epoch

    @property
    def log(self) -> PartitionLog:
        return self.step.log

    def active_producers(self) -> list[ActiveProducer]:
        return [
            ActiveProducer(producer_id, entry.epoch, last.last_sequence, last.timestamp)
            for producer_id, entry in self.step.log.local.producers.entries.items()
            for last in (entry.batches[-1],)
        ]

    # --- appending -------------------------------------------------------------------------------

    def append(self, batch: memoryview) -> Appended:
        """The broker's own batch: not converted, its records not looked at."""
        return self._append_opened(batch)

    def produce(
        self, records: memoryview, *, is_message_set: bool, acks_all: bool
    ) -> Appended | Awaitable[Appended]:
        self.step.check_produce(acks_all=acks_all)
        config = self.step.log.config
        convert: Callable[[bytearray], bytearray] | None = None
        if is_message_set:
            convert = partial(convert_message_set, config=config, now_ms=self._wall_ms())
        elif self._needs_conversion(records, config):
            convert = partial(convert_batch, config=config, now_ms=self._wall_ms())
        elif not self._conversions:
            return self._append(records, opened=False)
        return self._conversions.submit(bytearray(records), convert)

    def _needs_conversion(self, batch: memoryview, config: LogConfig) -> bool:
        """Whether a batch has to be opened, and is too large to do that here and now."""
        codec = batch[CODEC_POSITION] & CODEC_MASK
        if config.compression_type != "producer" and target_codec(codec, config) != codec:
            return True
        if not opens_records(config):
            return False
        return bool(codec or len(batch) > MOST_BYTES_OPENED_AT_ONCE or self._conversions)

    def _append_opened(self, batch: bytearray | memoryview) -> Appended:
        return self._append(batch, opened=True)

    def _append(self, batch: bytearray | memoryview, *, opened: bool) -> Appended:
        step, driver = self.step, self._driver
        try:
            result = step.append(
                batch, opened=opened, now_ms=driver.now_ms(), wall_ms=self._wall_ms()
            )
        finally:
            if driver.effects:
                driver.carry_out()
        committed: asyncio.Future[None] | None = None
        if not step.is_committed(result.last_offset):
            committed = asyncio.get_running_loop().create_future()
            step.when_committed(result.last_offset, committed)
        return Appended(
            result.base_offset, result.log_append_time_ms, result.log_start_offset, committed
        )

    def on_leadership_ended(self) -> None:
        """What is being converted is not appended any more."""
        self._conversions.abandon(NotLeaderOrFollower(f"{self.step} has a new leader"))

    # --- fetching --------------------------------------------------------------------------------

    def on_follower_fetch(self, fetch: FollowerFetch) -> tuple[int, int] | None:
        """See handlers.replica_port.LeaderReplica."""
        driver = self._driver
        diverging = self.step.on_follower_fetch(fetch, driver.now_ms())
        if driver.effects:
            driver.carry_out()
        return diverging

    def in_sync_with(self, offset: int) -> list[int]:
        """See handlers.replica_port.LeaderReplica."""
        leader = self.step.leader
        return [] if leader is None else leader.in_sync_with(offset)

    def read_message_set(
        self, piece: FoundSlice, *, fetch_offset: int, magic: int, max_bytes: int
    ) -> Awaitable[bytes]:
        def convert() -> bytes:
            assert piece.file is not None
            data = os.pread(piece.file.fileno(), piece.size, piece.position)
            limit = max(max_bytes, MOST_BYTES_CONVERTED_DOWN)
            return convert_down(data, magic, fetch_offset=fetch_offset, limit=limit)

        return self._pool.run(convert)

    def park(self, waiter: FetchWaiter, *, is_follower: bool = False) -> None:
        self.step.park(waiter, is_follower=is_follower)

    def unpark(self, waiter: FetchWaiter) -> None:
        self.step.unpark(waiter)

    # --- deleting --------------------------------------------------------------------------------

    def when_deleted(self, offset: int) -> Awaitable[None] | None:
        """See handlers.replica_port.LeaderReplica."""
        if self.step.is_deleted(offset):
            return None
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.step.when_deleted(offset, done)
        return done

    # --- look-ups by time ------------------------------------------------------------------------

    async def offset_for_timestamp(self, timestamp: int, *, up_to: int) -> FoundOffset | None:
        """Reads and opens one batch, so it runs in a thread."""
        return _found(await self._search(lambda log: log.first_at_or_after(timestamp), up_to))

    async def offset_of_max_timestamp(self, *, up_to: int) -> FoundOffset | None:
        return _found(await self._search(TimestampSearch.first_with_max_timestamp, up_to))

    async def segment_times(self) -> list[tuple[int, int]]:
        return await self._search(TimestampSearch.segment_times, self.log.log_end_offset)

    async def _search(self, question: Callable[[TimestampSearch], T], up_to: int) -> T:
        log = self.step.log
        search = begin_search(log, up_to=up_to)
        try:
            return await self._in_thread(partial(question, search))
        except OSError as error:
            failure = log.health.fail(f"reading {log.directory}", error)
            self.step.on_storage_failure()
            self._driver.carry_out()
            raise failure from error


def _found(found: TimestampOffset | None) -> FoundOffset | None:
    return None if found is None else FoundOffset(found.offset, found.timestamp, found.leader_epoch)
