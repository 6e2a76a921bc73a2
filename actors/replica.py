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
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

from ..cluster.leader_state import LeaderState
from ..handlers.context import Appended, FetchWaiter, FoundOffset, FoundSlice
from ..protocol.errors import KafkaStorageError, NotLeaderOrFollower
from ..storage.partition_log import PartitionLog
from ..storage.storage_failure import StorageFailure
from ..storage.timestamp_search import TimestampOffset

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
        on_failure: Callable[[], None],
        changed: set[Replica] | None = None,
        may_use_reserve: bool = False,
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
        self._waiters: set[FetchWaiter] = set()
        self._uncommitted: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._flushing: asyncio.Task[None] | None = None

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

    def append(self, batch: memoryview) -> Appended:
        leader = self.leader
        if leader is None:
            raise NotLeaderOrFollower(f"{self.topic}-{self.partition} is not led here")
        if self.log.health.is_short_of_space and not self._may_use_reserve:
            raise KafkaStorageError(
                f"the disk of {self.topic}-{self.partition} is nearly full; reads go on"
            )
        try:
            result = self.log.append_as_leader(
                batch, leader_epoch=leader.leader_epoch, now_ms=self._now_ms()
            )
        except StorageFailure:
            self._on_failure()
            raise
        if not result.duplicate:
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

    async def offset_for_timestamp(self, timestamp: int, *, up_to: int) -> FoundOffset | None:
        """Reads and opens one batch, so it runs in a thread."""
        found = await self._in_thread(
            partial(self.log.offset_for_timestamp, timestamp, up_to=up_to)
        )
        return _found(found)

    async def offset_of_max_timestamp(self, *, up_to: int) -> FoundOffset | None:
        return _found(await self._in_thread(partial(self.log.offset_of_max_timestamp, up_to=up_to)))

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
        try:
            await self._in_thread(work.run)
        except StorageFailure:
            self._on_failure()
            raise
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
