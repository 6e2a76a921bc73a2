"""The sockets of a queue's actor: requests of processes, and background tasks.

Invariants:
    A process that is disconnected keeps its items for RECONNECT_S; then others get them.
    Items that a process has reported as consumed are confirmed once they are committed; until then
    the process keeps its reports, and sends them again to the next actor.

Everything runs on one loop. Not here: the state of items (queue_state), topics (queue_log), the
processes and requests to them (queue_processes), takes (queue_takes), puts where there is a
maxsize (queue_puts), commits (queue_commits).
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import struct
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

from ...protocol.errors import ConnectionFailed, KafkaError
from .frames.queue_frames import (
    HEADER,
    IDENTITY_BYTES,
    MAX_FRAME_BYTES,
    RELEASE_BODY,
    TOKEN_BYTES,
    VALUE,
    FrameError,
    FrameKind,
    unpack_pieces,
)
from .queue_commits import QueueCommits
from .queue_log import QueueFenced, QueueLog
from .queue_position import QueuePosition
from .queue_processes import ANSWER_S, ConnectedProcess, QueueProcesses
from .queue_puts import QueuePuts
from .queue_state import QueueState
from .queue_takes import QueueTakes

logger = logging.getLogger(__name__)

RECONNECT_S: Final = 1.0
REPORT_S: Final = 0.1
CHECK_S: Final = 1.0
CLEAN_S: Final = 60.0
HEADER_SIZE: Final = HEADER.size


class QueueServer:
    """Serves one queue from `start` to `close`. failed: future that gets the error that ends it."""

    def __init__(self, log: QueueLog, *, maxsize: int, lease_s: float, max_deliveries: int) -> None:
        self._log = log
        self._lease_s = lease_s
        self._max_deliveries = max_deliveries
        self.token = secrets.token_bytes(TOKEN_BYTES)
        self.port = 0
        self._processes = QueueProcesses(lambda owner: bool(self._state.prefetched(owner)))
        self._takes = QueueTakes(
            self._processes,
            state=lambda: self._state,
            catch_up=self._catch_up,
            spawn=self._spawn,
        )
        self._puts = QueuePuts(
            log,
            self._processes,
            maxsize,
            size=lambda: self._size,
            next_offset=lambda: self._state.next_offset,
            spawn=self._spawn,
        )
        self._commits = QueueCommits(log, self._processes, lambda: self._state)
        self._tasks: set[asyncio.Task[None]] = set()
        self._reading: asyncio.Task[None] | None = None

    async def start(self, host: str, *, follows_another: bool) -> None:
        """Read the position, and serve. follows_another: wait for that actor's processes to
        reconnect.
        """
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = self._loop.create_future()
        self._read_more = asyncio.Event()
        self._caught_up = asyncio.Event()  # at once, where there is no maxsize
        self._arriving = 0
        self._state = self._new_state(await self._log.start())
        self._server = await asyncio.start_server(self._on_connection, host, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        if follows_another or self.maxsize > 0:
            self._spawn(self._open(RECONNECT_S if follows_another else 0.0))
        else:
            self._caught_up.set()
            self._takes.opened.set()
        self._reading = self._loop.create_task(self._guarded(self._read()))
        for work in (
            self._refill(),
            self._tick(),
            self._commits.run(),
            self._check(),
            self._clean(),
        ):
            self._spawn(work)

    async def _open(self, wait_s: float) -> None:
        """Let a former actor's processes say what they have and want, before anybody gets items.

        wait_s: time that they have from the start on.
        """
        at = time.monotonic() + wait_s
        if self.maxsize > 0:
            await self._catch_up()
        self._caught_up.set()
        if wait_s:
            await asyncio.sleep(max(REPORT_S, at - time.monotonic()))
        while self._arriving:
            await asyncio.sleep(REPORT_S / 10)
        self._takes.opened.set()
        self._takes.serve()

    def _new_state(self, position: QueuePosition) -> QueueState:
        return QueueState(position, lease_s=self._lease_s, max_deliveries=self._max_deliveries)

    async def close(self) -> None:
        """Commit consumed items, and end."""
        self._server.close()
        await self._processes.ask_all(FrameKind.RECALL)
        for task in (*self._tasks, self._reading):
            if task is not None:
                task.cancel()
        await self._commits.commit()
        for process in self._processes:
            process.writer.close()
        await self._log.close()

    # --- size --------------------------------------------------------------------------------

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
            process = await self._welcome(body[TOKEN_BYTES:], writer)
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

    async def _welcome(self, body: bytes, writer: asyncio.StreamWriter) -> ConnectedProcess:
        """Handle HELLO: identity, number of consumed pieces, these, and pieces still being
        processed.
        """
        owner = body[:IDENTITY_BYTES]
        (count,) = VALUE.unpack_from(body, IDENTITY_BYTES)
        pieces = unpack_pieces(body[IDENTITY_BYTES + VALUE.size :])
        self._arriving += 1
        try:
            await self._caught_up.wait()  # its puts may be in the log
            if not self._takes.opened.is_set():  # and its items are
                await self._read_to(max((offset + 1 for offset, _, _ in pieces), default=0))
        finally:
            self._arriving -= 1
        process = ConnectedProcess(owner, writer)
        former = self._processes.add(process)
        if former is not None:  # what it waits for it has sent again
            self._takes.on_gone(former)
        self._state.resume(owner, pieces[:count], pieces[count:], time.monotonic())
        self._changed()
        return process

    def _on_gone(self, process: ConnectedProcess) -> None:
        if not self._processes.on_gone(process):
            return  # it has connected again
        self._takes.on_gone(process)
        self._puts.on_gone(process)
        self._loop.call_later(RECONNECT_S, self._drop, process)

    def _drop(self, process: ConnectedProcess) -> None:
        if self._processes.drop(process):
            self._state.resume(process.owner, (), (), time.monotonic())
            self._changed()

    def _on_frame(self, process: ConnectedProcess, kind: int, number: int, body: bytes) -> None:
        match kind:
            case FrameKind.TAKE:
                self._takes.on_take(process, number, body)
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
                self._takes.cancel(process, number)
                self._puts.cancel(process, number)
                process.send(FrameKind.EMPTY, number)
            case _:
                raise FrameError(f"there is no frame of kind {kind}")

    async def _answer_size(self, process: ConnectedProcess, number: int) -> None:
        process.send(FrameKind.DONE, number, VALUE.pack(await self.size()))

    def _changed(self) -> None:
        self._commits.on_changed()
        self._takes.serve()
        self._puts.on_room()

    # --- in the background -------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            is_former = not self._caught_up.is_set()
            await self._log.read(self._state.add, self._puts.on_record if is_former else None)
            self._puts.on_read()
            self._read_more.set()
            self._takes.serve()

    async def _catch_up(self) -> None:
        """Wait until the log has been read to its current end, a record's or a marker's."""
        await self._read_to(await self._log.end_offset())

    async def _read_to(self, end: int) -> None:
        while self._state.next_offset < end and await self._log.position() < end:
            self._read_more.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORT_S):
                    await self._read_more.wait()

    async def _refill(self) -> None:
        while True:
            start = self._state.backlog_start
            if start is None:
                await asyncio.sleep(REPORT_S / 10)
                continue
            await self._log.read_backlog(start, self._state.refill)
            self._takes.serve()

    async def _tick(self) -> None:
        """Expire leases, and request reports of used items, periodically."""
        while True:
            await asyncio.sleep(REPORT_S)
            if self._state.expire(time.monotonic()):
                self._changed()
            for process in self._processes.holders():
                process.send(FrameKind.REPORT, 0)

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            await self._log.check_epoch()

    async def _clean(self) -> None:
        while True:
            await asyncio.sleep(CLEAN_S)
            self._puts.forget_absent(self._processes.owners)
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
        await self._log.seek(offset)
        self._state = self._new_state(QueuePosition(offset=offset))
        self._puts.on_replay()
        self._reading = self._loop.create_task(self._guarded(self._read()))
        self._commits.on_changed()
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


async def _read_frame(reader: asyncio.StreamReader, most: int) -> tuple[int, int, bytes]:
    length, kind, number = HEADER.unpack(await reader.readexactly(HEADER_SIZE))
    body_length = length - (HEADER_SIZE - 4)
    if not 0 <= body_length <= most:
        raise FrameError(f"a frame of {length} bytes")
    return kind, number, await reader.readexactly(body_length)
