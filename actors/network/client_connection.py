"""One client connection: frames in arrival order, responses in request order, nothing unbounded.

Plain non-blocking sockets on the loop's readiness callbacks, without asyncio's transports: records
go from the receive buffer straight into the log and from the file straight into the socket
(sendfile), and reading stops while a peer does not take its answers.

    receiving   whole frames are handled in the node's shared scratch buffer; a longer one is
                filled into the connection's own buffer, which doubles as the bytes really come (a
                false length costs nothing). The buffer serves the next long frame, too, from its
                first byte on: of long frames in a row none is copied
    answering   a slot per request keeps the order; slots are sent as soon as they are next in line
    bounds      MAX_PIPELINED requests in work, MAX_UNSENT bytes of answers and MAX_PARKED bytes of
                requests that wait, then no more reading; all of it counts into the node's memory
    fairness    after SLICE_SECONDS of one peer's requests the others have their turn

What was received and may not be handled yet is kept as `_rest`: less than the scratch buffer.
A peer that sends nonsense costs one log line and its connection.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Awaitable
from struct import Struct
from time import perf_counter
from typing import Final

from ...handlers.ports.client_session import ClientSession
from ...handlers.server.dispatch import (
    Chunks,
    DelayedChunks,
    NotAuthenticated,
    NotServed,
    PeerError,
    check_header,
    check_size,
    dispatch,
)
from ...protocol.records.fetch_response import IN_MEMORY, Chunk, FileSlice
from ..quotas.muting import Muting
from ..quotas.timed_request import maybe_timed
from .page_cache import bring_in, is_resident, read_resident
from .response_slot import ResponseSlot, drop, gather
from .shared import Shared
from .tls_socket import ConnectedSocket

MAX_PIPELINED: Final = 128
MAX_UNSENT: Final = 1024**2
MAX_PARKED: Final = 8 * 1024**2
SLICE_SECONDS: Final = 0.002
SCRATCH_SIZE: Final = 256 * 1024
SHORT_READ: Final = 4 * 1024
# A peer that announces much and sends little costs this; the buffer follows what really comes.
FIRST_BUFFER: Final = 4 * 1024
QUICK_GROWTH: Final = 64 * 1024
# Below this a read and one send are cheaper than a second system call for sendfile (measured).
INLINE_SLICE: Final = 32 * 1024
# Below this one copy of what is to be sent is cheaper than a list of its pieces.
JOINED: Final = 32 * 1024
WAITING_PRODUCE: Final = 1024
MIN_BYTES_PER_SECOND: Final = 16 * 1024
_SIZE = Struct(">i")
_MSG_MORE: Final = getattr(socket, "MSG_MORE", 0)


class ClientConnection:
    """Owns its socket from `open` to `close`."""

    def __init__(
        self, sock: ConnectedSocket, session: ClientSession, peer: str, shared: Shared
    ) -> None:
        self.session = session
        self.peer = peer
        self._socket = sock
        self._fd = sock.fileno()
        self._shared = shared
        self._node = shared.node
        self._memory = shared.memory
        self._held = 0
        self._loop = asyncio.get_running_loop()
        self._scratch = memoryview(shared.scratch)
        self._rest = bytearray()
        self._is_halted = False
        self._is_turned_away = False
        self._resuming = False
        self._is_first = True
        # A long frame, behind the four bytes of its length.
        self._buffer = bytearray()
        self._frame_size = 0
        self._filled = 0
        self._began_at = 0.0
        self._paused_at = 0.0
        self._muting = Muting(self._on_unmuted)
        self._slots: deque[ResponseSlot] = deque()
        self._beginning: ResponseSlot | None = None
        self._tasks: set[asyncio.Task[None] | DelayedChunks] = set()
        self._parked_bytes = 0
        self._leaving: deque[ResponseSlot] = deque()
        self._queued_total = 0
        self._sent_total = 0
        self._unsent: deque[Chunk] = deque()
        self._unsent_bytes = 0
        self._slice_sent = 0
        self._warming = False
        self._warmed = False
        self._reading = False
        self._writing = False
        self.closed = False
        self.last_activity = self.opened_at = self._loop.time()

    def open(self) -> None:
        self._reading = True
        self._loop.add_reader(self._fd, self._on_readable)

    @property
    def is_waited_for(self) -> bool:
        """Whether a request is in work, so that the peer waits for us."""
        return bool(self._tasks) or self._muting.is_on

    @property
    def is_unknown(self) -> bool:
        """Whether the client has still to authenticate."""
        return self.session.sasl is not None and self.session.sasl.max_request_bytes is not None

    @property
    def held_bytes(self) -> int:
        return self._held

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def is_slow(self, now: float, grace_seconds: float) -> bool:
        """Whether a request began longer ago than the grace, and too little of it came since."""
        if not self._began_at or self._paused_at or self._muting.is_on:
            return False
        late = now - self._began_at - grace_seconds
        return late > 0 and self._filled < late * MIN_BYTES_PER_SECOND

    def close(self, reason: str | None = None, kind: str = "peer") -> None:
        """Close. `reason` is logged; `kind`, a word of a small set, goes to the metrics."""
        if self.closed:
            return
        self.closed = True
        shared = self._shared
        shared.metrics.connections_closed[kind] += 1
        if reason:
            shared.lines.warning("closing %s: it %s", self.peer, reason)
        if self._reading:
            self._loop.remove_reader(self._fd)
        if self._writing:
            self._loop.remove_writer(self._fd)
        for task in self._tasks:
            # Not at once: one that never began would leave what it was to await unawaited.
            self._loop.call_soon(task.cancel)
        self._muting.end()
        self._slots.clear()
        self._leaving.clear()
        self._unsent.clear()
        self._socket.close()
        self._rest = self._buffer = bytearray()
        self._memory.change(-self._held)
        self._held = 0
        self._memory.leave(self)
        shared.on_close(self)

    def _fail(self, error: BaseException) -> None:
        """Close after a failed request: by the peer's fault, or by ours."""
        if isinstance(error, NotServed) and (
            seconds := self._shared.refusals.seconds(self.session.address)
        ):
            # Not read from meanwhile; what it was promised before still goes out.
            self._is_turned_away = True
            self._regulate()
            self._loop.call_later(seconds, self.close, str(error), "malformed")
            return
        if isinstance(error, PeerError):
            kind = "authentication" if isinstance(error, NotAuthenticated) else "malformed"
            self.close(str(error), kind)
            return
        self._shared.metrics.unexpected_errors += 1
        self._shared.lines.error("a request of %s failed", self.peer, cause=error)
        self.close(kind="failure")

    def _account(self) -> None:
        held = len(self._buffer) + len(self._rest) + self._unsent_bytes + self._parked_bytes
        if held != self._held:
            difference, self._held = held - self._held, held
            self._memory.change(difference)

    # --- receiving -------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        self.last_activity = self._loop.time()
        try:
            if self._frame_size:
                self._continue_frame()
            else:
                self._receive()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        except Exception as error:  # noqa: BLE001 -- the top of a connection
            self._fail(error)
            return
        if not self.closed:
            self._send()
            self._regulate()

    def _receive(self) -> None:
        scratch = self._scratch
        is_short = self._memory.is_short
        kept = len(self._rest)
        if not kept and len(self._buffer) >= SCRATCH_SIZE and not is_short:
            scratch = memoryview(self._buffer)
        elif kept:
            scratch[:kept] = self._rest
            self._rest = bytearray()
        room = kept + SHORT_READ if is_short else SCRATCH_SIZE
        is_whole = not kept and room == len(scratch)
        count = self._socket.recv_into(scratch if is_whole else scratch[kept:room])
        if count == 0:
            self.close()
            return
        self._handle_all(scratch, kept + count)

    def _handle_all(self, received: memoryview, end: int) -> None:
        """Handle the whole frames of `received`, up to `end`; the rest is kept."""
        position = 0
        session, sasl = self.session, self.session.sasl
        largest = self._node.server_config.broker.socket_request_max_bytes
        started = now = perf_counter()
        while end - position >= 4:
            (size,) = _SIZE.unpack_from(received, position)
            limit = largest if sasl is None else sasl.max_request_bytes or largest
            if not 0 < size <= limit:
                check_size(size, limit, received[position : position + 4])
            position += 4
            after = position + size
            if after > end:
                self._begin_frame(size, received[position:end], end)
                return
            now = self._handle(received[position:after], now)
            if self.closed or session.ending is not None:
                return  # what follows a refusal is not looked at
            position = after
            if position == end:  # as of most: one frame, or a few, and nothing behind
                self._began_at = 0.0
                return
            if self._is_full() or now - started > SLICE_SECONDS:
                self._is_halted = True
                break
        self._rest = bytearray(received[position:end])
        if self._is_halted or not self._rest:
            self._began_at = 0.0
        elif not self._began_at:
            self._filled = 0
            self._began_at = self._loop.time()

    def _handle_rest(self) -> None:
        """Handle what was received before."""
        self._resuming = False
        if self.closed or self._is_full():
            return
        rest, self._rest = self._rest, bytearray()
        self._is_halted = False
        try:
            self._handle_all(memoryview(rest), len(rest))
        except Exception as error:  # noqa: BLE001 -- the top of a connection
            self._fail(error)
            return
        if not self.closed:
            self._send()
            self._regulate()

    def _check_long(self, start: memoryview) -> None:
        """Check the header of a long frame when it begins, before memory is used for it."""
        limit = self._node.server_config.broker.bradbury_first_request_max_bytes
        check_header(start, self._frame_size, limit if self._is_first else None)

    def _begin_frame(self, size: int, start: memoryview, ends_at: int) -> None:
        """Begin an incomplete frame: its first bytes move to where the rest will follow.

        `ends_at`: where they end in the buffer they are in.
        """
        self._frame_size = size
        self._filled = len(start)
        self._began_at = self._loop.time()
        sasl = self.session.sasl
        if self._filled >= 4 and (sasl is None or not sasl.takes_raw_tokens):
            self._check_long(start)
        end = 4 + self._filled
        if len(self._buffer) < end:
            self._buffer = bytearray(min(4 + size, max(FIRST_BUFFER, 2 * end)))
        # Received there already, as the first of what came? Then it stays where it is.
        if start.obj is not self._buffer or end != ends_at:
            memoryview(self._buffer)[4:end] = start

    def _continue_frame(self) -> None:
        capacity = len(self._buffer)
        if 4 + self._filled == capacity:
            if not self._memory.may_grow(self):
                self._pause()
                return
            factor = 4 if capacity < QUICK_GROWTH else 2
            grown = bytearray(min(4 + self._frame_size, max(FIRST_BUFFER, factor * capacity)))
            grown[:capacity] = self._buffer
            self._buffer = grown
        view = memoryview(self._buffer)[4 : 4 + self._frame_size]
        count = self._socket.recv_into(view[self._filled :])
        if count == 0:
            self.close()
            return
        before = self._filled
        self._filled += count
        if before < 4 <= self._filled:
            self._check_long(view[:4])
        if self._filled == self._frame_size:
            self._frame_size = 0
            self._memory.leave(self)
            self._handle(view, perf_counter(), is_lasting=True)
            if (self._slots and self._slots[-1].keeps_frame) or self._memory.is_tight:
                self._buffer = bytearray()

    def _pause(self) -> None:
        """Wait in line for memory, unread. This time is not counted against the peer."""
        self._paused_at = self._loop.time()
        self._loop.remove_reader(self._fd)
        self._reading = False

    def resume(self) -> None:
        """Continue after a wait for memory; see request_memory.Waiter."""
        if self.closed or not self._paused_at:
            return
        self._began_at += self._loop.time() - self._paused_at
        self._paused_at = 0.0
        self._regulate()

    def release_buffer(self) -> None:
        """Give back the memory of past long frames, between frames."""
        if not self._frame_size and self._buffer:
            self._buffer = bytearray()
            self._account()

    def _handle(self, frame: memoryview, received_at: float, *, is_lasting: bool = False) -> float:
        """Handle a frame; returns perf_counter after it. A lasting frame stays unchanged."""
        self._is_first = False
        self._began_at = 0.0
        slot = ResponseSlot(received_at, len(frame))
        slot.keeps_frame = is_lasting
        self._slots.append(slot)
        result = dispatch(frame, self._node, self.peer, slot, self.session)
        slot.handled_at = slot.ready_at = now = perf_counter()
        if result is None or isinstance(result, list):
            slot.chunks = result
            slot.ready = True
            if slot.throttle_ms:
                self._muting.begin(slot.throttle_ms)
        else:
            self._finish_later(maybe_timed(result, self._node.quotas, slot, now), slot)
        return now

    def _on_unmuted(self) -> None:
        self._began_at = self._muting.put_off(self._began_at)
        self._regulate()

    def _finish_later(
        self, result: DelayedChunks | Awaitable[Chunks | None], slot: ResponseSlot
    ) -> None:
        weight = slot.held_bytes or WAITING_PRODUCE
        self._parked_bytes += weight
        if isinstance(result, DelayedChunks):
            self._tasks.add(result)
            result.begin(self._on_fetched)
            return
        if not slot.is_begun:
            self._beginning = slot
            slot.on_begun = self._on_begun
        task = self._loop.create_task(self._finish(result, slot, weight))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_fetched(self, late: DelayedChunks, chunks: Chunks, failure: Exception | None) -> None:
        """Send the response to a fetch that waited."""
        slot = late.trace
        assert isinstance(slot, ResponseSlot)
        self._tasks.discard(late)
        self._parked_bytes -= slot.held_bytes or WAITING_PRODUCE
        self._on_finished(slot, chunks, failure)

    async def _finish(
        self, result: Awaitable[Chunks | None], slot: ResponseSlot, weight: int
    ) -> None:
        """Wait for a response and send it. A callback of the task would come one turn later."""
        chunks, failure = None, None
        try:
            chunks = await result
        except Exception as error:  # noqa: BLE001 -- the top of a connection
            failure = error
        finally:
            self._parked_bytes -= weight
        self._on_finished(slot, chunks, failure)

    def _on_finished(
        self, slot: ResponseSlot, chunks: Chunks | None, failure: Exception | None
    ) -> None:
        if self.closed:
            return
        if failure is not None:
            self._fail(failure)
            return
        slot.chunks = chunks
        slot.ready_at = perf_counter()
        slot.ready = True
        if slot.throttle_ms:
            self._muting.begin(slot.throttle_ms)
        self._send()
        self._regulate()

    def _on_begun(self) -> None:
        self._beginning = None
        self._regulate()

    def _is_full(self) -> bool:
        return (
            len(self._slots) >= MAX_PIPELINED
            or self._unsent_bytes >= MAX_UNSENT
            or self._parked_bytes >= MAX_PARKED
            or self._beginning is not None
            or self._muting.is_on
        )

    def _regulate(self) -> None:
        """Read only while the peer takes its responses and there is room for more requests."""
        if self.closed:
            return
        is_over = self._is_turned_away or self.session.ending is not None
        keeps = self._slots or self._unsent or self._rest or self._buffer or self._held
        if not (keeps or is_over or self._muting.is_on) and self._reading:
            return  # nothing was left of what came, or is to be sent: so after most requests
        self._account()
        full = self._is_full()
        if self._is_halted and not (full or self._resuming or is_over):
            self._resuming = True
            self._loop.call_soon(self._handle_rest)
        may_read = not (full or self._is_halted or self._paused_at or is_over)
        if self._reading and not may_read:
            self._loop.remove_reader(self._fd)
            self._reading = False
        elif may_read and not self._reading:
            self._loop.add_reader(self._fd, self._on_readable)
            self._reading = True

    # --- sending ---------------------------------------------------------------------------------

    def _send(self) -> None:
        """Move finished answers to the socket's queue, in order, and send what it takes."""
        slots, unsent = self._slots, self._unsent
        while slots and slots[0].ready:
            slot = slots.popleft()
            size = in_memory = 0
            for chunk in slot.chunks or ():
                if isinstance(chunk, IN_MEMORY):
                    length = len(chunk)
                    if not length:
                        continue
                    in_memory += length
                else:
                    length = chunk.size
                    if length <= INLINE_SLICE and (records := read_resident(chunk)) is not None:
                        in_memory += length
                        chunk = records
                size += length
                unsent.append(chunk)
            slot.chunks = None
            slot.response_bytes = size
            self._unsent_bytes += in_memory
            self._queued_total += size
            slot.end = self._queued_total
            self._leaving.append(slot)
        if unsent:
            if not self._writing and not self._warming:
                self._write()
        elif self._leaving:
            self._note_sent()

    def _give_up_on_file(self) -> None:
        """Close after a file is shorter than the announced frame, which cannot be completed."""
        self._shared.lines.error("a log file shrank under a fetch of %s", self.peer)
        self.close(kind="failure")

    def _note_sent(self) -> None:
        leaving = self._leaving
        now = perf_counter()
        while leaving and leaving[0].end <= self._sent_total:
            leaving.popleft().finish(now)
        if self.session.ending is not None and not (leaving or self._slots):
            self.close(self.session.ending, "authentication")

    def _on_writable(self) -> None:
        self._write()
        if not self.closed:
            self._regulate()

    def _write(self) -> None:
        unsent = self._unsent
        try:
            while unsent:
                in_memory = self._queued_total - self._sent_total == self._unsent_bytes
                is_short = in_memory and self._unsent_bytes <= JOINED
                if not (self._write_joined() if is_short else self._write_next()):
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.close()
            return
        self._note_sent()
        if not (unsent or self._writing):
            return
        waits_for_socket = bool(unsent) and not self._warming
        if waits_for_socket and not self._writing:
            self._writing = True
            self._loop.add_writer(self._fd, self._on_writable)
        elif not waits_for_socket and self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)

    def _write_next(self) -> bool:
        """Send from the head of the queue; False when the socket is full for now."""
        chunk = self._unsent[0]
        if not isinstance(chunk, IN_MEMORY):
            return self._write_slice(chunk)
        vector, total, is_followed = gather(self._unsent)
        sent = self._socket.sendmsg(vector, (), _MSG_MORE if is_followed else 0)
        self._unsent_bytes -= sent
        self._sent_total += sent
        self.last_activity = self._loop.time()
        drop(self._unsent, sent)
        return sent == total

    def _write_joined(self) -> bool:
        """Send all of a short queue without files, like `_write_next`, with fewer steps."""
        unsent = self._unsent
        data = unsent[0] if len(unsent) == 1 else b"".join(unsent)  # type: ignore[arg-type]
        sent = self._socket.send(data)  # type: ignore[arg-type]
        self._unsent_bytes -= sent
        self._sent_total += sent
        self.last_activity = self._loop.time()
        unsent.clear()
        if sent < len(data):  # type: ignore[arg-type]
            unsent.append(memoryview(data)[sent:])  # type: ignore[arg-type]
            return False
        return True

    def _write_slice(self, chunk: FileSlice) -> bool:
        assert chunk.file is not None
        if self._slice_sent == 0 and not self._warmed and not is_resident(chunk):
            self._warm(chunk)
            return False
        self._warmed = False
        remaining = chunk.size - self._slice_sent
        sent = os.sendfile(
            self._fd, chunk.file.fileno(), chunk.position + self._slice_sent, remaining
        )
        if sent == 0:
            self._give_up_on_file()
            return False
        self._slice_sent += sent
        self._sent_total += sent
        self.last_activity = self._loop.time()
        if sent < remaining:
            return False
        self._slice_sent = 0
        self._unsent.popleft()
        return True

    def _warm(self, chunk: FileSlice) -> None:
        """Read a cold slice into memory in a thread, then continue sending."""
        self._warming = True
        reading = self._loop.run_in_executor(None, bring_in, chunk)

        def done(reading: asyncio.Future[None]) -> None:
            if self.closed:
                return
            self._warming = False
            if reading.exception() is not None:
                self._shared.lines.error("a log cannot be read", cause=reading.exception())
                self.close(kind="failure")
                return
            self._warmed = True  # not probed again: it must go out now
            self._write()
            self._regulate()

        reading.add_done_callback(done)
