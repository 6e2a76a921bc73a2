"""A partition that this process holds: its log, what it knows as leader, and who waits for it.

While another node leads, replica_fetcher appends what that one has, and nobody waits here.

No rule is decided here. The log (storage/log/partition_log) checks and stores, the leader state
(cluster/leader_state) says what is committed; this class joins the two and wakes the waiting.

Order of an append, with no await in between: write to the file, log end offset, followers that
wait for records are woken, then for the leader's own copy
    - a topic without flush.messages: the record counts at once (it is in the page cache, which
      survives the death of this process but not of the machine), the high watermark moves, the
      producer is answered and consumers are woken;
    - flush.messages reached: nothing counts until an fsync of it has returned, in a thread; one
      fsync serves every batch that came before it began (group commit). A failed fsync is never
      tried again: the pages may be gone. The directory goes offline and producers get
      KAFKA_STORAGE_ERROR, with the record in doubt, as after any crash.
With followers a record counts when all in sync have it too, each as far as the topic asks: what a
follower asks for next is what it has (see cluster/leader_state).
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Protocol, TypeVar

from ..cluster.follower_state import next_high_watermark
from ..cluster.leader_state import FollowerFetch, LeaderState
from ..cluster.metadata_image import PartitionImage
from ..handlers.replica_port import ActiveProducer, Appended, FetchWaiter, FoundOffset, FoundSlice
from ..handlers.request_metrics import Histogram
from ..protocol.errors import (
    FencedLeaderEpoch,
    KafkaStorageError,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
)
from ..protocol.message_set import convert_down
from ..protocol.record_batch import CODEC_MASK, Buffer
from ..storage.disk.storage_failure import StorageFailure
from ..storage.log.batch_conversion import convert_batch, convert_message_set, target_codec
from ..storage.log.batch_validation import opens_records
from ..storage.log.partition_log import PartitionLog
from ..storage.log.timestamp_search import TimestampOffset, TimestampSearch
from ..storage.log_config import LogConfig
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
    """Implements handlers.replica_port.LeaderReplica while this node leads the partition."""

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
        node_id: int = -1,
        monotonic_ms: Callable[[], int] | None = None,
        on_insync_work: Callable[[Replica], None] = lambda replica: None,
    ) -> None:
        """`changed`: where it puts itself when something was appended. `may_use_reserve`: appends
        are taken below the disk's floor of free space, too; see storage/disk/disk_guard.
        `on_insync_work`: told when a follower that is not in sync may be so now.
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
        self.bytes_copied = self.isr_shrinks = self.isr_expands = 0
        self._node_id = node_id
        self._monotonic_ms = monotonic_ms or now_ms
        self._on_insync_work = on_insync_work
        self._waiters: set[FetchWaiter] = set()
        self._follower_waiters: set[FetchWaiter] = set()
        self._uncommitted: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._deletions: list[tuple[int, asyncio.Future[None]]] = []
        """Who waits until all in sync have dropped what is below an offset."""
        self._flushing: asyncio.Task[None] | None = None
        self._pool = conversions
        self._conversions = ConversionQueue(conversions, self._append_opened)

    # --- leadership ------------------------------------------------------------------------------

    def become_leader(self, state: PartitionImage) -> None:
        """Begin (or go on in) its leader epoch; an older one than ours is ignored.

        The log has the epoch on disk already (PartitionLog.assign_epoch, in a thread).
        """
        leader = self.leader
        if leader is not None and state.partition_epoch < leader.partition_epoch:
            return
        if leader is not None and leader.leader_epoch == state.leader_epoch:
            leader.on_replicas(state.replicas)
            self.on_isr(state.isr, state.partition_epoch)
            return
        self._abandon_waiting()
        self.leader = LeaderState(
            state.leader_epoch,
            state.partition_epoch,
            self.log.high_watermark,
            node_id=self._node_id,
            replicas=state.replicas,
            isr=state.isr,
            start_offset=self.log.log_end_offset,
            now_ms=self._monotonic_ms(),
        )
        self.leader.min_insync_replicas = self.log.config.min_insync_replicas
        self._advance()

    def reconfigure(self, config: LogConfig) -> None:
        self.log.reconfigure(config)
        if self.leader is not None:
            self.leader.min_insync_replicas = config.min_insync_replicas

    def on_isr(self, isr: Sequence[int], partition_epoch: int) -> None:
        """The controller has decided who is in sync."""
        leader = self.leader
        if leader is None:
            return
        before = leader.isr
        if leader.on_isr(isr, partition_epoch):
            self._commit()
        self.isr_shrinks += len(before - leader.isr)
        self.isr_expands += len(leader.isr - before)

    def on_isr_refused(self) -> None:
        """The controller has decided that it stays as it is."""
        if self.leader is not None and self.leader.on_refused():
            self._commit()

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
        waiting, self._deletions = self._deletions, []
        for _, done in waiting:
            if not done.done():
                done.set_exception(
                    NotLeaderOrFollower(f"{self.topic}-{self.partition} has a new leader")
                )
                done.exception()
        for waiter in [*self._waiters, *self._follower_waiters]:
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
        if acks_all and not leader.has_enough_insync:
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
        except FencedLeaderEpoch as error:
            # The next epoch is on its way to the disk. Producers know this answer, and try again.
            raise NotLeaderOrFollower(str(error)) from None
        if not result.duplicate:
            self.batches_in += 1
            self.bytes_in += len(batch)
            self.records_in += result.last_offset - result.base_offset + 1
            health.headroom -= len(batch)
            self._changed.add(self)
            if leader.followers:
                leader.on_append(result.base_offset, self._monotonic_ms())
                for waiter in list(self._follower_waiters):
                    waiter.on_readable(len(batch))
            self._advance(len(batch))
        committed: asyncio.Future[None] | None = None
        if result.last_offset >= self.log.high_watermark:
            committed = asyncio.get_running_loop().create_future()
            self._uncommitted.append((result.last_offset, committed))
        return Appended(
            result.base_offset, result.log_append_time_ms, result.log_start_offset, committed
        )

    def on_follower_fetch(self, fetch: FollowerFetch) -> tuple[int, int] | None:
        """See handlers.replica_port.LeaderReplica."""
        assert self.leader is not None
        heard = self.leader.on_follower_fetch(fetch, self.log, now_ms=self._monotonic_ms())
        if heard.diverging is not None:
            return heard.diverging
        if heard.has_moved:
            self._commit()
        if self._deletions:
            self._settle_deletions()
        if heard.may_join:
            self._on_insync_work(self)
        return None

    def delete_records(self, before_offset: int) -> int:
        """Returns the log start offset. Raises OffsetOutOfRange."""
        self.log.advance_log_start_offset(before_offset)
        for waiter in list(self._follower_waiters):
            waiter.on_readable(0)
        return self.log.log_start_offset

    def when_deleted(self, offset: int) -> Awaitable[None] | None:
        """See handlers.replica_port.LeaderReplica."""
        leader = self.leader
        if leader is None or leader.low_watermark(self.log.log_start_offset) >= offset:
            return None
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._deletions.append((offset, done))
        return done

    def _settle_deletions(self) -> None:
        assert self.leader is not None
        reached = self.leader.low_watermark(self.log.log_start_offset)
        waiting, self._deletions = self._deletions, []
        for offset, done in waiting:
            if done.done():
                continue
            if offset <= reached:
                done.set_result(None)
            else:
                self._deletions.append((offset, done))

    # --- following -------------------------------------------------------------------------------

    def append_as_follower(self, records: Buffer) -> None:
        """What the leader has from our end on. Raises KafkaError; see PartitionLog."""
        before = self.log.log_end_offset
        self.log.append_as_follower(records, now_ms=self._now_ms())
        if self.log.log_end_offset > before:
            self.log.health.headroom -= len(records)
            self.bytes_copied += len(records)
            self._changed.add(self)

    def follow_marks(self, high_watermark: int, log_start_offset: int) -> bool:
        """What the leader has committed, and what it still keeps.

        Returns whether the leader is to be told that our log begins later now.
        """
        log = self.log
        reached = next_high_watermark(log, high_watermark)
        if reached > log.high_watermark:
            log.high_watermark = reached
            self._changed.add(self)
            for waiter in list(self._waiters):  # consumers in this rack
                waiter.on_readable(1 << 30)
        if log_start_offset <= log.log_start_offset:
            return False
        log.advance_log_start_offset(min(log_start_offset, log.high_watermark))
        return True

    # --- reading ---------------------------------------------------------------------------------

    def in_sync_with(self, offset: int) -> list[int]:
        """See handlers.replica_port.LeaderReplica."""
        return [] if self.leader is None else self.leader.in_sync_with(offset)

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

    def park(self, waiter: FetchWaiter, *, is_follower: bool = False) -> None:
        (self._follower_waiters if is_follower else self._waiters).add(waiter)

    def unpark(self, waiter: FetchWaiter) -> None:
        self._waiters.discard(waiter)
        self._follower_waiters.discard(waiter)

    # --- committing ------------------------------------------------------------------------------

    def _advance(self, size: int = 0) -> None:
        """Count what may count; start an fsync for what may not yet."""
        leader, log = self.leader, self.log
        if leader is None:
            return
        durable = log.log_end_offset
        if durable - log.recovery_point >= log.config.flush_messages:
            durable = log.recovery_point
            self._start_flush()
        if leader.on_local_append(durable):
            self._commit(size)

    def _commit(self, size: int = 1 << 30) -> None:
        """The high watermark has moved. A fetch that was woken for too little parks again."""
        leader, log = self.leader, self.log
        assert leader is not None
        log.high_watermark = leader.high_watermark
        while self._uncommitted and self._uncommitted[0][0] < leader.high_watermark:
            _, future = self._uncommitted.popleft()
            if future.done():
                continue
            if not leader.has_enough_insync:
                future.set_exception(
                    NotEnoughReplicasAfterAppend(
                        f"{self.topic}-{self.partition}: {leader.isr_size} replicas are in sync now"
                    )
                )
                future.exception()
            else:
                future.set_result(None)
        for waiter in list(self._waiters):
            waiter.on_readable(size)
        for waiter in list(self._follower_waiters):
            waiter.on_readable(0)  # not woken for it, but told with the next answer

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
        for waiter in [*self._waiters, *self._follower_waiters]:
            waiter.on_changed()


def _found(found: TimestampOffset | None) -> FoundOffset | None:
    return None if found is None else FoundOffset(found.offset, found.timestamp, found.leader_epoch)
