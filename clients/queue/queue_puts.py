"""Puts into a queue that has a maxsize: they go through its actor, which knows when there is room.

Invariants:
    Items on their way to the log, or acknowledged and not read from it yet, count like items in the
    queue, so it never has more than `maxsize`.
    Processes that wait get room in the order in which they asked.
    FULL is sent only after the processes with prefetched items have reported which they have used.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from ...protocol.errors import ConnectionFailed, KafkaError
from .frames.item_codec import MAGIC
from .frames.queue_frames import PUT_BODY, VALUE, FrameKind
from .queue_log import QueueLog
from .queue_processes import ConnectedProcess, QueueProcesses

_PUT_KEY: Final = struct.Struct(">3sI")


@dataclass(eq=False, slots=True)
class _Putter:
    process: ConnectedProcess
    number: int
    count: int
    value: bytes
    timer: asyncio.TimerHandle | None = None


class QueuePuts:
    """Puts of all processes. `size`: items in the queue; `next_offset`: the first unread one's."""

    def __init__(
        self,
        log: QueueLog,
        processes: QueueProcesses,
        maxsize: int,
        *,
        size: Callable[[], int],
        next_offset: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self.maxsize = maxsize
        self._log = log
        self._processes = processes
        self._size = size
        self._next_offset = next_offset
        self._spawn = spawn
        self._waiting: deque[_Putter] = deque()
        self._putting = 0  # items on their way to the log
        self._put_offsets: dict[int, int] = {}  # acknowledged, and not read yet

    def on_put(self, process: ConnectedProcess, number: int, body: bytes) -> None:
        timeout_ms, count = PUT_BODY.unpack_from(body)
        putter = _Putter(process, number, count, body[PUT_BODY.size :])
        if not self._waiting and self._accept(putter):
            return
        if timeout_ms == 0:
            self._spawn(self._put_now(putter))
            return
        if timeout_ms > 0:
            loop = asyncio.get_running_loop()
            putter.timer = loop.call_later(timeout_ms / 1000, self._timed_out, putter)
        self._waiting.append(putter)
        self._spawn(self._processes.ask_all(FrameKind.REPORT))

    def on_room(self) -> None:
        """Accept waiting puts, as far as there is room now."""
        while self._waiting and self._accept(self._waiting[0]):
            _stop(self._waiting.popleft())

    def on_read(self) -> None:
        """Drop records that were read from the log: their items count as being in the queue."""
        for offset in [each for each in self._put_offsets if each < self._next_offset()]:
            del self._put_offsets[offset]

    def on_replay(self) -> None:
        """Drop all records, as the queue's items are counted from another offset on."""
        self._put_offsets.clear()

    def on_gone(self, process: ConnectedProcess) -> None:
        self._waiting = deque(each for each in self._waiting if each.process is not process)

    def cancel(self, process: ConnectedProcess, number: int) -> None:
        for putter in list(self._waiting):
            if putter.process is process and putter.number == number:
                self._waiting.remove(putter)
                _stop(putter)

    def _accept(self, putter: _Putter) -> bool:
        more = self._putting + sum(self._put_offsets.values()) + putter.count
        if self.maxsize and self._size() + more > self.maxsize:
            return False
        self._putting += putter.count
        self._spawn(self._put(putter))
        return True

    async def _put_now(self, putter: _Putter) -> None:
        await self._processes.ask_all(FrameKind.REPORT)
        if not self._accept(putter):
            putter.process.send(FrameKind.FULL, putter.number)

    def _timed_out(self, putter: _Putter) -> None:
        if putter in self._waiting:
            self._waiting.remove(putter)
            self._spawn(self._put_now(putter))

    async def _put(self, putter: _Putter) -> None:
        try:
            offset = await self._log.put(_PUT_KEY.pack(MAGIC, putter.count), putter.value)
        except (KafkaError, ConnectionFailed) as error:
            self._putting -= putter.count
            putter.process.send(FrameKind.ERROR, putter.number, str(error).encode())
            return
        self._putting -= putter.count
        if offset >= self._next_offset():
            self._put_offsets[offset] = putter.count
        putter.process.send(FrameKind.DONE, putter.number, VALUE.pack(offset))


def _stop(putter: _Putter) -> None:
    if putter.timer is not None:
        putter.timer.cancel()
