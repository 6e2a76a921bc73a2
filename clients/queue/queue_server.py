"""The sockets of a queue's actor: requests of processes, waiting ones, and recalls of items.

What always holds:
    An answer that there is nothing (EMPTY) or no room (FULL) is given after the end of the log has
    been read, and after the processes that hold items ahead have said what they have used.
    A process that is away keeps what it has for RECONNECT_S; then others get it.
    What a process has reported as consumed is confirmed once it is committed; until then the
    process keeps it, and says it again to the next actor.

Everything runs on one loop. Not here: which item is where (queue_state), topics (queue_log).
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import struct
import time
from collections import deque
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from ...protocol.errors import ConnectionFailed, KafkaError
from .item_codec import MAGIC
from .queue_frames import (
    HEADER,
    IDENTITY_BYTES,
    MAX_FRAME_BYTES,
    PUT_BODY,
    RELEASE_BODY,
    TAKE_BODY,
    TOKEN_BYTES,
    VALUE,
    FrameError,
    FrameKind,
    ItemPiece,
    frame,
    pack_items,
    unpack_pieces,
)
from .queue_log import QueueFenced, QueueLog
from .queue_position import QueuePosition
from .queue_state import QueueEntry, QueueState

logger = logging.getLogger(__name__)

RECONNECT_S: Final = 1.0
REPORT_S: Final = 0.1
COMMIT_S: Final = 0.2
CHECK_S: Final = 1.0
CLEAN_S: Final = 60.0
ANSWER_S: Final = 1.0
"""Seconds that a process may take to report used items; then its leases decide."""
HEADER_SIZE: Final = HEADER.size
_PUT_KEY: Final = struct.Struct(">3sI")


@dataclass(eq=False, slots=True)
class _Process:
    """A connected process; `owner` is its identity, also after it has connected again."""

    owner: bytes
    writer: asyncio.StreamWriter
    answers: dict[int, asyncio.Future[None]] = field(default_factory=dict)
    reported: int = 0
    confirmed: int = 0

    def send(self, kind: FrameKind, number: int = 0, *body: bytes | memoryview) -> None:
        if not self.writer.is_closing():
            self.writer.write(frame(kind, number, *body))


@dataclass(eq=False, slots=True)
class _Taker:
    process: _Process
    number: int
    least: int
    most: int
    exact: bool
    hand_out: bool
    timer: asyncio.TimerHandle | None = None


@dataclass(eq=False, slots=True)
class _Putter:
    process: _Process
    number: int
    count: int
    value: bytes
    timer: asyncio.TimerHandle | None = None


class QueueServer:
    """Serves one queue from `start` to `close`. `failed` ends with what made it impossible."""

    def __init__(self, log: QueueLog, *, maxsize: int, lease_s: float, max_deliveries: int) -> None:
        self._log = log
        self._maxsize = maxsize
        self._lease_s = lease_s
        self._max_deliveries = max_deliveries
        self.token = secrets.token_bytes(TOKEN_BYTES)
        self.port = 0
        self._processes: dict[bytes, _Process] = {}
        self._takers: deque[_Taker] = deque()
        self._putters: deque[_Putter] = deque()
        self._questions = 0
        self._putting = 0  # items on their way to the log
        self._put_offsets: dict[int, int] = {}  # acknowledged, and not read yet
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
        await self._ask_all(FrameKind.RECALL)
        for task in (*self._tasks, self._reading):
            if task is not None:
                task.cancel()
        await self._commit_now()
        for process in list(self._processes.values()):
            process.writer.close()
        await self._log.close()

    # --- how it stands -----------------------------------------------------------------------

    async def size(self) -> int:
        """Number of items that no process has."""
        await self._catch_up()
        await self._ask_all(FrameKind.REPORT)
        return self._size

    @property
    def _size(self) -> int:
        return self._state.size + self._state.prefetched()

    @property
    def maxsize(self) -> int:
        return self._maxsize

    # --- connections -------------------------------------------------------------------------

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        process: _Process | None = None
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

    def _welcome(self, body: bytes, writer: asyncio.StreamWriter) -> _Process:
        """HELLO: identity, number of consumed pieces, these, and those it still works on."""
        owner = body[:IDENTITY_BYTES]
        (count,) = VALUE.unpack_from(body, IDENTITY_BYTES)
        pieces = unpack_pieces(body[IDENTITY_BYTES + VALUE.size :])
        former = self._processes.get(owner)
        if former is not None:
            former.writer.close()
        process = _Process(owner, writer)
        self._processes[owner] = process
        self._state.resume(owner, pieces[:count], pieces[count:], time.monotonic())
        self._changed()
        return process

    def _on_gone(self, process: _Process) -> None:
        if self._processes.get(process.owner) is not process:
            return  # it has connected again
        self._takers = deque(each for each in self._takers if each.process is not process)
        self._putters = deque(each for each in self._putters if each.process is not process)
        for answer in process.answers.values():
            if not answer.done():
                answer.set_result(None)
        self._loop.call_later(RECONNECT_S, self._drop, process)

    def _drop(self, process: _Process) -> None:
        if self._processes.get(process.owner) is process:
            del self._processes[process.owner]
            self._state.resume(process.owner, (), (), time.monotonic())
            self._changed()

    def _on_frame(self, process: _Process, kind: int, number: int, body: bytes) -> None:
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
                answer = process.answers.pop(number, None)
                if answer is not None and not answer.done():
                    answer.set_result(None)
                self._changed()
            case FrameKind.EXTEND:
                self._state.extend(process.owner, unpack_pieces(body), time.monotonic())
            case FrameKind.PUT:
                self._on_put(process, number, body)
            case FrameKind.SIZE:
                self._spawn(self._answer_size(process, number))
            case FrameKind.REPLAY:
                self._spawn(self._replay(process, number, body.decode()))
            case FrameKind.CANCEL:
                self._cancel(process, number)
            case _:
                raise FrameError(f"there is no frame of kind {kind}")

    async def _answer_size(self, process: _Process, number: int) -> None:
        process.send(FrameKind.DONE, number, VALUE.pack(await self.size()))

    # --- taking ------------------------------------------------------------------------------

    def _on_take(self, process: _Process, number: int, body: bytes) -> None:
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

    def _cancel(self, process: _Process, number: int) -> None:
        for taker in [each for each in self._takers if _is(each, process, number)]:
            self._takers.remove(taker)
            _stop(taker.timer)
        for putter in [each for each in self._putters if _is(each, process, number)]:
            self._putters.remove(putter)
            _stop(putter.timer)
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

    # --- putting, where there is a maxsize ---------------------------------------------------

    def _on_put(self, process: _Process, number: int, body: bytes) -> None:
        timeout_ms, count = PUT_BODY.unpack_from(body)
        putter = _Putter(process, number, count, body[PUT_BODY.size :])
        if not self._putters and self._accept(putter):
            return
        if timeout_ms == 0:
            self._spawn(self._put_now(putter))
            return
        if timeout_ms > 0:
            putter.timer = self._loop.call_later(timeout_ms / 1000, self._put_timed_out, putter)
        self._putters.append(putter)
        self._spawn(self._ask_all(FrameKind.REPORT))

    def _accept(self, putter: _Putter) -> bool:
        more = self._putting + sum(self._put_offsets.values()) + putter.count
        if self._maxsize and self._size + more > self._maxsize:
            return False
        self._putting += putter.count
        self._spawn(self._put(putter))
        return True

    async def _put_now(self, putter: _Putter) -> None:
        await self._ask_all(FrameKind.REPORT)
        if not self._accept(putter):
            putter.process.send(FrameKind.FULL, putter.number)

    def _put_timed_out(self, putter: _Putter) -> None:
        if putter in self._putters:
            self._putters.remove(putter)
            self._spawn(self._put_now(putter))

    async def _put(self, putter: _Putter) -> None:
        try:
            offset = await self._log.put(_PUT_KEY.pack(MAGIC, putter.count), putter.value)
        except (KafkaError, ConnectionFailed) as error:
            self._putting -= putter.count
            putter.process.send(FrameKind.ERROR, putter.number, str(error).encode())
            return
        self._putting -= putter.count
        if offset >= self._state.next_offset:
            self._put_offsets[offset] = putter.count
        putter.process.send(FrameKind.DONE, putter.number, VALUE.pack(offset))

    def _changed(self) -> None:
        self._has_changed = True
        self._serve()
        while self._putters and self._accept(self._putters[0]):
            putter = self._putters.popleft()
            _stop(putter.timer)

    # --- asking processes --------------------------------------------------------------------

    async def _recall_for(self, process: _Process) -> None:
        """Recall items that other processes hold ahead, if a request waits and no item is ready."""
        if self._state.ready == 0:
            others = [each for each in self._holders() if each is not process]
            await self._ask(FrameKind.RECALL, others)

    async def _ask_all(self, kind: FrameKind) -> None:
        await self._ask(kind, self._holders())

    def _holders(self) -> list[_Process]:
        return [each for each in self._processes.values() if self._state.prefetched(each.owner)]

    async def _ask(self, kind: FrameKind, processes: Iterable[_Process]) -> None:
        answers = []
        for process in processes:
            self._questions = self._questions % 0x7FFF_FFFF + 1
            answer = self._loop.create_future()
            process.answers[self._questions] = answer
            process.send(kind, self._questions)
            answers.append(answer)
        if answers:
            await asyncio.wait(answers, timeout=ANSWER_S)

    # --- in the background -------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            await self._log.read(self._state.add)
            for offset in [each for each in self._put_offsets if each < self._state.next_offset]:
                del self._put_offsets[offset]
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
            for process in self._holders():
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
        reports = [(process, process.reported) for process in self._processes.values()]
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

    async def _replay(self, process: _Process, number: int, start: str) -> None:
        """Deliver all items from `start` on again."""
        try:
            offset = await self._log.offset_of(start)
        except (KafkaError, ConnectionFailed) as error:
            process.send(FrameKind.ERROR, number, str(error).encode())
            return
        await self._ask_all(FrameKind.RECALL)
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        self._state = self._new_state(QueuePosition(offset=offset))
        self._put_offsets.clear()
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


def _is(waiting: _Taker | _Putter, process: _Process, number: int) -> bool:
    return waiting.process is process and waiting.number == number


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


async def _read_frame(reader: asyncio.StreamReader, most: int) -> tuple[int, int, bytes]:
    length, kind, number = HEADER.unpack(await reader.readexactly(HEADER_SIZE))
    body_length = length - (HEADER_SIZE - 4)
    if not 0 <= body_length <= most:
        raise FrameError(f"a frame of {length} bytes")
    return kind, number, await reader.readexactly(body_length)
