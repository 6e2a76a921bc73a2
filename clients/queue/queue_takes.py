"""Takes from a queue: who waits for items, and who gets them.

Invariants:
    Processes get items in the order in which they asked, each about as many when several wait.
    EMPTY is sent only after the log has been read to its end, and after other processes with
    prefetched items were asked to return them.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from .frames.queue_frames import TAKE_BODY, FrameKind, ItemPiece, pack_items
from .queue_processes import ConnectedProcess, QueueProcesses
from .queue_state import MAX_BATCH_BYTES, QueueState

TOO_LARGE: Final = f"the items have more than {MAX_BATCH_BYTES} bytes: take fewer at once"
LOAD_S: Final = 0.01
"""Seconds after which a take of many items looks whether they are in memory."""


@dataclass(eq=False, slots=True)
class _Taker:
    process: ConnectedProcess
    number: int
    least: int
    most: int
    exact: bool
    hand_out: bool
    timer: asyncio.TimerHandle | None = None


class QueueTakes:
    """Takes of all processes. Nothing is given before `opened` is set.

    state: returns the current state of the items. catch_up: reads the log to its current end.
    """

    def __init__(
        self,
        processes: QueueProcesses,
        *,
        state: Callable[[], QueueState],
        catch_up: Callable[[], Awaitable[None]],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self.opened = asyncio.Event()
        self._processes = processes
        self._state = state
        self._catch_up = catch_up
        self._spawn = spawn
        self._waiting: deque[_Taker] = deque()

    def on_take(self, process: ConnectedProcess, number: int, body: bytes) -> None:
        least, most, timeout_ms, exact, hand_out = TAKE_BODY.unpack(body)
        taker = _Taker(process, number, least, most, bool(exact), bool(hand_out))
        if not self._waiting and self._give(taker, most):
            return
        if timeout_ms == 0:
            self._spawn(self._take_now(taker))
            return
        if timeout_ms > 0:
            loop = asyncio.get_running_loop()
            taker.timer = loop.call_later(timeout_ms / 1000, self._timed_out, taker)
        self._waiting.append(taker)
        self._spawn(self._recall_for(process, least))

    def serve(self) -> None:
        """Send ready items to waiting requests, in their order, about equally many to each."""
        state = self._state()
        while self._waiting and state.ready:
            taker = self._waiting[0]
            share = -(-state.ready // len(self._waiting))
            if not self._give(taker, min(taker.most, share)):
                return
            self._waiting.popleft()
            _stop(taker)

    def on_gone(self, process: ConnectedProcess) -> None:
        self._waiting = deque(each for each in self._waiting if each.process is not process)

    def cancel(self, process: ConnectedProcess, number: int) -> None:
        for taker in list(self._waiting):
            if taker.process is process and taker.number == number:
                self._waiting.remove(taker)
                _stop(taker)

    def _give(self, taker: _Taker, most: int) -> bool:
        if not self.opened.is_set():
            return False
        entries = self._state().take(
            taker.process.owner,
            taker.least,
            max(taker.least, most),
            time.monotonic(),
            exact=taker.exact,
            hand_out=taker.hand_out,
        )
        if not entries:
            return False
        pieces = [
            ItemPiece(e.offset, e.first, e.last, e.delivery_count, e.is_pickled, e.value)
            for e in entries
        ]
        taker.process.send(FrameKind.ITEMS, taker.number, *pack_items(pieces))
        return True

    async def _take_now(self, taker: _Taker) -> None:
        await self.opened.wait()
        await self._catch_up()
        if not self._give(taker, taker.most):
            await self._recall_for(taker.process, taker.least)
            is_too_large = await self._load(taker.least)
            if self._give(taker, taker.most):
                return
            if is_too_large:
                taker.process.send(FrameKind.ERROR, taker.number, TOO_LARGE.encode())
            else:
                taker.process.send(FrameKind.EMPTY, taker.number)

    async def _load(self, items: int) -> bool:
        """Have so many in memory, if there are; return whether they are too large together."""
        state = self._state()
        while state.ready < items <= state.size:
            state.wanted = items
            if state.backlog_start is None:  # delayed ones are missing, or all are too large
                break
            await asyncio.sleep(LOAD_S)
            state = self._state()
        state.wanted = 0
        return state.ready < items <= state.size and state.ready_bytes > MAX_BATCH_BYTES

    def _timed_out(self, taker: _Taker) -> None:
        if taker in self._waiting:
            self._waiting.remove(taker)
            taker.timer = None
            self._spawn(self._take_now(taker))

    async def _recall_for(self, process: ConnectedProcess, least: int) -> None:
        """Recall items that other processes hold ahead, if fewer than `least` are ready."""
        if self._state().ready < least:
            others = [each for each in self._processes.holders() if each is not process]
            await self._processes.ask(FrameKind.RECALL, others)


def _stop(taker: _Taker) -> None:
    if taker.timer is not None:
        taker.timer.cancel()
