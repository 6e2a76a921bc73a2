"""The sockets of a queue's actor: requests of processes, waiting ones, and recalls of items.

What always holds:
    An answer that there is nothing (EMPTY) or no room (FULL) is given after the end of the log has
    been read, and after the processes that hold items ahead have said what they have used.
    A process that is away keeps what it has for RECONNECT_S; then others get it.
    What a process has reported as consumed is confirmed once it is committed; until then the
    process keeps it, and says it again to the next actor.

Everything runs on one loop. Not here: which item is where (queue_state), topics (queue_log), the
processes and what they are asked (queue_processes), puts where there is a maxsize (queue_puts).
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import struct
import time
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final

from ...protocol.errors import ConnectionFailed, KafkaError
from .frames.queue_frames import (
    HEADER,
    IDENTITY_BYTES,
    MAX_FRAME_BYTES,
    RELEASE_BODY,
    TAKE_BODY,
    TOKEN_BYTES,
    VALUE,
    FrameError,
    FrameKind,
    ItemPiece,
    pack_items,
    unpack_pieces,
)
from .queue_log import QueueFenced, QueueLog
from .queue_position import QueuePosition
from .queue_processes import ANSWER_S, ConnectedProcess, QueueProcesses
from .queue_puts import QueuePuts
from .queue_state import QueueEntry, QueueState

logger = logging.getLogger(__name__)

RECONNECT_S: Final = 1.0
REPORT_S: Final = 0.1
COMMIT_S: Final = 0.2
CHECK_S: Final = 1.0
CLEAN_S: Final = 60.0
HEADER_SIZE: Final = HEADER.size


@dataclass(eq=False, slots=True)
class _Taker:
    process: ConnectedProcess
    number: int
    least: int
    most: int
    exact: bool
    hand_out: bool
    timer: asyncio.TimerHandle | None = None


class QueueServer:
    """Serves one queue from `start` to `close`. `failed` ends with what made it impossible."""

    def __init__(self, log: QueueLog, *, maxsize: int, lease_s: float, max_deliveries: int) -> None:
        self._log = log
        self._lease_s = lease_s
        self._max_deliveries = max_deliveries
        self.token = secrets.token_bytes(TOKEN_BYTES)
        self.port = 0
        self._processes = QueueProcesses(lambda owner: bool(self._state.prefetched(owner)))
        self._takers: deque[_Taker] = deque()
        self._puts = QueuePuts(
            log,
            self._processes,
            maxsize,
            size=lambda: self._size,
            next_offset=lambda: self._state.next_offset,
            spawn=self._spawn,
        )
        self._has_changed = False
        self._dead: list[QueueEntry] = []  # that are to be written to the dead letters
        self._end_without_items = -1
        self._tasks: set[asyncio.Task[None]] = set()
        self._reading: asyncio.Task[None] | None = None

    async def start(self, host: str, *, follows_another: bool) -> None:
        """Read what is consumed, and serve. `follows_another`: its processes come back first."""
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = self._loop.create_future()
        self._read_more = asyncio.Event()
        self._committing = asyncio.Lock()
        self._state = self._new_state(await self._log.start())
        self._server = await asyncio.start_server(self._on_connection, host, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self._opens_at = time.monotonic() + (RECONNECT_S if follows_another else 0.0)
        if follows_another:
            self._loop.call_later(RECONNECT_S, self._serve)
        self._reading = self._loop.create_task(self._guarded(self._read()))
        for work in (self._refill(), self._tick(), self._commit(), self._check(), self._clean()):
            self._spawn(work)

    def _new_state(self, position: QueuePosition) -> QueueState:
        return QueueState(position, lease_s=self._lease_s, max_deliveries=self._max_deliveries)

    async def close(self) -> None:
        """Commit what is consumed, and end."""
        self._server.close()
        await self._processes.ask_all(FrameKind.RECALL)
        for task in (*self._tasks, self._reading):
            if task is not None:
                task.cancel()
        await self._commit_now()
        for process in self._processes:
            process.writer.close()
        await self._log.close()

    # --- how it stands -----------------------------------------------------------------------

    async def size(self) -> int:
        """Number of items that no process has."""
        await self._catch_up()
        await self._processes.ask_all(FrameKind.REPORT)
        return self._size

    @property
    def _size(self) -> int:
        return self._state.size + self._state.prefetched()

    @property
    def maxsize(self) -> int:
        return self._puts.maxsize

    # --- connections -------------------------------------------------------------------------

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        process: ConnectedProcess | None = None
        try:
            async with asyncio.timeout(ANSWER_S * 10):
                kind, _, body = await _read_frame(reader, 1024 * 1024 + TOKEN_BYTES)
            if kind != FrameKind.HELLO or not hmac.compare_digest(body[:TOKEN_BYTES], self.token):
                return
            if self._opens_at > time.monotonic():  # what it has may be in the log, and not read yet
                await self._catch_up()
            process = self._welcome(body[TOKEN_BYTES:], writer)
            while True:
                kind, number, body = await _read_frame(reader, MAX_FRAME_BYTES)
                self._on_frame(process, kind, number, body)
                if writer.transport.get_write_buffer_size() > 0:
                    await writer.drain()
        except (OSError, EOFError, FrameError, TimeoutError, struct.error, ValueError) as error:
            if isinstance(error, FrameError | struct.error | ValueError):
                logger.warning("queue: a connection is closed: %s", error)
        finally:
            writer.close()
            if process is not None:
                self._on_gone(process)

    def _welcome(self, body: bytes, writer: asyncio.StreamWriter) -> ConnectedProcess:
        """HELLO: identity, number of consumed pieces, these, and those it still works on."""
        owner = body[:IDENTITY_BYTES]
        (count,) = VALUE.unpack_from(body, IDENTITY_BYTES)
        pieces = unpack_pieces(body[IDENTITY_BYTES + VALUE.size :])
        process = ConnectedProcess(owner, writer)
        self._processes.add(process)
        self._state.resume(owner, pieces[:count], pieces[count:], time.monotonic())
        self._changed()
        return process

    def _on_gone(self, process: ConnectedProcess) -> None:
        if not self._processes.on_gone(process):
            return  # it has connected again
        self._takers = deque(each for each in self._takers if each.process is not process)
        self._puts.on_gone(process)
        self._loop.call_later(RECONNECT_S, self._drop, process)

    def _drop(self, process: ConnectedProcess) -> None:
        if self._processes.drop(process):
            self._state.resume(process.owner, (), (), time.monotonic())
            self._changed()

    def _on_frame(self, process: ConnectedProcess, kind: int, number: int, body: bytes) -> None:
        match kind:
            case FrameKind.TAKE:
                self._on_take(process, number, body)
            case FrameKind.SETTLE:
                self._state.settle(process.owner, unpack_pieces(body))
                process.reported = max(process.reported, number)
                self._changed()
            case FrameKind.RELEASE:
                (delay_ms,) = RELEASE_BODY.unpack_from(body)
                pieces = unpack_pieces(body[RELEASE_BODY.size :])
                now = time.monotonic()
                self._state.release(process.owner, pieces, now, delay_s=delay_ms / 1000)
                self._changed()
            case FrameKind.RETURN:  # the answer to RECALL, and to REPORT with nothing
                pieces = unpack_pieces(body)
                self._state.release(process.owner, pieces, time.monotonic(), unused=True)
                process.on_answer(number)
                self._changed()
            case FrameKind.EXTEND:
                self._state.extend(process.owner, unpack_pieces(body), time.monotonic())
            case FrameKind.PUT:
                self._puts.on_put(process, number, body)
            case FrameKind.SIZE:
                self._spawn(self._answer_size(process, number))
            case FrameKind.REPLAY:
                self._spawn(self._replay(process, number, body.decode()))
            case FrameKind.CANCEL:
                self._cancel(process, number)
            case _:
                raise FrameError(f"there is no frame of kind {kind}")

    async def _answer_size(self, process: ConnectedProcess, number: int) -> None:
        process.send(FrameKind.DONE, number, VALUE.pack(await self.size()))

    # --- taking ------------------------------------------------------------------------------

    def _on_take(self, process: ConnectedProcess, number: int, body: bytes) -> None:
        least, most, timeout_ms, exact, hand_out = TAKE_BODY.unpack(body)
        taker = _Taker(process, number, least, most, bool(exact), bool(hand_out))
        if not self._takers and self._give(taker, most):
            return
        if timeout_ms == 0:
            self._spawn(self._take_now(taker))
            return
        if timeout_ms > 0:
            taker.timer = self._loop.call_later(timeout_ms / 1000, self._take_timed_out, taker)
        self._takers.append(taker)
        self._spawn(self._recall_for(process))

    def _give(self, taker: _Taker, most: int) -> bool:
        now = time.monotonic()
        if now < self._opens_at:
            return False
        entries = self._state.take(
            taker.process.owner,
            taker.least,
            max(taker.least, most),
            now,
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
        await asyncio.sleep(max(0.0, self._opens_at - time.monotonic()))
        await self._catch_up()
        if not self._give(taker, taker.most):
            await self._recall_for(taker.process)
            if not self._give(taker, taker.most):
                taker.process.send(FrameKind.EMPTY, taker.number)

    def _take_timed_out(self, taker: _Taker) -> None:
        if taker in self._takers:
            self._takers.remove(taker)
            taker.timer = None
            self._spawn(self._take_now(taker))

    def _cancel(self, process: ConnectedProcess, number: int) -> None:
        for taker in list(self._takers):
            if taker.process is process and taker.number == number:
                self._takers.remove(taker)
                _stop(taker.timer)
        self._puts.cancel(process, number)
        process.send(FrameKind.EMPTY, number)

    def _serve(self) -> None:
        """Give what is ready to those that wait, in their order, each about as much."""
        while self._takers and self._state.ready:
            taker = self._takers[0]
            share = -(-self._state.ready // len(self._takers))
            if not self._give(taker, min(taker.most, share)):
                return
            self._takers.popleft()
            _stop(taker.timer)

    def _changed(self) -> None:
        self._has_changed = True
        self._serve()
        self._puts.on_room()

    # --- asking processes --------------------------------------------------------------------

    async def _recall_for(self, process: ConnectedProcess) -> None:
        """Recall items that other processes hold ahead, if a request waits and no item is ready."""
        if self._state.ready == 0:
            others = [each for each in self._processes.holders() if each is not process]
            await self._processes.ask(FrameKind.RECALL, others)

    # --- in the background -------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            await self._log.read(self._state.add)
            self._puts.on_read()
            self._read_more.set()
            self._serve()

    async def _catch_up(self) -> None:
        """Wait until the log has been read to its current end."""
        end = await self._log.end_offset()
        if end == self._end_without_items:
            return
        try:
            async with asyncio.timeout(ANSWER_S):
                while self._state.next_offset < end:
                    self._read_more.clear()
                    await self._read_more.wait()
        except TimeoutError:
            self._end_without_items = end  # what is last there is a marker of a transaction

    async def _refill(self) -> None:
        while True:
            start = self._state.backlog_start
            if start is None:
                await asyncio.sleep(REPORT_S / 10)
                continue
            await self._log.read_backlog(start, self._state.refill)
            self._serve()

    async def _tick(self) -> None:
        """Expire leases, and request reports of used items, periodically."""
        while True:
            await asyncio.sleep(REPORT_S)
            if self._state.expire(time.monotonic()):
                self._changed()
            for process in self._processes.holders():
                process.send(FrameKind.REPORT, 0)

    async def _commit(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_S)
            if self._has_changed:
                await self._commit_now()

    async def _commit_now(self) -> None:
        """Commit; reports received until now are confirmed after it."""
        async with self._committing:
            await self._commit_changes()

    async def _commit_changes(self) -> None:
        self._has_changed = False
        reports = [(process, process.reported) for process in self._processes]
        self._dead += self._state.take_dead()  # with those of a commit that was cancelled
        await self._log.commit(self._state.position(self._log.epoch), self._dead)
        self._dead = []
        for process, reported in reports:
            if reported > process.confirmed:
                process.confirmed = reported
                process.send(FrameKind.CONFIRM, reported)

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            await self._log.check_epoch()

    async def _clean(self) -> None:
        while True:
            await asyncio.sleep(CLEAN_S)
            committed = await self._log.committed()
            try:
                await self._log.delete_consumed(committed.offset)
            except (KafkaError, ConnectionFailed) as error:
                logger.warning("queue: consumed records are not deleted: %s", error)

    async def _replay(self, process: ConnectedProcess, number: int, start: str) -> None:
        """Deliver all items from `start` on again."""
        try:
            offset = await self._log.offset_of(start)
        except (KafkaError, ConnectionFailed) as error:
            process.send(FrameKind.ERROR, number, str(error).encode())
            return
        await self._processes.ask_all(FrameKind.RECALL)
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        self._state = self._new_state(QueuePosition(offset=offset))
        self._puts.on_replay()
        await self._log.seek(offset)
        self._reading = self._loop.create_task(self._guarded(self._read()))
        self._has_changed = True
        process.send(FrameKind.DONE, number, VALUE.pack(offset))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 -- the actor ends with it
            if isinstance(error, QueueFenced):
                logger.warning("queue: this actor ends: %s", error)
            if not self.failed.done():
                self.failed.set_exception(error)


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


async def _read_frame(reader: asyncio.StreamReader, most: int) -> tuple[int, int, bytes]:
    length, kind, number = HEADER.unpack(await reader.readexactly(HEADER_SIZE))
    body_length = length - (HEADER_SIZE - 4)
    if not 0 <= body_length <= most:
        raise FrameError(f"a frame of {length} bytes")
    return kind, number, await reader.readexactly(body_length)
