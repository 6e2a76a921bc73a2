"""The driver of one partition's coordinator: Futures, the event loop, reads in a thread.

Decisions and their order are those of coordinators/coordinator_context. This module carries out its
effects: after each input all of them, in order, before the next input.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from ...coordinators.coordinator_context import CoordinatorContext
from ...coordinators.coordinator_effects import (
    AppendBatch,
    AppendMarker,
    ContextEffect,
    PendingAppend,
    ReadLog,
    UnwatchHighWatermark,
    WatchHighWatermark,
)
from ...coordinators.coordinator_rules import CoordinatorRules
from ...handlers.ports.replica_port import Appended, LeaderReplica
from ...protocol.buffer import Buffer
from ...protocol.errors import CorruptMessage
from ...steps.replies import Refuse, Reply
from ...storage.log.log_damage import DamagedSegment
from ...storage.log.partition_log import LogSlice

R = TypeVar("R", bound=CoordinatorRules)
Request = Callable[..., None]
Decode = Callable[[Buffer, int], tuple[list[Any], int]]


class CoordinatorDriver(Generic[R]):
    """Driver of one context, on one event loop. A request's ticket is a Future."""

    def __init__(
        self,
        context: CoordinatorContext[R],
        replica: LeaderReplica,
        decode: Decode,
        wall_ms: Callable[[], int],
        carry_out_own: Callable[[Any], None],
    ) -> None:
        """`decode`: reads the kind's records. `carry_out_own`: for the kind's own effects."""
        self._context = context
        self._replica = replica
        self._decode = decode
        self._wall_ms = wall_ms
        self._carry_out_own = carry_out_own
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle | None = None
        self._timer_ms = 0
        self._reading: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Carry out the effects of the context's `load`."""
        self.carry_out(now_ms_of(self._loop), self._wall_ms())

    def close(self) -> None:
        """Fail the waiting requests of a context that was closed."""
        self.carry_out(now_ms_of(self._loop), self._wall_ms())
        for handle in (self._timer, self._reading):
            if handle is not None:
                handle.cancel()

    def ask(
        self, request: Callable[..., None], *values: object, **rest: Any
    ) -> asyncio.Future[Any]:
        """Submit a request to the context: `request` takes a ticket, the values and both times."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self.input(request, future, *values, **rest)
        return future

    def read(
        self, request: Callable[..., None], *values: object, **rest: Any
    ) -> asyncio.Future[Any]:
        """Like `ask`, for a request that takes no times."""
        future: asyncio.Future[Any] = self._loop.create_future()
        request(future, *values, **rest)
        self.carry_out(now_ms_of(self._loop), self._wall_ms())
        return future

    # --- inputs and effects ----------------------------------------------------------------------

    def input(self, method: Callable[..., None], *values: object, **rest: Any) -> None:
        now_ms, wall_ms = now_ms_of(self._loop), self._wall_ms()
        method(*values, **rest, now_ms=now_ms, wall_ms=wall_ms)
        self.carry_out(now_ms, wall_ms)

    def carry_out(self, now_ms: int, wall_ms: int) -> None:
        """Carry out the effects. Only an append's immediate result calls the context back."""
        effects = self._context.effects
        while effects:
            outcomes: list[Callable[..., None]] = []
            for effect in effects:
                if isinstance(effect, Reply):
                    if not effect.ticket.done():
                        effect.ticket.set_result(effect.answer)
                elif isinstance(effect, AppendBatch | AppendMarker):
                    outcome = self._append(effect)
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
            case _:
                self._carry_out_own(effect)

    def _append(self, effect: AppendBatch | AppendMarker) -> Callable[..., None] | None:
        """Append a batch; returns the input to call if the outcome is known at once, else None."""
        pending = effect.pending
        try:
            committed = self._appended(effect).committed
        except Exception as error:  # noqa: BLE001 -- the context decides what it means
            return partial(self._context.on_append_failed, pending, error)
        if committed is None:
            return partial(self._context.on_committed, pending)
        asyncio.ensure_future(committed).add_done_callback(partial(self._on_commit, pending))
        return None

    def _appended(self, effect: AppendBatch | AppendMarker) -> Appended:
        if isinstance(effect, AppendMarker):
            marker = effect.marker
            return self._replica.append_marker(
                marker.producer_id,
                marker.producer_epoch,
                is_commit=marker.is_commit,
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
        producer = effect.pending.append.producer
        guard = None if producer is None else producer.guard
        return self._replica.append(memoryview(effect.batch), guard=guard)

    def _on_commit(self, pending: PendingAppend, committed: asyncio.Future[None]) -> None:
        if committed.cancelled():
            return  # the node is shutting down
        error = committed.exception()
        if error is None:
            self.input(self._context.on_committed, pending)
        else:
            self.input(self._context.on_commit_failed, pending, error)

    async def _read(self, read: ReadLog) -> None:
        try:
            try:
                piece = self._replica.log.read(
                    read.offset, max_bytes=read.max_bytes, up_to=read.up_to, min_one_batch=True
                )
            except DamagedSegment as error:
                has_others = self._replica.log.damage.has_other_replicas
                self.input(
                    partial(self._context.on_log_damaged, has_other_replicas=has_others),
                    read,
                    error,
                    error.next_offset,
                )
                return
            try:
                entries, next_offset = await asyncio.to_thread(
                    read_entries, self._decode, piece, read.offset
                )
            except CorruptMessage:
                self._have_examined(piece)
                raise
        except Exception as error:  # noqa: BLE001 -- the context decides what it means
            self.input(self._context.on_log_read_failed, read, error)
        else:
            self.input(self._context.on_log_read, read, entries, next_offset)

    def _have_examined(self, piece: LogSlice) -> None:
        """Have the segment examined: a read checks only the first batch of its slice."""
        log = self._replica.log
        for segment in log.segments:
            if piece.file is not None and segment.files.opened is piece.file:
                log.damage.suspect(segment, "its coordinator cannot read one of its batches")

    def on_readable(self, size: int) -> None:
        self.on_changed()

    def on_changed(self) -> None:
        """Handle a change as a FetchWaiter: later, since the replica is in the middle of a step."""
        self._loop.call_soon(self.input, self._context.on_high_watermark)

    # --- time ------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        """Set the timer, unless it fires early enough already: too early costs little."""
        deadline_ms = self._context.next_deadline_ms
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self._loop.call_at(deadline_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.input(self._context.on_tick)


def now_ms_of(loop: asyncio.AbstractEventLoop) -> int:
    """Monotonic time of the loop, in milliseconds."""
    return int(loop.time() * 1000)


def read_entries(decode: Decode, piece: LogSlice, offset: int) -> tuple[list[Any], int]:
    """Decode the whole batches of `piece` from `offset` on; returns entries and next offset.

    Raises:
        CorruptMessage: the log is damaged, or not one of this kind.
    """
    if piece.file is None:
        return [], offset
    return decode(piece.file.read_at(piece.size, piece.position), offset)
