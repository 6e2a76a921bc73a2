"""Puts into a queue that has a maxsize: they go through its actor, which knows when there is room.

Invariants:
    Items on their way to the log, or acknowledged and not read from it yet, count like items in the
    queue, so it never has more than `maxsize`.
    Processes that wait get room in the order in which they asked.
    FULL is sent only after the processes with prefetched items have reported which they have used.
    A put that a process sends again, as its connection or the former actor was lost, is written
    once: records name the process and its number of the put.
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
from .frames.queue_frames import PUT_BODY, PUT_BY, VALUE, FrameKind
from .queue_log import QueueLog
from .queue_processes import ConnectedProcess, QueueProcesses

_PUT_KEY: Final = struct.Struct(">3sI")


@dataclass(eq=False, slots=True)
class _Putter:
    process: ConnectedProcess
    number: int
    put: int  # the process's number of it, the same when it is sent again
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
        # Puts of each process that may come again: under way, or their offsets.
        self._known: dict[bytes, dict[int, _Putter | int]] = {}
        self._absent: set[bytes] = set()

    def on_put(self, process: ConnectedProcess, number: int, body: bytes) -> None:
        timeout_ms, count, put, first = PUT_BODY.unpack_from(body)
        known = self._known.setdefault(process.owner, {})
        while known and (oldest := next(iter(known))) < first:
            del known[oldest]
        former = known.get(put)
        if isinstance(former, int):
            process.send(FrameKind.DONE, number, VALUE.pack(former))
            return
        if former is not None:
            former.process, former.number = process, number
            return
        putter = _Putter(process, number, put, count, body[PUT_BODY.size :])
        known[put] = putter
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

    def on_record(self, put_by: bytes, offset: int) -> None:
        """Note a put to a former actor, whose process may send it again."""
        owner, put = PUT_BY.unpack(put_by)
        self._known.setdefault(owner, {})[put] = offset

    def on_gone(self, process: ConnectedProcess) -> None:
        for putter in [each for each in self._waiting if each.process is process]:
            self._give_up(putter)

    def forget_absent(self, present: set[bytes]) -> None:
        """Forget the puts of processes that were absent at the last call, too."""
        for owner in self._absent - present:
            self._known.pop(owner, None)
        self._absent = self._known.keys() - present

    def cancel(self, process: ConnectedProcess, number: int) -> None:
        for putter in list(self._waiting):
            if putter.process is process and putter.number == number:
                self._give_up(putter)

    def _give_up(self, putter: _Putter) -> None:
        self._waiting.remove(putter)
        _stop(putter)
        self._forget(putter)

    def _forget(self, putter: _Putter) -> None:
        """Forget a put that is not in the log."""
        self._known.get(putter.process.owner, {}).pop(putter.put, None)

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
            self._forget(putter)
            putter.process.send(FrameKind.FULL, putter.number)

    def _timed_out(self, putter: _Putter) -> None:
        if putter in self._waiting:
            self._waiting.remove(putter)
            self._spawn(self._put_now(putter))

    async def _put(self, putter: _Putter) -> None:
        owner = putter.process.owner
        put_by = PUT_BY.pack(owner, putter.put)
        try:
            offset = await self._log.put(_PUT_KEY.pack(MAGIC, putter.count), putter.value, put_by)
        except (KafkaError, ConnectionFailed) as error:
            self._putting -= putter.count
            self._forget(putter)
            putter.process.send(FrameKind.ERROR, putter.number, str(error).encode())
            return
        self._putting -= putter.count
        if offset >= self._next_offset():
            self._put_offsets[offset] = putter.count
        if owner in self._known:
            self._known[owner][putter.put] = offset
        putter.process.send(FrameKind.DONE, putter.number, VALUE.pack(offset))


def _stop(putter: _Putter) -> None:
    if putter.timer is not None:
        putter.timer.cancel()
