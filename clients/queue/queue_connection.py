"""A process's connection to the actor of a queue, and the items that it holds.

Invariants:
    One connection for each queue and process, for all its threads and coroutines.
    Prefetched items are handed out in their order; recalled items, and items whose lease is about
    to end, are not handed out any more.
    Consumed items are reported, and the report is kept until the actor confirms its commit. When
    the connection or the actor is lost, the next one gets the consumed items, and those still being
    processed; requests without an answer are sent again.

Not here: prefetched items (prefetched_items), reports (consumed_reports), requests without an
answer (queue_requests), frames that the socket has no room for (frame_sender).

The reader is one daemon thread. It answers the actor also while the application does something
else.
"""

from __future__ import annotations

import atexit
import logging
import os
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from ...protocol.errors import ConnectionFailed, KafkaError
from .frames.item_codec import decode_items
from .frames.queue_frames import (
    HEADER,
    IDENTITY_BYTES,
    RELEASE_BODY,
    TAKE_BODY,
    VALUE,
    FrameError,
    FrameKind,
    ItemPiece,
    Piece,
    frame,
    pack_pieces,
    unpack_items,
)
from .process.consumed_reports import ConsumedReports
from .process.frame_sender import FrameSender
from .process.prefetched_items import PrefetchedItems
from .process.queue_requests import QueueRequests
from .received_item import Empty, Full, ReceivedItem

logger = logging.getLogger(__name__)

LEASE_SHARE: Final = 0.8
"""Share of its lease for which an item that was sent ahead may still be returned."""


@dataclass(frozen=True, slots=True)
class QueueAddress:
    """Address of the actor, and properties of the queue."""

    host: str
    port: int
    token: bytes
    maxsize: int
    lease_s: float
    max_deliveries: int
    retention_s: float

    @property
    def is_bounded(self) -> bool:
        """Whether puts wait for room."""
        return self.maxsize > 0


class QueueConnection:
    """find: returns the actor's address, from Ray, and waits while it is being restarted.

    Its parts have no reference to it: it is closed as soon as it is garbage-collected.

    Raises:
        Whatever `find` raises, e.g. ActorDiedError after the shutdown of the queue.
    """

    def __init__(self, find: Callable[[], QueueAddress]) -> None:
        self._find = find
        self._owner = os.urandom(IDENTITY_BYTES)
        self._lock = threading.Lock()
        self._connecting = threading.Lock()
        self._socket: socket.socket | None = None
        self._sender: FrameSender | None = None
        self._address: QueueAddress | None = None
        self._closed = False
        self._requests = QueueRequests()
        self._reports = ConsumedReports()
        self._prefetched = PrefetchedItems(self._reports.add)
        self._handed_out: set[Piece] = set()
        self._reader: threading.Thread | None = None
        atexit.register(_close_if_there, weakref.ref(self))

    def __del__(self) -> None:
        self.close()

    # --- from the application ----------------------------------------------------------------

    def pop(self) -> tuple[bool, Any]:
        """Return (True, next prefetched item), or (False, None). Raises errors of unpickling."""
        with self._lock:
            items = self._pop(1)
            return bool(items), items[0] if items else None

    def pop_many(self, count: int) -> list[Any]:
        """Return `count` items if so many are prefetched, else []. Raises errors of unpickling."""
        with self._lock:
            return self._pop(count)

    def fetch(self, least: int, timeout_s: float | None) -> Future[None]:
        """Request items; the future is done when there are items to pop. It raises Empty."""
        address = self.connect()
        with self._lock:
            most = self._prefetched.next_size(time.monotonic(), is_bounded=address.is_bounded)
            body = _take(least, max(least, most), timeout_s, exact=False, hand_out=False)
            return self._request(FrameKind.TAKE, body)

    def receive(self, least: int, most: int, timeout_s: float | None) -> Future[list[ReceivedItem]]:
        """Receive items that have to be acknowledged. Raises Empty."""
        self.connect()
        with self._lock:
            if self.ahead:  # they come before later ones
                self._return(0)
            body = _take(least, most, timeout_s, exact=True, hand_out=True)
            return self._request(FrameKind.TAKE, body, hand_out=True)

    def ask(
        self, kind: FrameKind, body: bytes = b"", *, count: int = 0, timeout_s: float | None = None
    ) -> Future[int]:
        """Send SIZE, REPLAY, or PUT of `count` items where there is a maxsize; return the answer.

        A PUT is sent again to the next actor, which recognizes it if it is in the log.
        Raises Full (PUT), KafkaError.
        """
        self.connect()
        with self._lock:
            if kind != FrameKind.PUT:
                return self._request(kind, body)
            self._check_open()
            self._report()
            data, answer = self._requests.open_put(body, count, _ms(timeout_s))
            self._send(data)
            return answer

    def settle(self, pieces: Sequence[Piece]) -> None:
        """Report items as consumed, without waiting; a lost report is repeated."""
        with self._lock:
            self._handed_out.difference_update(pieces)
            self._reports.add_all(pieces)
            self._report()

    def release(self, pieces: Sequence[Piece], delay_s: float) -> None:
        with self._lock:
            self._handed_out.difference_update(pieces)
            self._send(_release(pieces, delay_s))

    def extend(self, pieces: Sequence[Piece]) -> None:
        with self._lock:
            self._send(frame(FrameKind.EXTEND, 0, pack_pieces(pieces)))

    def cancel(self, answer: Future[Any]) -> None:
        """Cancel a request that the application no longer waits for."""
        with self._lock:
            number = self._requests.number_of(answer)
            if number is not None:
                self._send(frame(FrameKind.CANCEL, number))

    @property
    def socket(self) -> socket.socket | None:
        return self._socket

    @property
    def ahead(self) -> int:
        """Number of prefetched items that are not returned yet."""
        return self._prefetched.count

    def close(self, wait_s: float = 0.0) -> None:
        """Report consumed items, return prefetched ones to the queue, and end.

        Returns when the actor has read all frames, after `wait_s` at the latest.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._return(0)
            sender, self._socket, self._sender = self._sender, None, None
            waiting = self._requests.close_all()
        if sender is not None:
            sender.end()
        for request in waiting:
            request.answer.set_exception(ConnectionFailed("the queue is closed"))
        if wait_s and self._reader is not None and self._reader is not threading.current_thread():
            self._reader.join(wait_s)  # it ends when the actor has closed its end

    # --- with the lock -----------------------------------------------------------------------

    def _pop(self, count: int) -> list[Any]:
        if self.ahead < count:
            return []
        if self._prefetched.is_expired(time.monotonic()):
            self._return(0)
            return []
        popped = self._prefetched.pop(count, self._give_back)
        if self._address is not None and self._address.is_bounded:
            self._report()
        return popped

    def _give_back(self, pieces: Iterable[Piece]) -> None:
        """Return items that cannot be decoded here: they are delivered again, or become dead
        letters.
        """
        self._send(_release(pieces, 0.0))

    def _report(self) -> None:
        report = self._reports.next()
        if report is not None:
            number, pieces = report
            self._send(frame(FrameKind.SETTLE, number, pack_pieces(pieces)))

    def _return(self, number: int) -> None:
        """Return prefetched items to the queue; the answer to RECALL."""
        self._report()
        pieces = self._prefetched.take_back()
        self._send(frame(FrameKind.RETURN, number, pack_pieces(pieces)))

    def _request(self, kind: FrameKind, body: bytes, *, hand_out: bool = False) -> Future[Any]:
        self._check_open()
        self._report()
        data, answer = self._requests.open(kind, body, hand_out=hand_out)
        self._send(data)
        return answer

    def _check_open(self) -> None:
        """Raise ConnectionFailed if nobody is to answer: the queue has ended since `connect`."""
        if self._closed or self._address is None:
            raise ConnectionFailed("the queue is closed")

    def _send(self, data: bytes) -> None:
        """Send a frame; without a connection it is sent after the next one is made."""
        if self._sender is not None:
            self._sender.send(data)

    # --- connecting --------------------------------------------------------------------------

    def connect(self) -> QueueAddress:
        """Connect if needed; return the actor's address, with the settings of the queue."""
        if self._closed:
            raise ConnectionFailed("the queue is closed")
        address = self._address
        if address is not None:
            return address
        with self._connecting:
            if self._address is None:
                try:
                    self._connect()
                except OSError as error:
                    raise ConnectionFailed(
                        f"the queue's actor cannot be reached ({error}): can this machine connect "
                        "to any port of the node that it is on?"
                    ) from error
                me = weakref.ref(self)
                self._reader = threading.Thread(
                    target=_run, args=(me,), name="bradbury-queue", daemon=True
                )
                self._reader.start()
            assert self._address is not None
            return self._address

    def _connect(self) -> None:
        address = self._find()
        connection = socket.create_connection((address.host, address.port), timeout=10)
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._reports.next()  # its items are in HELLO
            number, pieces = self._reports.unconfirmed()
            hello = address.token + self._owner + VALUE.pack(len(pieces))
            hello += pack_pieces([*pieces, *self._handed_out])
            self._prefetched.clear()
            data = [frame(FrameKind.HELLO, 0, hello)]
            if number is not None:  # it is confirmed when the actor has committed
                data.append(frame(FrameKind.SETTLE, number, b""))
            data += self._requests.frames()
            self._socket, self._sender = connection, FrameSender(connection)
            self._sender.send(b"".join(data))
            self._address = address

    def reconnect(self) -> bool:
        """Connect again; return whether the reader is to continue."""
        with self._lock:
            self._socket = self._sender = None
        if self._closed:
            return False
        try:
            self._connect()
        except OSError:
            time.sleep(0.05)  # the address was that of a former actor: look it up again
        except Exception as error:  # noqa: BLE001 -- it is raised to those that wait
            self._fail(error)
            return False
        return True

    def _fail(self, error: Exception) -> None:
        """Fail all requests, as there is no actor; a later call looks for it again."""
        with self._lock:
            self._address = None
            waiting = self._requests.close_all()
        for request in waiting:
            request.answer.set_exception(error)

    # --- from the actor ----------------------------------------------------------------------

    def on_frame(self, kind: int, number: int, body: memoryview) -> None:
        match kind:
            case FrameKind.ITEMS:
                self._on_items(number, unpack_items(body))
            case FrameKind.EMPTY:
                self._answer(number, Empty("there are no items, or not so many"))
            case FrameKind.FULL:
                self._answer(number, Full("the items would be more than maxsize"))
            case FrameKind.DONE:
                self._answer(number, VALUE.unpack(body)[0])
            case FrameKind.ERROR:
                self._answer(number, KafkaError(bytes(body).decode()))
            case FrameKind.REPORT:
                with self._lock:
                    self._report()
                    if number:
                        self._send(frame(FrameKind.RETURN, number))
            case FrameKind.RECALL:
                with self._lock:
                    self._return(number)
            case FrameKind.CONFIRM:
                with self._lock:
                    self._reports.on_confirmed(number)

    def _answer(self, number: int, result: object) -> None:
        with self._lock:
            request = self._requests.close(number)
        if request is None:
            return
        if isinstance(result, Exception):
            request.answer.set_exception(result)
        else:
            request.answer.set_result(result)

    def _on_items(self, number: int, pieces: Sequence[ItemPiece]) -> None:
        with self._lock:
            request = self._requests.close(number)
            if request is None or not request.hand_out:
                assert self._address is not None
                until = time.monotonic() + self._address.lease_s * LEASE_SHARE
                self._prefetched.add(pieces, until)
                # Other requests of this process wait for an item: the received items serve them,
                # too.
                cancels, served = self._requests.close_served(self.ahead - 1)
                if served:
                    self._send(cancels)
        if request is not None and request.hand_out:
            self._hand_out(request.answer, pieces)
            return
        for answer in served:
            answer.set_result(None)
        if request is not None:
            request.answer.set_result(None)

    def _hand_out(self, answer: Future[Any], pieces: Iterable[ItemPiece]) -> None:
        """Complete a receive. Records that cannot be decoded are returned; without others, it
        fails.
        """
        received: list[ReceivedItem] = []
        failure: Exception | None = None
        for piece in pieces:
            try:
                items = decode_items(piece.is_pickled, piece.value)
            except Exception as error:  # noqa: BLE001 -- raised to the caller
                failure = error
                with self._lock:
                    self._give_back([(piece.offset, piece.first, piece.last)])
                continue
            received += [
                ReceivedItem(items[index], piece.delivery_count, piece.offset, index, self)
                for index in range(piece.first, piece.last)
            ]
        with self._lock:
            self._handed_out.update((one.offset, one.index, one.index + 1) for one in received)
        if received or failure is None:
            answer.set_result(received)
        else:
            answer.set_exception(failure)


def _release(pieces: Iterable[Piece], delay_s: float) -> bytes:
    body = RELEASE_BODY.pack(int(delay_s * 1000)) + pack_pieces(pieces)
    return frame(FrameKind.RELEASE, 0, body)


def _take(least: int, most: int, timeout_s: float | None, *, exact: bool, hand_out: bool) -> bytes:
    return TAKE_BODY.pack(least, most, _ms(timeout_s), exact, hand_out)


def _ms(timeout_s: float | None) -> int:
    return -1 if timeout_s is None else int(timeout_s * 1000)


def _run(me: weakref.ref[QueueConnection]) -> None:
    """The reader. It references the connection only while it handles a frame for it."""
    going_on = True
    while going_on:
        one = me()
        if one is None:
            return
        connection = one.socket
        del one
        if connection is not None:
            try:
                _read(connection, me)
            except (OSError, EOFError, FrameError, struct.error, ValueError) as error:
                if not isinstance(error, OSError):
                    logger.warning("queue: the connection is closed: %s", error)
            connection.close()
        one = me()
        going_on = one is not None and one.reconnect()


def _read(connection: socket.socket, me: weakref.ref[QueueConnection]) -> None:
    """Read frames until the connection ends."""
    with connection.makefile("rb", buffering=256 * 1024) as stream:
        while len(head := stream.read(HEADER.size)) == HEADER.size:
            length, kind, number = HEADER.unpack(head)
            body = stream.read(length - (HEADER.size - 4))
            one = me()
            if one is None:
                return
            one.on_frame(kind, number, memoryview(body))
            del one


def _close_if_there(one: weakref.ref[QueueConnection]) -> None:
    connection = one()
    if connection is not None:
        connection.close()
