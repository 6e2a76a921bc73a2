"""One client connection: frames in arrival order, responses in request order, nothing unbounded.

Plain non-blocking sockets on the loop's readiness callbacks, without asyncio's transports: records
go from the receive buffer straight into the log and from the file straight into the socket
(sendfile), and reading stops while a peer does not take its answers.

    receiving   whole frames are handled in the node's shared scratch buffer; a longer one is
                filled into the connection's own buffer (network_receive). The buffer serves the
                next long frame, too, from its first byte on: of long frames in a row none is copied
    answering   a slot per request keeps the order; slots are sent as soon as they are next in line
                (response_queue)
    bounds      MAX_PIPELINED requests in work, MAX_UNSENT bytes of answers and MAX_PARKED bytes of
                requests that wait, then no more reading; all of it counts into the node's memory
    fairness    after SLICE_SECONDS of one peer's requests the others have their turn

Received bytes that cannot be handled yet are kept in `_rest`: less than the scratch buffer. A
malformed request costs one log line, and closes the connection.
"""

from __future__ import annotations

import asyncio
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
from ..quotas.muting import Muting
from ..quotas.timed_request import maybe_timed
from .network_receive import NetworkReceive
from .response_queue import ResponseQueue, ResponseSlot
from .shared import Shared
from .tls_socket import ConnectedSocket

MAX_PIPELINED: Final = 128
MAX_UNSENT: Final = 1024**2
MAX_PARKED: Final = 8 * 1024**2
SLICE_SECONDS: Final = 0.002
SCRATCH_SIZE: Final = 256 * 1024
SHORT_READ: Final = 4 * 1024
WAITING_PRODUCE: Final = 1024
_SIZE = Struct(">i")


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
        self._incoming = NetworkReceive()
        self._muting = Muting(self._on_unmuted)
        self._responses = self._response_queue()
        self._beginning: ResponseSlot | None = None
        self._tasks: set[asyncio.Task[None] | DelayedChunks] = set()
        self._parked_bytes = 0
        self._reading = False
        self.closed = False
        self._received_at = self.opened_at = self._loop.time()

    def _response_queue(self) -> ResponseQueue:
        return ResponseQueue(
            self._socket, self.peer, self._shared.lines, self._on_writable, self.close
        )

    def open(self) -> None:
        self._reading = True
        self._loop.add_reader(self._fd, self._on_readable)

    @property
    def is_waited_for(self) -> bool:
        """Whether a request is in work, so that the peer waits for us."""
        return bool(self._tasks) or self._muting.is_on

    @property
    def held_bytes(self) -> int:
        return self._held

    @property
    def has_unsent(self) -> bool:
        return bool(self._responses.unsent)

    @property
    def last_activity(self) -> float:
        """Time of the event loop at which bytes last went either way."""
        return max(self._received_at, self._responses.sent_at)

    def is_slow(self, now: float, grace_seconds: float) -> bool:
        """Whether a request began longer ago than the grace, and too little of it came since."""
        return not self._muting.is_on and self._incoming.is_slow(now, grace_seconds)

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
        self._responses.close()
        for task in self._tasks:
            # Not at once: a task that is cancelled before it starts never awaits its coroutine.
            self._loop.call_soon(task.cancel)
        self._muting.end()
        self._socket.close()
        self._rest = self._incoming.buffer = bytearray()
        self._memory.change(-self._held)
        self._held = 0
        self._memory.leave(self)
        shared.on_close(self)

    def _fail(self, error: BaseException) -> None:
        """Close after a failed request: by the peer's fault, or by ours."""
        if isinstance(error, NotServed) and (
            seconds := self._shared.refusals.seconds(self.session.address)
        ):
            # No more reads until then; responses to earlier requests are still sent.
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
        held = len(self._incoming.buffer) + len(self._rest) + self._parked_bytes
        held += self._responses.unsent_bytes
        if held != self._held:
            difference, self._held = held - self._held, held
            self._memory.change(difference)

    # --- receiving -------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        self._received_at = self._loop.time()
        try:
            if self._incoming.size:
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
            self._responses.send()
            self._regulate()

    def _receive(self) -> None:
        scratch = self._scratch
        is_short = self._memory.is_short
        kept = len(self._rest)
        if not kept and len(self._incoming.buffer) >= SCRATCH_SIZE and not is_short:
            scratch = memoryview(self._incoming.buffer)
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
                start = received[position:end]
                self._incoming.size = size
                if len(start) >= 4:
                    self._check_long(start)
                self._incoming.begin(start, end, self._loop.time())
                return
            now = self._handle(received[position:after], now)
            if self.closed or session.ending is not None:
                return  # what follows a refusal is not looked at
            position = after
            if position == end:  # the usual case: one or a few whole frames
                self._incoming.began_at = 0.0
                return
            if self._is_full() or now - started > SLICE_SECONDS:
                self._is_halted = True
                break
        self._rest = bytearray(received[position:end])
        if self._is_halted or not self._rest:
            self._incoming.began_at = 0.0
        else:
            self._incoming.begin_short(self._loop.time())

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
            self._responses.send()
            self._regulate()

    def _check_long(self, start: memoryview) -> None:
        """Check the header of a long frame when it begins, before memory is used for it.

        A token of SaslHandshake 0 has none.
        """
        sasl = self.session.sasl
        if sasl is not None and sasl.takes_raw_tokens:
            return
        limit = self._node.server_config.broker.bradbury_first_request_max_bytes
        check_header(start, self._incoming.size, limit if self._is_first else None)

    def _continue_frame(self) -> None:
        incoming = self._incoming
        if 4 + incoming.filled == len(incoming.buffer):
            if not self._memory.may_grow(self):
                self._pause()
                return
            incoming.grow()
        view = memoryview(incoming.buffer)[4 : 4 + incoming.size]
        count = self._socket.recv_into(view[incoming.filled :])
        if count == 0:
            self.close()
            return
        before = incoming.filled
        incoming.filled += count
        if before < 4 <= incoming.filled:
            self._check_long(view[:4])
        if incoming.filled == incoming.size:
            incoming.size = 0
            self._memory.leave(self)
            self._handle(view, perf_counter(), is_lasting=True)
            slots = self._responses.slots
            if (slots and slots[-1].keeps_frame) or self._memory.is_tight:
                incoming.buffer = bytearray()

    def _pause(self) -> None:
        """Wait in line for memory, unread. This time is not counted against the peer."""
        self._incoming.paused_at = self._loop.time()
        self._loop.remove_reader(self._fd)
        self._reading = False

    def resume(self) -> None:
        """Continue after a wait for memory; see request_memory.Waiter."""
        if self.closed or not self._incoming.paused_at:
            return
        self._incoming.resume(self._loop.time())
        self._regulate()

    def release_buffer(self) -> None:
        """Give back the memory of past long frames, between frames."""
        if not self._incoming.size and self._incoming.buffer:
            self._incoming.buffer = bytearray()
            self._account()

    def _handle(self, frame: memoryview, received_at: float, *, is_lasting: bool = False) -> float:
        """Handle a frame; returns perf_counter after it. A lasting frame stays unchanged."""
        self._is_first = False
        self._incoming.began_at = 0.0
        slot = ResponseSlot(received_at, len(frame))
        slot.keeps_frame = is_lasting
        self._responses.slots.append(slot)
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
        self._incoming.began_at = self._muting.put_off(self._incoming.began_at)
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
        self._responses.send()
        self._regulate()

    def _on_begun(self) -> None:
        self._beginning = None
        self._regulate()

    def _is_full(self) -> bool:
        return (
            len(self._responses.slots) >= MAX_PIPELINED
            or self._responses.unsent_bytes >= MAX_UNSENT
            or self._parked_bytes >= MAX_PARKED
            or self._beginning is not None
            or self._muting.is_on
        )

    def _on_writable(self) -> None:
        self._responses.write()
        self._regulate()

    def _regulate(self) -> None:
        """Read only while the peer takes its responses and there is room for more requests."""
        if self.closed:
            return
        ending, responses = self.session.ending, self._responses
        if ending is not None and not (responses.leaving or responses.slots):
            self.close(ending, "authentication")
            return
        is_over = self._is_turned_away or ending is not None
        keeps = (
            responses.slots or responses.unsent or self._rest or self._incoming.buffer or self._held
        )
        if not (keeps or is_over or self._muting.is_on) and self._reading:
            return  # nothing is left to handle or to send: the usual case
        self._account()
        full = self._is_full()
        if self._is_halted and not (full or self._resuming or is_over):
            self._resuming = True
            self._loop.call_soon(self._handle_rest)
        may_read = not (full or self._is_halted or self._incoming.paused_at or is_over)
        if self._reading and not may_read:
            self._loop.remove_reader(self._fd)
            self._reading = False
        elif may_read and not self._reading:
            self._loop.add_reader(self._fd, self._on_readable)
            self._reading = True
