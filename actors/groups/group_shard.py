"""The driver of one partition of `__consumer_offsets`: Futures, the event loop, reads in a thread.

What is decided, and in which order, is groups/coordinator/coordinator_context. Here its effects
are carried out: after each input all of them, in their order, before the next input.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...groups.coordinator.coordinator import GroupCoordinator, describe_group, list_groups
from ...groups.coordinator.coordinator_context import CoordinatorContext
from ...groups.coordinator.coordinator_effects import (
    AppendBatch,
    ContextEffect,
    PendingAppend,
    ReadLog,
    UnwatchHighWatermark,
    WatchHighWatermark,
)
from ...groups.coordinator.coordinator_requests import CoordinatorRequests
from ...groups.group_effects import Report
from ...groups.group_records import LogEntry, entries_in
from ...groups.offsets.committed_offsets import IsKnown
from ...handlers.ports.replica_port import LeaderReplica
from ...protocol.errors import KafkaError
from ...protocol.messages.delete_groups import DeleteGroupsResponse
from ...protocol.messages.describe_groups import DescribedGroup
from ...protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ...protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ...protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ...protocol.messages.list_groups import ListedGroup
from ...protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ...protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ...protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from ...protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ...protocol.records.fetch_response import FileSlice
from ...steps.replies import Refuse, Reply
from ..loop.line_limit import LineLimit


class GroupShard:
    """Implements handlers.group_port.GroupShard while its context is ACTIVE."""

    def __init__(
        self,
        context: CoordinatorContext,
        replica: LeaderReplica,
        wall_ms: Callable[[], int],
        lines: LineLimit,
    ) -> None:
        """`lines`: what the groups of the node say in the log."""
        self._context = context
        self._replica = replica
        self._wall_ms = wall_ms
        self._lines = lines
        self._requests = CoordinatorRequests(context)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle | None = None
        self._timer_ms = 0
        self._reading: asyncio.Task[None] | None = None
        self._carry_out(now_ms_of(self._loop), wall_ms())

    def close(self) -> None:
        """The context is closed: fail the requests that wait."""
        self._carry_out(now_ms_of(self._loop), self._wall_ms())
        for handle in (self._timer, self._reading):
            if handle is not None:
                handle.cancel()

    # --- requests --------------------------------------------------------------------------------

    def join(
        self, request: JoinGroupRequest, *, api_version: int, client_id: str, client_host: str
    ) -> asyncio.Future[JoinGroupResponse]:
        return self._ask(
            self._requests.join,
            request,
            api_version=api_version,
            client_id=client_id,
            client_host=client_host,
            unique=str(uuid.uuid4()),
        )

    def sync(self, request: SyncGroupRequest) -> asyncio.Future[SyncGroupResponse]:
        return self._ask(self._requests.sync, request)

    def heartbeat(self, request: HeartbeatRequest) -> asyncio.Future[HeartbeatResponse]:
        return self._ask(self._requests.heartbeat, request)

    def leave(self, request: LeaveGroupRequest) -> asyncio.Future[LeaveGroupResponse]:
        return self._ask(self._requests.leave, request)

    def commit_offsets(
        self, request: OffsetCommitRequest, *, api_version: int, is_known: IsKnown
    ) -> asyncio.Future[OffsetCommitResponse]:
        return self._ask(
            self._requests.commit_offsets, request, api_version=api_version, is_known=is_known
        )

    def delete(self, group_ids: Sequence[str]) -> asyncio.Future[DeleteGroupsResponse]:
        return self._ask(self._requests.delete_groups, group_ids)

    def delete_offsets(
        self, request: OffsetDeleteRequest, *, is_known: IsKnown
    ) -> asyncio.Future[OffsetDeleteResponse]:
        return self._ask(self._requests.delete_offsets, request, is_known=is_known)

    def fetch_offsets(
        self, asked: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> asyncio.Future[OffsetFetchResponseGroup]:
        future: asyncio.Future[OffsetFetchResponseGroup] = self._loop.create_future()
        self._requests.fetch_offsets(future, asked, require_stable=require_stable)
        self._carry_out(now_ms_of(self._loop), self._wall_ms())
        return future

    def _ask(self, request: Callable[..., None], asked: object, **rest: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        self._input(request, future, asked, **rest)
        return future

    def describe(self, group_id: str) -> DescribedGroup | None:
        return describe_group(self._context.coordinator.groups, group_id)

    def list_groups(self) -> list[ListedGroup]:
        return list_groups(self._context.coordinator.groups)

    @property
    def coordinator(self) -> GroupCoordinator:
        """The coordinator itself, for its metrics."""
        return self._context.coordinator

    def on_topics_deleted(self, topics: set[str]) -> None:
        self._input(self._context.on_topics_deleted, topics)

    # --- inputs and effects ----------------------------------------------------------------------

    def _input(self, method: Callable[..., None], *values: object, **rest: Any) -> None:
        now_ms, wall_ms = now_ms_of(self._loop), self._wall_ms()
        method(*values, **rest, now_ms=now_ms, wall_ms=wall_ms)
        self._carry_out(now_ms, wall_ms)

    def _carry_out(self, now_ms: int, wall_ms: int) -> None:
        """Nothing that is done here calls back, but what an append leads to at once."""
        effects = self._context.effects
        while effects:
            outcomes: list[Callable[..., None]] = []
            for effect in effects:
                if isinstance(effect, Reply):
                    if not effect.ticket.done():
                        effect.ticket.set_result(effect.answer)
                elif isinstance(effect, AppendBatch):
                    outcome = self._append(*effect)
                    if outcome is not None:
                        outcomes.append(outcome)
                else:
                    self._begin(effect)
            effects.clear()
            for outcome in outcomes:
                outcome(now_ms=now_ms, wall_ms=wall_ms)
        self._set_timer()

    def _begin(self, effect: ContextEffect) -> None:
        match effect:
            case Report(_, text):
                self._lines.info("%.1000s", _printable(text))
            case Refuse(future, error):
                if not future.done():
                    future.set_exception(error)
                    future.exception()  # retrieved, in case the client is gone
            case ReadLog():
                self._reading = self._loop.create_task(self._read(effect))
            case WatchHighWatermark():
                self._replica.park(self)
            case UnwatchHighWatermark():
                self._replica.unpark(self)

    def _append(self, pending: PendingAppend, batch: bytearray) -> Callable[..., None] | None:
        """Returns the input that it leads to at once."""
        try:
            committed = self._replica.append(memoryview(batch)).committed
        except KafkaError as error:
            return partial(self._context.on_append_refused, pending, error)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the records are in doubt
            return partial(self._context.on_commit_failed, pending, error)
        if committed is None:
            return partial(self._context.on_committed, pending)
        asyncio.ensure_future(committed).add_done_callback(partial(self._on_commit, pending))
        return None

    def _on_commit(self, pending: PendingAppend, committed: asyncio.Future[None]) -> None:
        if committed.cancelled():
            return  # the node ends
        error = committed.exception()
        if error is None:
            self._input(self._context.on_committed, pending)
        else:
            self._input(self._context.on_commit_failed, pending, error)

    async def _read(self, read: ReadLog) -> None:
        try:
            piece = self._replica.log.read(
                read.offset, max_bytes=read.max_bytes, up_to=read.up_to, min_one_batch=True
            )
            entries, next_offset = await asyncio.to_thread(read_entries, piece, read.offset)
        except Exception as error:  # noqa: BLE001 -- whatever it is, nothing was read
            self._input(self._context.on_log_read_failed, read, error)
        else:
            self._input(self._context.on_log_read, read, entries, next_offset)

    def on_readable(self, size: int) -> None:
        self.on_changed()

    def on_changed(self) -> None:
        """As a FetchWaiter: the replica is in the middle of something."""
        self._loop.call_soon(self._input, self._context.on_high_watermark)

    # --- time ------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        """A timer that fires too early costs less than one that is set at every request."""
        deadline_ms = self._context.next_deadline_ms
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self._loop.call_at(deadline_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._input(self._context.on_tick)


def now_ms_of(loop: asyncio.AbstractEventLoop) -> int:
    """Monotonic."""
    return int(loop.time() * 1000)


def _printable(text: str) -> str:
    """Without line ends and the like: what clients call themselves is in it."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def read_entries(piece: FileSlice, offset: int) -> tuple[list[LogEntry], int]:
    """What is in the whole batches of `piece` from `offset` on, and the offset after them.

    Raises:
        CorruptMessage: the log is damaged, or not one of groups.
    """
    if piece.file is None:
        return [], offset
    return entries_in(os.pread(piece.file.fileno(), piece.size, piece.position), offset)
