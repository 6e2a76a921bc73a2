"""One client connection: frames in arrival order, responses in request order, nothing unbounded.

Plain non-blocking sockets on the loop's readiness callbacks, without asyncio's transports: records
go from the receive buffer straight into the log and from the file straight into the socket
(sendfile), and reading stops while a peer does not take its answers.

    receiving   whole frames are handled in the listener's shared scratch buffer; a longer one is
                filled into the connection's own buffer, which doubles as the bytes really come (a
                length that lies costs nothing) and serves the next long frame, too
    answering   a slot per request keeps the order; slots are sent as soon as they are next in line
    bounds      MAX_PIPELINED requests in work and MAX_UNSENT bytes of answers, then no more reading

A peer that sends nonsense costs one log line and its connection.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from struct import Struct

from ..handlers.context import Node
from ..handlers.dispatch import Chunks, PeerError, dispatch
from ..protocol.fetch_response import FileSlice
from .page_cache import bring_in, is_resident

logger = logging.getLogger("bradbury.connection")

MAX_PIPELINED = 128
MAX_UNSENT = 8 * 1024**2
SCRATCH_SIZE = 256 * 1024
FIRST_BUFFER = 64 * 1024
# Below this a read and one send are cheaper than a second system call for sendfile (measured).
INLINE_SLICE = 32 * 1024
_SIZE = Struct(">i")
_MSG_MORE = getattr(socket, "MSG_MORE", 0)
_HINTS = {b"GET ": "HTTP", b"POST": "HTTP", b"HEAD": "HTTP", b"\x16\x03\x01\x02": "TLS"}


class _Slot:
    """The place of one response in the order of its connection."""

    __slots__ = ("chunks", "ready")

    def __init__(self) -> None:
        self.ready = False
        self.chunks: Chunks | None = None


class Connection:
    """Owns its socket from `open` to `close`."""

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        node: Node,
        scratch: bytearray,
        on_close: Callable[[Connection], None],
    ) -> None:
        self.peer = peer
        self._socket = sock
        self._fd = sock.fileno()
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._scratch = memoryview(scratch)
        self._on_close = on_close
        self._prefix = b""
        self._buffer = bytearray()
        self._frame_size = 0
        self._filled = 0
        self._slots: deque[_Slot] = deque()
        self._tasks: set[asyncio.Future[Chunks | None]] = set()
        self._unsent: deque[bytes | bytearray | memoryview | FileSlice] = deque()
        self._unsent_bytes = 0
        self._slice_sent = 0
        self._warming = False
        self._warmed = False
        self._reading = False
        self._writing = False
        self.closed = False
        self.last_activity = self._loop.time()

    def open(self) -> None:
        self._reading = True
        self._loop.add_reader(self._fd, self._on_readable)

    @property
    def is_idle(self) -> bool:
        """No request in work. An answer that the peer does not take counts as idle, too."""
        return not self._tasks

    def close(self, reason: str | None = None) -> None:
        if self.closed:
            return
        self.closed = True
        if reason:
            logger.warning("closing %s: it %s", self.peer, reason)
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        for task in self._tasks:
            task.cancel()
        self._slots.clear()
        self._unsent.clear()
        self._socket.close()
        self._on_close(self)

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
        except PeerError as error:
            self.close(str(error))
            return
        except Exception:
            logger.exception("a request of %s failed", self.peer)
            self.close()
            return
        if not self.closed:
            self._send()
            self._regulate()

    def _receive(self) -> None:
        scratch = self._scratch
        kept = len(self._prefix)
        if kept:
            scratch[:kept] = self._prefix
            self._prefix = b""
        count = self._socket.recv_into(scratch[kept:])
        if count == 0:
            self.close()
            return
        end = kept + count
        position = 0
        while end - position >= 4:
            (size,) = _SIZE.unpack_from(scratch, position)
            self._check_size(size, scratch[position : position + 4])
            after = position + 4 + size
            if after > end:
                self._begin_frame(size, scratch[position + 4 : end])
                return
            self._handle(scratch[position + 4 : after])
            if self.closed:
                return
            position = after
        self._prefix = bytes(scratch[position:end])

    def _check_size(self, size: int, first: memoryview) -> None:
        limit = self._node.config.socket_request_max_bytes
        if not 0 < size <= limit:
            hint = _HINTS.get(bytes(first))
            speaks = f" (it seems to speak {hint}, not Kafka)" if hint else ""
            raise PeerError(f"announced a request of {size} bytes, allowed are {limit}{speaks}")

    def _begin_frame(self, size: int, start: memoryview) -> None:
        """A frame that is not whole yet: its first bytes move out of the scratch buffer."""
        self._frame_size = size
        self._filled = len(start)
        if len(self._buffer) < len(start):
            self._buffer = bytearray(min(size, max(FIRST_BUFFER, 2 * len(start))))
        self._buffer[: len(start)] = start

    def _continue_frame(self) -> None:
        capacity = len(self._buffer)
        if self._filled == capacity:
            grown = bytearray(min(self._frame_size, 2 * capacity))
            grown[:capacity] = self._buffer
            self._buffer = grown
        view = memoryview(self._buffer)[: self._frame_size]
        count = self._socket.recv_into(view[self._filled :])
        if count == 0:
            self.close()
            return
        self._filled += count
        if self._filled == self._frame_size:
            self._frame_size = 0
            self._handle(view)

    def release_buffer(self) -> None:
        """Give back the memory of past long frames, between frames."""
        if not self._frame_size:
            self._buffer = bytearray()

    def _handle(self, frame: memoryview) -> None:
        slot = _Slot()
        self._slots.append(slot)
        result = dispatch(frame, self._node, self.peer)
        if result is None or isinstance(result, list):
            slot.chunks = result
            slot.ready = True
        else:
            self._finish_later(result, slot)

    def _finish_later(self, result: Awaitable[Chunks | None], slot: _Slot) -> None:
        task = asyncio.ensure_future(result)
        self._tasks.add(task)

        def done(task: asyncio.Future[Chunks | None]) -> None:
            self._tasks.discard(task)
            if self.closed or task.cancelled():
                return
            error = task.exception()
            if error is not None:
                if not isinstance(error, PeerError):
                    logger.error("a request of %s failed", self.peer, exc_info=error)
                self.close(str(error) if isinstance(error, PeerError) else None)
                return
            slot.chunks = task.result()
            slot.ready = True
            self._send()
            self._regulate()

        task.add_done_callback(done)

    def _regulate(self) -> None:
        """Read on only while the peer takes its answers and we keep up."""
        if self.closed:
            return
        full = len(self._slots) >= MAX_PIPELINED or self._unsent_bytes >= MAX_UNSENT
        if full and self._reading:
            self._loop.remove_reader(self._fd)
            self._reading = False
        elif not full and not self._reading:
            self._loop.add_reader(self._fd, self._on_readable)
            self._reading = True

    # --- sending ---------------------------------------------------------------------------------

    def _send(self) -> None:
        """Move finished answers to the socket's queue, in order, and send what it takes."""
        slots = self._slots
        while slots and slots[0].ready:
            for chunk in slots.popleft().chunks or ():
                if not isinstance(chunk, bytes | bytearray | memoryview):
                    assert chunk.file is not None
                    if chunk.size <= INLINE_SLICE and is_resident(chunk):
                        chunk = os.pread(chunk.file.fileno(), chunk.size, chunk.position)
                    else:
                        self._unsent.append(chunk)
                        continue
                self._unsent.append(chunk)
                self._unsent_bytes += len(chunk)
        if self._unsent and not self._writing and not self._warming:
            self._write()

    def _on_writable(self) -> None:
        self._write()
        if not self.closed:
            self._regulate()

    def _write(self) -> None:
        try:
            while self._unsent:
                if not self._write_next():
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.close()
            return
        self.last_activity = self._loop.time()
        waits_for_socket = bool(self._unsent) and not self._warming
        if waits_for_socket and not self._writing:
            self._writing = True
            self._loop.add_writer(self._fd, self._on_writable)
        elif not waits_for_socket and self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)

    def _write_next(self) -> bool:
        """Send from the head of the queue; False when the socket is full for now."""
        chunk = self._unsent[0]
        if not isinstance(chunk, bytes | bytearray | memoryview):
            return self._write_slice(chunk)
        vector = []
        total = 0
        flags = 0
        for item in self._unsent:
            if not isinstance(item, bytes | bytearray | memoryview):
                flags = _MSG_MORE
                break
            vector.append(item)
            total += len(item)
            if len(vector) == 64:
                break
        sent = self._socket.sendmsg(vector, (), flags)
        self._unsent_bytes -= sent
        complete = sent == total
        while sent:
            head = self._unsent[0]
            assert isinstance(head, bytes | bytearray | memoryview)
            if sent < len(head):
                self._unsent[0] = memoryview(head)[sent:]
                break
            sent -= len(head)
            self._unsent.popleft()
        return complete

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
            # The file is shorter than promised: the frame cannot be finished, nor be taken back.
            logger.error("a log file shrank under a fetch of %s", self.peer)
            self.close()
            return False
        self._slice_sent += sent
        if sent < remaining:
            return False
        self._slice_sent = 0
        self._unsent.popleft()
        return True

    def _warm(self, chunk: FileSlice) -> None:
        """Bring a cold slice into memory in a thread, then go on sending."""
        self._warming = True
        reading = self._loop.run_in_executor(None, bring_in, chunk)

        def done(reading: asyncio.Future[None]) -> None:
            if self.closed:
                return
            self._warming = False
            if reading.exception() is not None:
                logger.error("a log file cannot be read", exc_info=reading.exception())
                self.close()
                return
            self._warmed = True  # not probed again: it must go out now
            self._write()
            self._regulate()

        reading.add_done_callback(done)
