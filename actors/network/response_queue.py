"""The responses of one connection, in the order of its requests, until its socket accepts them.

A slot per request keeps the order. Responses that are ready move from `slots` to `unsent`, and are
`leaving` until their last byte is sent; then they are counted. Bytes in memory are sent with one
system call, records in files with sendfile; a file that is not in the page cache is read in a
thread first, and the responses behind it wait.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final

from ...handlers.ports.request_metrics import RequestTrace
from ...handlers.server.dispatch import Chunks
from ...protocol.buffer import Buffer
from ...protocol.records.fetch_response import IN_MEMORY, Chunk, FileSlice
from ..loop.line_limit import LineLimit
from .page_cache import is_resident, read_into_page_cache, read_resident
from .tls_socket import ConnectedSocket

MOST_PIECES: Final = 64
# Below this a read and one send are cheaper than a second system call for sendfile (measured).
INLINE_SLICE: Final = 32 * 1024
# Below this, copying all pieces into one buffer is cheaper than sending a list of them.
JOINED: Final = 32 * 1024
_MSG_MORE: Final = getattr(socket, "MSG_MORE", 0)


class ResponseSlot(RequestTrace):
    """One response in the order of its connection, filled in later; see ResponseQueue."""

    __slots__ = ("chunks", "end", "ready")

    def __init__(self, received_at: float, request_bytes: int) -> None:
        super().__init__(received_at, request_bytes)
        self.ready = False
        self.chunks: Chunks | None = None
        self.end = 0


def gather(unsent: deque[Chunk]) -> tuple[list[Buffer], int, bool]:
    """Pieces in memory at the head of the queue, for one system call. Returns the pieces, their
    size in bytes, and whether a file follows them.
    """
    pieces: list[Buffer] = []
    size = 0
    for chunk in unsent:
        if not isinstance(chunk, IN_MEMORY):
            return pieces, size, True
        pieces.append(chunk)
        size += len(chunk)
        if len(pieces) == MOST_PIECES:
            break
    return pieces, size, False


def drop(unsent: deque[Chunk], sent: int) -> None:
    """Remove the `sent` bytes from the head of the queue."""
    while sent:
        head = unsent[0]
        assert isinstance(head, IN_MEMORY)
        if sent < len(head):
            unsent[0] = memoryview(head)[sent:]
            return
        sent -= len(head)
        unsent.popleft()


class ResponseQueue:
    """Responses of one connection: those being worked on, ready, and on their way out.

    `on_writable` is called when the socket is writable, or a file is in memory: it calls `write`.
    `close` is the connection's, called with a reason for its peer (None: the peer disconnected, or
    the failure is ours, and logged here) and a kind; see ClientConnection.close.
    """

    def __init__(
        self,
        sock: ConnectedSocket,
        peer: str,
        lines: LineLimit,
        on_writable: Callable[[], None],
        close: Callable[[str | None, str], None],
    ) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._peer = peer
        self._lines = lines
        self._on_writable = on_writable
        self._close = close
        self._loop = asyncio.get_running_loop()
        self.slots: deque[ResponseSlot] = deque()
        """Slots of responses that are not ready, or behind one that is not."""
        self.leaving: deque[ResponseSlot] = deque()
        """Slots of responses whose last byte is not sent yet."""
        self.unsent: deque[Chunk] = deque()
        self.unsent_bytes = 0
        """Bytes in memory; those in files are not counted."""
        self._queued_total = 0
        self._sent_total = 0
        self._slice_sent = 0
        self._is_warmed = False
        self.is_warming = False
        """Whether the head of the queue is a file that is being read into memory."""
        self.is_writing = False
        """Whether it waits for the socket to become writable."""
        self.is_closed = False
        self.sent_at = self._loop.time()
        """Time of the event loop at which the socket last accepted bytes."""

    def send(self) -> None:
        """Queue finished responses for the socket, in order, and send as much as it accepts."""
        slots, unsent = self.slots, self.unsent
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
            self.unsent_bytes += in_memory
            self._queued_total += size
            slot.end = self._queued_total
            self.leaving.append(slot)
        if unsent:
            if not self.is_writing and not self.is_warming:
                self.write()
        elif self.leaving:
            self._note_sent()

    def write(self) -> None:
        """Send as much as the socket accepts; wait for it while there is more."""
        unsent = self.unsent
        try:
            while unsent:
                in_memory = self._queued_total - self._sent_total == self.unsent_bytes
                is_short = in_memory and self.unsent_bytes <= JOINED
                if not (self._write_joined() if is_short else self._write_next()):
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._close(None, "peer")
            return
        self._note_sent()
        if not (unsent or self.is_writing):
            return
        self.wait_writable(is_wanted=bool(unsent) and not self.is_warming)

    def wait_writable(self, *, is_wanted: bool) -> None:
        """Start or stop waiting for the socket to become writable."""
        if is_wanted and not self.is_writing:
            self.is_writing = True
            self._loop.add_writer(self._fd, self._on_writable)
        elif not is_wanted and self.is_writing:
            self.is_writing = False
            self._loop.remove_writer(self._fd)

    def close(self) -> None:
        """Forget all responses, before the socket is closed."""
        self.is_closed = True
        self.wait_writable(is_wanted=False)
        self.slots.clear()
        self.leaving.clear()
        self.unsent.clear()

    def _note_sent(self) -> None:
        leaving = self.leaving
        now = perf_counter()
        while leaving and leaving[0].end <= self._sent_total:
            leaving.popleft().finish(now)

    def _write_next(self) -> bool:
        """Send from the head of the queue; False when the socket is full for now."""
        chunk = self.unsent[0]
        if not isinstance(chunk, IN_MEMORY):
            return self._write_slice(chunk)
        vector, total, is_followed = gather(self.unsent)
        sent = self._socket.sendmsg(vector, (), _MSG_MORE if is_followed else 0)
        self.unsent_bytes -= sent
        self._sent_total += sent
        self.sent_at = self._loop.time()
        drop(self.unsent, sent)
        return sent == total

    def _write_joined(self) -> bool:
        """Send all of a short queue without files, like `_write_next`, with fewer steps."""
        unsent = self.unsent
        data = unsent[0] if len(unsent) == 1 else b"".join(unsent)  # type: ignore[arg-type]
        sent = self._socket.send(data)  # type: ignore[arg-type]
        self.unsent_bytes -= sent
        self._sent_total += sent
        self.sent_at = self._loop.time()
        unsent.clear()
        if sent < len(data):  # type: ignore[arg-type]
            unsent.append(memoryview(data)[sent:])  # type: ignore[arg-type]
            return False
        return True

    def _write_slice(self, chunk: FileSlice) -> bool:
        assert chunk.file is not None
        if self._slice_sent == 0 and not self._is_warmed and not is_resident(chunk):
            self._warm(chunk)
            return False
        self._is_warmed = False
        remaining = chunk.size - self._slice_sent
        sent = os.sendfile(
            self._fd, chunk.file.fileno(), chunk.position + self._slice_sent, remaining
        )
        if sent == 0:
            self._give_up_on_file()
            return False
        self._slice_sent += sent
        self._sent_total += sent
        self.sent_at = self._loop.time()
        if sent < remaining:
            return False
        self._slice_sent = 0
        self.unsent.popleft()
        return True

    def _give_up_on_file(self) -> None:
        """Close: the file has become too short to complete the frame whose size is already sent."""
        self._lines.error("a log file shrank under a fetch of %s", self._peer)
        self._close(None, "failure")

    def _warm(self, chunk: FileSlice) -> None:
        """Read a cold slice into memory in a thread, then continue sending."""
        self.is_warming = True
        reading = self._loop.run_in_executor(None, read_into_page_cache, chunk)

        def done(reading: asyncio.Future[None]) -> None:
            if self.is_closed:
                return
            self.is_warming = False
            if reading.exception() is not None:
                self._lines.error("a log cannot be read", cause=reading.exception())
                self._close(None, "failure")
                return
            self._is_warmed = True  # not probed again: it must go out now
            self._on_writable()

        reading.add_done_callback(done)
