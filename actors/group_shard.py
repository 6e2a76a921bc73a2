"""One partition of `__consumer_offsets` at work: the waiting around groups/coordinator.

    loading   reads the log from start to end (in a thread, a piece at a time) and applies it
    active    requests in, effects out: append, then wait for the commit, then apply, then reply
    closed    the partition is led elsewhere; whoever still waits is told NOT_COORDINATOR

Commits are awaited in log order, by one task, because records are applied in that order. A refused
append changed nothing and is reported to the rules. A commit that takes longer than
offsets.commit.timeout.ms is awaited further, but not by its client. A commit that fails leaves its
record in doubt: the whole shard forgets what it knows and reads the log again, so that memory is
never ahead of or behind the log. An OffsetFetch waits for the commits of its group that came before
it, so a client that sends both at once reads what it wrote.

No rule of groups is decided here. One event loop: between two awaits nothing else runs.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from ..groups.coordinator import GroupCoordinator
from ..groups.effects import (
    Append,
    CancelTimer,
    Effect,
    Reply,
    Report,
    StartTimer,
    TimerKey,
)
from ..groups.group_config import GroupCoordinatorConfig
from ..groups.group_counters import GroupCounters, MemberMemory
from ..groups.group_records import LogEntry, encode_group_record, entries_in
from ..groups.join import Join
from ..handlers.replica_port import LeaderReplica
from ..protocol.errors import (
    CoordinatorNotAvailable,
    KafkaError,
    NotCoordinator,
    OffsetOutOfRange,
)
from ..protocol.fetch_response import FileSlice
from ..protocol.messages.delete_groups import DeleteGroupsResponse
from ..protocol.messages.describe_groups import DescribedGroup
from ..protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ..protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ..protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ..protocol.messages.list_groups import ListedGroup
from ..protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ..protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ..protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from ..protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ..protocol.records import encode_records
from .deadline_timers import DeadlineTimers
from .line_limit import LineLimit

logger = logging.getLogger("bradbury.groups")

RETRY_SECONDS = 1.0
ENTRIES_AT_ONCE = 500
"""Applied while loading before the others have a turn: some 2 ms."""


class ShardState(Enum):
    LOADING = auto()
    ACTIVE = auto()
    CLOSED = auto()


@dataclass(slots=True)
class _Uncommitted:
    append: Append
    committed: Awaitable[None] | None
    late_at: float
    """The loop's time when nobody waits for it any more."""
    is_late: bool = False
    then: list[asyncio.Future[None]] = field(default_factory=list)
    """Who reads what is committed so far."""


class _CommitWaiter:
    """Parks on a replica until what is below an offset is committed."""

    def __init__(self, replica: LeaderReplica, offset: int) -> None:
        self._replica = replica
        self._offset = offset
        self.committed = asyncio.get_running_loop().create_future()

    def on_readable(self, size: int) -> None:
        self.on_changed()

    def on_changed(self) -> None:
        if self._replica.high_watermark >= self._offset and not self.committed.done():
            self.committed.set_result(None)


class GroupShard:
    """Implements handlers.group_port.GroupShard while it is ACTIVE."""

    def __init__(
        self,
        partition: int,
        leader_epoch: int,
        replica: LeaderReplica,
        config: GroupCoordinatorConfig,
        now_ms: Callable[[], int],
        memory: MemberMemory,
        counters: GroupCounters,
        lines: LineLimit,
    ) -> None:
        """`memory`, `counters` and `lines` (what groups say in the log) are the node's."""
        self.partition = partition
        self._leader_epoch = leader_epoch
        self.state = ShardState.LOADING
        self._replica = replica
        self._config = config
        self._now_ms = now_ms
        self._memory = memory
        self._counters = counters
        self._lines = lines
        self._loop = asyncio.get_running_loop()
        self._request_ids = itertools.count(1)
        self._loading: asyncio.Task[None] | None = None
        self._committing: asyncio.Task[None] | None = None
        self._late: asyncio.Handle | None = None
        self._deleted_topics: set[str] = set()
        """While loading."""
        self._begin()

    def _begin(self) -> None:
        self.state = ShardState.LOADING
        self._coordinator = self._new_coordinator()
        self._timers: DeadlineTimers[TimerKey] = DeadlineTimers(self._on_due)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._uncommitted: deque[_Uncommitted] = deque()
        self._loading = self._loop.create_task(self._load())

    def _new_coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(self._config, memory=self._memory, counters=self._counters)

    @property
    def _level(self) -> int:
        """Of lines about loading: most partitions of a young cluster never had a record."""
        return logging.INFO if self._replica.log_end_offset else logging.DEBUG

    def close(self) -> None:
        """Nobody is coordinated here any more."""
        logger.log(
            self._level,
            "Finished unloading group metadata for __consumer_offsets-%d with epoch %d.",
            self.partition,
            self._leader_epoch,
        )
        self.state = ShardState.CLOSED
        for task in (self._loading, self._committing):
            if task is not None:
                task.cancel()
        self._abandon()

    def _abandon(self) -> None:
        self._timers.close()
        self._coordinator.close()
        if self._late is not None:
            self._late.cancel()
            self._late = None
        waiting, self._waiting = list(self._waiting.values()), {}
        for uncommitted in self._uncommitted:
            waiting += uncommitted.then
        self._uncommitted.clear()
        for future in waiting:
            _refuse(future, NotCoordinator("the group's coordinator has moved"))

    # --- loading ---------------------------------------------------------------------------------

    async def _load(self) -> None:
        began = self._loop.time()
        while True:
            try:
                await self._replay()
                break
            except Exception:
                # Whatever it is: nobody is coordinated here until it can be read.
                logger.exception("__consumer_offsets-%d cannot be read", self.partition)
                self._coordinator.close()
                self._coordinator = self._new_coordinator()
                await asyncio.sleep(RETRY_SECONDS)
        self._loading = None
        self.state = ShardState.ACTIVE
        logger.log(
            self._level,
            "Finished loading offsets and group metadata from __consumer_offsets-%d in %d "
            "milliseconds for epoch %d: %d groups, %d offsets.",
            self.partition,
            round((self._loop.time() - began) * 1000),
            self._leader_epoch,
            len(self._coordinator.groups),
            self._coordinator.offset_count,
        )
        self._perform(self._coordinator.on_loaded(now_ms=self._now_ms()))
        deleted, self._deleted_topics = self._deleted_topics, set()
        self.on_topics_deleted(deleted)

    async def _replay(self) -> None:
        """Everything in the log, also what is not committed yet: this leader's log decides.

        Then it waits for that to be committed, because from now on it is shown.
        """
        offset = self._replica.log_start_offset
        while offset < self._replica.log_end_offset:
            try:
                piece = self._replica.read(
                    offset,
                    max_bytes=self._config.offsets_load_buffer_size,
                    up_to=self._replica.log_end_offset,
                    min_one_batch=True,
                )
            except OffsetOutOfRange:
                if self._replica.log_start_offset <= offset:
                    raise
                offset = self._replica.log_start_offset
                continue
            entries, offset = await asyncio.to_thread(read_entries, piece, offset)
            for number, entry in enumerate(entries, 1):
                self._coordinator.apply(entry)
                if number % ENTRIES_AT_ONCE == 0:
                    await asyncio.sleep(0)
        if self._replica.high_watermark < offset:
            waiter = _CommitWaiter(self._replica, offset)
            self._replica.park(waiter)
            try:
                await waiter.committed
            finally:
                self._replica.unpark(waiter)

    # --- requests --------------------------------------------------------------------------------

    def join(
        self, request: JoinGroupRequest, *, api_version: int, client_id: str, client_host: str
    ) -> asyncio.Future[JoinGroupResponse]:
        def ask(request_id: int) -> list[Effect]:
            join = Join.of(
                request_id,
                request,
                api_version=api_version,
                client_id=client_id,
                client_host=client_host,
                unique=str(uuid.uuid4()),
            )
            return self._coordinator.on_join(request.group_id, join, now_ms=self._now_ms())

        return self._ask(ask)

    def sync(self, request: SyncGroupRequest) -> asyncio.Future[SyncGroupResponse]:
        return self._ask(lambda request_id: self._coordinator.on_sync(request_id, request))

    def heartbeat(self, request: HeartbeatRequest) -> asyncio.Future[HeartbeatResponse]:
        return self._ask(lambda request_id: self._coordinator.on_heartbeat(request_id, request))

    def leave(self, request: LeaveGroupRequest) -> asyncio.Future[LeaveGroupResponse]:
        return self._ask(
            lambda request_id: self._coordinator.on_leave(
                request_id, request, now_ms=self._now_ms()
            )
        )

    def commit_offsets(
        self,
        request: OffsetCommitRequest,
        *,
        api_version: int,
        is_known: Callable[[str, int], bool],
    ) -> asyncio.Future[OffsetCommitResponse]:
        return self._ask(
            lambda request_id: self._coordinator.on_offset_commit(
                request_id,
                request,
                api_version=api_version,
                is_known=is_known,
                now_ms=self._now_ms(),
            )
        )

    def delete(self, group_ids: Sequence[str]) -> asyncio.Future[DeleteGroupsResponse]:
        return self._ask(
            lambda request_id: self._coordinator.on_delete(
                request_id, group_ids, now_ms=self._now_ms()
            )
        )

    def delete_offsets(
        self, request: OffsetDeleteRequest, *, is_known: Callable[[str, int], bool]
    ) -> asyncio.Future[OffsetDeleteResponse]:
        return self._ask(
            lambda request_id: self._coordinator.on_offset_delete(
                request_id, request, is_known=is_known
            )
        )

    async def fetch_offsets(
        self, asked: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        coordinator = self._coordinator
        if coordinator.is_committing(asked.group_id):
            before: asyncio.Future[None] = self._loop.create_future()
            self._uncommitted[-1].then.append(before)
            await before
        return coordinator.fetch_offsets(asked, require_stable=require_stable)

    def on_topics_deleted(self, topics: set[str]) -> None:
        """Topics are gone, perhaps replaced by new ones of the same names."""
        if self.state is ShardState.LOADING:
            self._deleted_topics |= topics
        elif topics and self.state is ShardState.ACTIVE:
            self._perform(self._coordinator.on_topics_deleted(topics))

    def describe(self, group_id: str) -> DescribedGroup | None:
        return self._coordinator.describe(group_id)

    @property
    def coordinator(self) -> GroupCoordinator:
        """For its numbers."""
        return self._coordinator

    def list_groups(self) -> list[ListedGroup]:
        return self._coordinator.list_groups()

    def _ask(self, event: Callable[[int], list[Effect]]) -> asyncio.Future[Any]:
        assert self.state is ShardState.ACTIVE
        request_id = next(self._request_ids)
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting[request_id] = future
        try:
            self._perform(event(request_id))
        except BaseException:
            self._waiting.pop(request_id, None)
            raise
        return future

    def _on_due(self, key: TimerKey) -> None:
        self._perform(self._coordinator.on_timer(key, now_ms=self._now_ms()))

    # --- effects ---------------------------------------------------------------------------------

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply(request_id, response):
                    future = self._waiting.pop(request_id, None)
                    if future is not None and not future.done():
                        future.set_result(response)
                case StartTimer(key, after_ms):
                    self._timers.start(key, after_ms)
                case CancelTimer(key):
                    self._timers.cancel(key)
                case Append():
                    self._append(effect)
                case Report(_, text):
                    self._lines.info("%.1000s", _printable(text))

    def _append(self, append: Append) -> None:
        now_ms = self._now_ms()
        records = [(now_ms, *encode_group_record(record), ()) for record in append.records]
        batch = encode_records(records, codec=self._config.offsets_topic_compression_codec)
        try:
            appended = self._replica.append(memoryview(batch))
        except KafkaError as error:
            logger.warning("__consumer_offsets-%d cannot be written: %s", self.partition, error)
            self._perform(self._coordinator.on_failed(append, error.code, now_ms=now_ms))
            return
        if appended.committed is None and not self._uncommitted:
            self._perform(self._coordinator.on_committed(append, now_ms=now_ms))
            return
        late_at = self._loop.time() + self._config.offsets_commit_timeout_ms / 1000
        self._uncommitted.append(_Uncommitted(append, appended.committed, late_at))
        if self._late is None:
            self._late = self._loop.call_at(late_at, self._on_late)
        if self._committing is None:
            self._committing = self._loop.create_task(self._commit())

    async def _commit(self) -> None:
        try:
            await self._commit_all()
        except KafkaError as error:
            logger.warning(
                "__consumer_offsets-%d is read again: a record of it is in doubt: %s",
                self.partition,
                error,
            )
        except Exception:
            logger.exception("__consumer_offsets-%d is read again", self.partition)
        else:
            self._committing = None
            return
        self._committing = None
        self._abandon()
        self._begin()

    async def _commit_all(self) -> None:
        while self._uncommitted:
            first = self._uncommitted[0]
            if first.committed is not None:
                await first.committed
            self._uncommitted.popleft()
            self._perform(self._coordinator.on_committed(first.append, now_ms=self._now_ms()))
            for future in first.then:
                if not future.done():
                    future.set_result(None)

    def _on_late(self) -> None:
        """One timer for all: it is for the oldest that is not late, or goes with the last one."""
        self._late = None
        now = self._loop.time()
        for uncommitted in list(self._uncommitted):
            if uncommitted.is_late:
                continue
            if uncommitted.late_at > now:
                self._late = self._loop.call_at(uncommitted.late_at, self._on_late)
                return
            uncommitted.is_late = True
            effects, uncommitted.append = self._coordinator.on_late(
                uncommitted.append, now_ms=self._now_ms()
            )
            self._perform(effects)
            for future in uncommitted.then:
                _refuse(future, CoordinatorNotAvailable("commits take longer than they may"))


def _printable(text: str) -> str:
    """Without line ends and the like: what clients call themselves is in it."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def _refuse(future: asyncio.Future[Any], error: KafkaError) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # retrieved, in case the client is gone


def read_entries(piece: FileSlice, offset: int) -> tuple[list[LogEntry], int]:
    """What is in the whole batches of `piece` from `offset` on, and the offset after them.

    Raises:
        CorruptMessage: the log is damaged, or not one of groups.
    """
    if piece.file is None:
        return [], offset
    return entries_in(os.pread(piece.file.fileno(), piece.size, piece.position), offset)
