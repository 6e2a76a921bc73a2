"""One partition of `__consumer_offsets` at work: the waiting around groups/coordinator.

    loading   reads the log from start to end (in a thread, a piece at a time) and applies it
    active    requests in, effects out: append, then wait for the commit, then apply, then reply
    closed    the partition is led elsewhere; whoever still waits is told NOT_COORDINATOR

Commits are awaited in log order, by one task, because records are applied in that order. A refused
append changed nothing and is reported to the rules. A commit that fails leaves its record in doubt:
the whole shard forgets what it knows and reads the log again, so that memory is never ahead of or
behind the log.

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
from ..groups.group_records import CoordinatorRecord, decode_group_record, encode_group_record
from ..groups.join import Join
from ..handlers.context import LeaderReplica
from ..protocol.errors import KafkaError, NotCoordinator, OffsetOutOfRange
from ..protocol.fetch_response import FileSlice
from ..protocol.messages.delete_groups import DeleteGroupsResponse
from ..protocol.messages.describe_groups import DescribedGroup
from ..protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ..protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ..protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ..protocol.messages.list_groups import ListedGroup
from ..protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ..protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from ..protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ..protocol.record_batch import LOG_OVERHEAD, read_header, read_size
from ..protocol.records import encode_records, iterate_records
from .deadline_timers import DeadlineTimers

logger = logging.getLogger("bradbury.groups")

RETRY_SECONDS = 1.0


class ShardState(Enum):
    LOADING = auto()
    ACTIVE = auto()
    CLOSED = auto()


class GroupShard:
    """Implements handlers.group_port.GroupShard while it is ACTIVE."""

    def __init__(
        self,
        partition: int,
        replica: LeaderReplica,
        config: GroupCoordinatorConfig,
        now_ms: Callable[[], int],
    ) -> None:
        self.partition = partition
        self.state = ShardState.LOADING
        self._replica = replica
        self._config = config
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._request_ids = itertools.count(1)
        self._loading: asyncio.Task[None] | None = None
        self._committing: asyncio.Task[None] | None = None
        self._begin()

    def _begin(self) -> None:
        self.state = ShardState.LOADING
        self._coordinator = GroupCoordinator(self._config)
        self._timers: DeadlineTimers[TimerKey] = DeadlineTimers(self._on_due)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._uncommitted: deque[tuple[Append, Awaitable[None] | None]] = deque()
        self._loading = self._loop.create_task(self._load())

    def close(self) -> None:
        """Nobody is coordinated here any more."""
        self.state = ShardState.CLOSED
        for task in (self._loading, self._committing):
            if task is not None:
                task.cancel()
        self._abandon()

    def _abandon(self) -> None:
        self._timers.close()
        self._uncommitted.clear()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(NotCoordinator("the group's coordinator has moved"))
                future.exception()  # retrieved, in case the client is gone

    # --- loading ---------------------------------------------------------------------------------

    async def _load(self) -> None:
        while True:
            try:
                await self._replay()
                break
            except (KafkaError, OSError):
                logger.exception("__consumer_offsets-%d cannot be read", self.partition)
                self._coordinator = GroupCoordinator(self._config)
                await asyncio.sleep(RETRY_SECONDS)
        self._loading = None
        self.state = ShardState.ACTIVE
        count = len(self._coordinator.groups)
        level = logging.INFO if count else logging.DEBUG
        logger.log(level, "__consumer_offsets-%d is loaded: %d groups", self.partition, count)
        self._perform(self._coordinator.on_loaded(now_ms=self._now_ms()))

    async def _replay(self) -> None:
        """Everything in the log, also what is not committed yet: this leader's log decides."""
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
            records, offset = await asyncio.to_thread(read_records, piece, offset)
            for record in records:
                self._coordinator.apply(record)

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

    def fetch_offsets(self, asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        return self._coordinator.fetch_offsets(asked)

    def describe(self, group_id: str) -> DescribedGroup | None:
        return self._coordinator.describe(group_id)

    def member_counts(self) -> list[int]:
        """Of each group."""
        return [len(group.members) for group in self._coordinator.groups.values()]

    def list_groups(self) -> list[ListedGroup]:
        return self._coordinator.list_groups()

    def _ask(self, event: Callable[[int], list[Effect]]) -> asyncio.Future[Any]:
        assert self.state is ShardState.ACTIVE
        request_id = next(self._request_ids)
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting[request_id] = future
        self._perform(event(request_id))
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
                case Report(group_id, text):
                    logger.info("group %s %s", group_id, text)

    def _append(self, append: Append) -> None:
        now_ms = self._now_ms()
        records = [(now_ms, *encode_group_record(record), ()) for record in append.records]
        try:
            appended = self._replica.append(memoryview(encode_records(records)))
        except KafkaError as error:
            logger.warning("__consumer_offsets-%d cannot be written: %s", self.partition, error)
            self._perform(self._coordinator.on_failed(append, error.code, now_ms=now_ms))
            return
        if appended.committed is None and not self._uncommitted:
            self._perform(self._coordinator.on_committed(append, now_ms=now_ms))
            return
        self._uncommitted.append((append, appended.committed))
        if self._committing is None:
            self._committing = self._loop.create_task(self._commit())

    async def _commit(self) -> None:
        while self._uncommitted:
            append, committed = self._uncommitted[0]
            if committed is not None:
                try:
                    await committed
                except KafkaError as error:
                    logger.warning(
                        "__consumer_offsets-%d is read again: a record of it is in doubt: %s",
                        self.partition,
                        error,
                    )
                    self._committing = None
                    self._abandon()
                    self._begin()
                    return
            self._uncommitted.popleft()
            self._perform(self._coordinator.on_committed(append, now_ms=self._now_ms()))
        self._committing = None


def read_records(piece: FileSlice, offset: int) -> tuple[list[CoordinatorRecord], int]:
    """The records of the whole batches in `piece` from `offset` on, and the offset after them.

    Raises:
        CorruptMessage: the log is damaged, or not one of groups.
    """
    if piece.file is None:
        return [], offset
    data = memoryview(os.pread(piece.file.fileno(), piece.size, piece.position))
    records: list[CoordinatorRecord] = []
    position = 0
    while position + LOG_OVERHEAD <= len(data):
        _, size = read_size(data, position)
        batch = data[position : position + size]
        if len(batch) < size:
            break
        position += size
        header = read_header(batch)
        if not header.is_control:
            for found in iterate_records(batch):
                record = decode_group_record(found.key, found.value)
                if found.offset >= offset and record is not None:
                    records.append(record)
        offset = max(offset, header.next_offset)
    return records, offset
