"""Driver of replication/partition/replica: a replica as handlers use it, with Futures.

No rule is decided here. It gives the step the time, carries out its effects, and runs long work in
threads: look-ups by time, conversion of records to old message formats.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol, TypeVar

from ...cluster.partition.leader_state import FollowerFetch
from ...handlers.ports.replica_port import Appended, FoundOffset, FoundSlice
from ...protocol.columns.record_check import is_record_check_loaded
from ...protocol.records.legacy_messages import convert_down
from ...protocol.records.record_batch import NO_SEQUENCE
from ...replication.partition.conversion_queue import Conversion
from ...replication.partition.delayed_fetches import FetchWaiter
from ...replication.partition.marker_append import TransactionDecision, append_marker
from ...replication.partition.replica import Replica
from ...storage.log.partition_log import AppendResult, PartitionLog
from ...storage.log.timestamp_search import TimestampOffset, TimestampSearch, begin_search
from ...storage.producers.verification_guard import VerificationGuard
from ..loop.step_driver import StepDriver
from .conversion_threads import ConversionThreads

MOST_BYTES_CONVERTED_DOWN: Final = 16 * 1024**2

T = TypeVar("T")


class InThread(Protocol):
    """Function that runs a blocking call in one of the node's storage threads."""

    def __call__(self, call: Callable[[], T]) -> Awaitable[T]: ...


class HostedReplica:
    """Implements handlers.ports.replica_port.LeaderReplica."""

    def __init__(
        self,
        step: Replica,
        driver: StepDriver,
        *,
        wall_ms: Callable[[], int],
        in_thread: InThread,
        conversions: ConversionThreads,
    ) -> None:
        self.step = step
        self._driver = driver
        self._wall_ms = wall_ms
        self._in_thread = in_thread
        self._conversions = conversions

    # --- log -------------------------------------------------------------------------------------

    @property
    def leader_epoch(self) -> int:
        assert self.step.leader is not None
        return self.step.leader.leader_epoch

    @property
    def log(self) -> PartitionLog:
        return self.step.log

    # --- transactions ----------------------------------------------------------------------------

    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        sequence: int = NO_SEQUENCE,
        supports_epoch_bump: bool = False,
    ) -> VerificationGuard | None:
        """See handlers.ports.replica_port.LeaderReplica."""
        return self.step.log.local.producers.begin_verification(
            producer_id,
            producer_epoch,
            sequence,
            supports_epoch_bump=supports_epoch_bump,
            now_ms=self._wall_ms(),
        )

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> Appended:
        """See handlers.ports.replica_port.LeaderReplica."""
        decision = TransactionDecision(
            producer_id, producer_epoch, is_commit, coordinator_epoch, transaction_version
        )
        driver = self._driver
        try:
            result = append_marker(
                self.step, decision, now_ms=driver.now_ms(), wall_ms=self._wall_ms()
            )
            return self._appended(result)
        finally:
            if driver.effects:
                driver.carry_out()

    # --- appending -------------------------------------------------------------------------------

    def append(self, batch: memoryview, *, guard: VerificationGuard | None = None) -> Appended:
        """Append a batch of the broker's own: not converted, its records not checked."""
        step, driver = self.step, self._driver
        try:
            result = step.append(
                batch,
                opened=True,
                is_own=True,
                guard=guard,
                now_ms=driver.now_ms(),
                wall_ms=self._wall_ms(),
            )
            return self._appended(result)
        finally:
            if driver.effects:
                driver.carry_out()

    def produce(
        self,
        records: memoryview,
        *,
        is_message_set: bool,
        acks_all: bool,
        guard: VerificationGuard | None = None,
    ) -> Appended | Awaitable[Appended]:
        step, driver = self.step, self._driver
        try:
            result = step.conversions.produce(
                records,
                is_message_set=is_message_set,
                acks_all=acks_all,
                is_check_loaded=is_record_check_loaded,
                guard=guard,
                now_ms=driver.now_ms(),
                wall_ms=self._wall_ms(),
            )
            if isinstance(result, Conversion):
                loop = asyncio.get_running_loop()
                answer: asyncio.Future[Appended] = loop.create_future()
                step.conversions.begin(result, answer, loop.create_future)
                return answer
            return self._appended(result)
        finally:
            if driver.effects:
                driver.carry_out()

    def _appended(self, result: AppendResult) -> Appended:
        base_offset, last_offset, log_append_time_ms, log_start_offset, _ = result
        committed = self.step.when_committed(last_offset, _new_future)
        return Appended(base_offset, log_append_time_ms, log_start_offset, committed)

    # --- fetching --------------------------------------------------------------------------------

    def on_follower_fetch(self, fetch: FollowerFetch) -> tuple[int, int] | None:
        """See handlers.ports.replica_port.LeaderReplica."""
        driver = self._driver
        diverging = self.step.on_follower_fetch(fetch, driver.now_ms())
        if driver.effects:
            driver.carry_out()
        return diverging

    def in_sync_with(self, offset: int) -> list[int]:
        """See handlers.ports.replica_port.LeaderReplica."""
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

        return self._conversions.run(convert)

    def park(
        self, waiter: FetchWaiter, *, is_follower: bool = False, is_committed: bool = False
    ) -> None:
        self.step.fetches.park(waiter, is_follower=is_follower, is_committed=is_committed)

    def unpark(self, waiter: FetchWaiter) -> None:
        self.step.fetches.unpark(waiter)

    # --- deleting --------------------------------------------------------------------------------

    def when_deleted(self, offset: int) -> Awaitable[None] | None:
        """See handlers.ports.replica_port.LeaderReplica."""
        deleted: asyncio.Future[None] | None = self.step.deletes.when_deleted(offset, _new_future)
        return deleted

    # --- look-ups by time ------------------------------------------------------------------------

    async def offset_for_timestamp(self, timestamp: int, *, up_to: int) -> FoundOffset | None:
        """Find an offset by time. It reads and decompresses one batch, so it runs in a thread."""
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
            raise log.damage.on_read_error(log.segments, -1, error) from error


def _new_future() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


def _found(found: TimestampOffset | None) -> FoundOffset | None:
    return None if found is None else FoundOffset(found.offset, found.timestamp, found.leader_epoch)
