"""A partition that this process holds: its log, what it knows as leader, and who waits for it.

No rule is decided here. The log (storage/partition_log) checks and stores, the leader state
(cluster/leader_state) says what is committed; this class joins the two and wakes the waiting.

Order of an append, with no await in between: write to the file, log end offset, then
    - a topic without flush.messages: the record counts at once (it is in the page cache, which
      survives the death of this process but not of the machine), the high watermark moves, the
      producer is answered and consumers are woken;
    - flush.messages reached: nothing counts until an fsync of it has returned, in a thread; one
      fsync serves every batch that came before it began (group commit). A failed fsync is never
      tried again: the pages may be gone. The directory goes offline and producers get
      KAFKA_STORAGE_ERROR, with the record in doubt, as after any crash.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from time import perf_counter
from typing import Protocol, TypeVar

from ..cluster.leader_state import LeaderState
from ..handlers.context import ActiveProducer, Appended, FetchWaiter, FoundOffset, FoundSlice
from ..handlers.request_metrics import Histogram
from ..protocol.errors import (
    KafkaStorageError,
    NotEnoughReplicas,
    NotLeaderOrFollower,
)
from ..protocol.message_set import convert_down
from ..protocol.record_batch import CODEC_MASK
from ..storage.batch_conversion import convert_batch, convert_message_set, target_codec
from ..storage.batch_validation import opens_records
from ..storage.log_config import LogConfig
from ..storage.partition_log import PartitionLog
from ..storage.storage_failure import StorageFailure
from ..storage.timestamp_search import TimestampOffset, TimestampSearch
from .conversion_queue import ConversionPool, ConversionQueue

MOST_BYTES_OPENED_AT_ONCE = 8 * 1024
"""A batch whose records must be looked at is looked at here and now if it is no larger."""
MOST_BYTES_CONVERTED_DOWN = 16 * 1024**2
CODEC_POSITION = 22

T = TypeVar("T")


class InThread(Protocol):
    """Runs a blocking call in one of the node's storage threads."""

    def __call__(self, call: Callable[[], T]) -> Awaitable[T]: ...


class Replica:
    """Implements handlers.context.LeaderReplica while this node leads the partition."""

    def __init__(
        self,
        topic: str,
        partition: int,
        log: PartitionLog,
        *,
        now_ms: Callable[[], int],
        in_thread: InThread,
        conversions: ConversionPool,
        on_failure: Callable[[], None],
        changed: set[Replica] | None = None,
        may_use_reserve: bool = False,
        fsyncs: Histogram | None = None,
    ) -> None:
        """`changed`: where it puts itself when something was appended. `may_use_reserve`: appends
        are taken below the disk's floor of free space, too; see storage/disk_guard.
        """
        self.topic = topic
        self.partition = partition
        self.log = log
        self.leader: LeaderState | None = None
        self._now_ms = now_ms
        self._in_thread = in_thread
        self._on_failure = on_failure
        self._changed = set() if changed is None else changed
        self._may_use_reserve = may_use_reserve
        self._fsyncs = fsyncs
        self.batches_in = self.bytes_in = self.records_in = 0
        self._waiters: set[FetchWaiter] = set()
        self._uncommitted: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._flushing: asyncio.Task[None] | None = None
        self._pool = conversions
        self._conversions = ConversionQueue(conversions, self._append_opened)

    # --- leadership ------------------------------------------------------------------------------

    def become_leader(self, leader_epoch: int, partition_epoch: int) -> None:
        """Begin (or go on in) `leader_epoch`; an older one than ours is ignored.

        The log has the epoch on disk already (PartitionLog.assign_epoch, in a thread).
        """
        if self.leader is not None and partition_epoch < self.leader.partition_epoch:
            return
        if self.leader is not None and self.leader.leader_epoch == leader_epoch:
            self.leader.partition_epoch = partition_epoch
            return
        self._abandon_waiting()
        self.leader = LeaderState(leader_epoch, partition_epoch, self.log.high_watermark)
        self._advance()

    def resign(self) -> None:
        self.leader = None
        self._abandon_waiting()

    def _abandon_waiting(self) -> None:
        while self._uncommitted:
            _, future = self._uncommitted.popleft()
            if not future.done():
                future.set_exception(
                    NotLeaderOrFollower(f"{self.topic}-{self.partition} has a new leader")
                )
                future.exception()  # retrieved, in case the producer is gone
        self._conversions.abandon(
            NotLeaderOrFollower(f"{self.topic}-{self.partition} has a new leader")
        )
        for waiter in list(self._waiters):
            waiter.on_changed()

    # --- LeaderReplica ---------------------------------------------------------------------------

    @property
    def leader_epoch(self) -> int:
        assert self.leader is not None
        return self.leader.leader_epoch

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def epoch_start_offset(self) -> int:
        entries = self.log.epochs.entries
        return entries[-1][1] if entries else self.log.log_start_offset

    @property
    def compression_type(self) -> str:
        return self.log.config.compression_type

    def append(self, batch: memoryview) -> Appended:
        """The broker's own batch: not converted, its records not looked at."""
        return self._append_opened(batch)

    def produce(
        self, records: memoryview, *, is_message_set: bool, acks_all: bool
    ) -> Appended | Awaitable[Appended]:
        leader, config = self.leader, self.log.config
        if leader is None:
            raise NotLeaderOrFollower(f"{self.topic}-{self.partition} is not led here")
        if acks_all and config.min_insync_replicas > leader.isr_size:
            raise NotEnoughReplicas(
                f"{leader.isr_size} replicas are in sync, "
                f"min.insync.replicas is {config.min_insync_replicas}"
            )
        convert: Callable[[bytearray], bytearray] | None = None
        if is_message_set:
            convert = partial(convert_message_set, config=config, now_ms=self._now_ms())
        elif self._needs_conversion(records, config):
            convert = partial(convert_batch, config=config, now_ms=self._now_ms())
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
        leader = self.leader
        if leader is None:
            raise NotLeaderOrFollower(f"{self.topic}-{self.partition} is not led here")
        health = self.log.health
        if health.headroom <= 0 and not self._may_use_reserve:
            raise KafkaStorageError(
                f"the disk of {self.topic}-{self.partition} is nearly full; reads go on"
            )
        try:
            result = self.log.append_as_leader(
                batch, leader_epoch=leader.leader_epoch, now_ms=self._now_ms(), opened=opened
            )
        except StorageFailure:
            self._on_failure()
            raise
        if not result.duplicate:
            self.batches_in += 1
            self.bytes_in += len(batch)
            self.records_in += result.last_offset - result.base_offset + 1
            health.headroom -= len(batch)
            self._changed.add(self)
            self._advance(len(batch))
        committed: asyncio.Future[None] | None = None
        if result.last_offset >= self.log.high_watermark:
            committed = asyncio.get_running_loop().create_future()
            self._uncommitted.append((result.last_offset, committed))
        return Appended(
            result.base_offset, result.log_append_time_ms, result.log_start_offset, committed
        )

    def read(
        self, fetch_offset: int, *, max_bytes: int, up_to: int, min_one_batch: bool
    ) -> FoundSlice:
        return self.log.read(
            fetch_offset, max_bytes=max_bytes, up_to=up_to, min_one_batch=min_one_batch
        )

    def read_message_set(
        self, piece: FoundSlice, *, fetch_offset: int, magic: int, max_bytes: int
    ) -> Awaitable[bytes]:
        def convert() -> bytes:
            assert piece.file is not None
            data = os.pread(piece.file.fileno(), piece.size, piece.position)
            limit = max(max_bytes, MOST_BYTES_CONVERTED_DOWN)
            return convert_down(data, magic, fetch_offset=fetch_offset, limit=limit)

        return self._pool.run(convert)

    def active_producers(self) -> list[ActiveProducer]:
        return [
            ActiveProducer(producer_id, entry.epoch, last.last_sequence, last.timestamp)
            for producer_id, entry in self.log.producers.items()
            for last in (entry.batches[-1],)
        ]

    async def offset_for_timestamp(self, timestamp: int, *, up_to: int) -> FoundOffset | None:
        """Reads and opens one batch, so it runs in a thread."""
        return _found(await self._search(lambda log: log.first_at_or_after(timestamp), up_to))

    async def offset_of_max_timestamp(self, *, up_to: int) -> FoundOffset | None:
        return _found(await self._search(TimestampSearch.first_with_max_timestamp, up_to))

    async def segment_times(self) -> list[tuple[int, int]]:
        return await self._search(TimestampSearch.segment_times, self.log.log_end_offset)

    async def _search(self, question: Callable[[TimestampSearch], T], up_to: int) -> T:
        log = self.log
        search = log.begin_search(up_to=up_to)
        try:
            return await self._in_thread(partial(question, search))
        except OSError as error:
            failure = log.search_failed(error)
            self._on_failure()
            raise failure from error

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.log.end_offset_for_epoch(epoch)

    def leader_epoch_at(self, offset: int) -> int:
        return self.log.epochs.epoch_at(offset)

    def park(self, waiter: FetchWaiter) -> None:
        self._waiters.add(waiter)

    def unpark(self, waiter: FetchWaiter) -> None:
        self._waiters.discard(waiter)

    # --- committing ------------------------------------------------------------------------------

    def _advance(self, size: int = 0) -> None:
        """Count what may count; start an fsync for what may not yet."""
        leader, log = self.leader, self.log
        if leader is None:
            return
        if log.unflushed_records >= log.config.flush_messages:
            durable = log.recovery_point
            self._start_flush()
        else:
            durable = log.log_end_offset
        if not leader.on_local_append(durable):
            return
        log.high_watermark = leader.high_watermark
        while self._uncommitted and self._uncommitted[0][0] < leader.high_watermark:
            _, future = self._uncommitted.popleft()
            if not future.done():
                future.set_result(None)
        if self._waiters:
            for waiter in list(self._waiters):
                waiter.on_readable(size)

    def _start_flush(self) -> None:
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        try:
            # self.log, each time: a move may put another one in its place meanwhile.
            while self.log.unflushed_records >= self.log.config.flush_messages:
                await self.flush()
                # Bytes are not counted here: a woken fetch reads again and may park again.
                self._advance(size=1 << 30)
        except StorageFailure:
            return  # the directory is offline, and everyone who waited has been told
        finally:
            self._flushing = None

    async def flush(self) -> None:
        """Bring everything appended so far to the disk. Failure takes the directory offline."""
        log = self.log
        work = log.begin_flush()
        if work is None:
            return
        started = perf_counter()
        try:
            await self._in_thread(work.run)
        except StorageFailure:
            self._on_failure()
            raise
        if self._fsyncs is not None:
            self._fsyncs.observe(perf_counter() - started)
        log.complete_flush(work)

    def replace_log(self, log: PartitionLog) -> None:
        """Go on with `log`, which holds the same records in another directory.

        What waits for an fsync now waits for one of the new log.
        """
        self.log = log
        self._changed.add(self)
        self._advance()

    def fail_waiting(self, error: KafkaStorageError) -> None:
        """The directory is offline: nothing that waits here will be committed by us."""
        while self._uncommitted:
            _, future = self._uncommitted.popleft()
            if not future.done():
                future.set_exception(error)
                future.exception()
        for waiter in list(self._waiters):
            waiter.on_changed()


def _found(found: TimestampOffset | None) -> FoundOffset | None:
    return None if found is None else FoundOffset(found.offset, found.timestamp, found.leader_epoch)
