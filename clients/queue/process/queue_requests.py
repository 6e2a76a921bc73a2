"""Requests of a process to the actor of a queue that have no answer yet.

They are sent again to the next actor, so each is kept as it was sent. Puts have numbers that do
not come again: an actor recognizes one that is in the log, but whose answer was lost.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from ...threads.awaitable_future import AwaitableFuture
from ..frames.queue_frames import PUT_BODY, FrameKind, frame


@dataclass(slots=True)
class QueueRequest:
    """Pending request. hand_out: its items have to be acknowledged."""

    kind: FrameKind
    body: bytes
    answer: Future[Any]
    hand_out: bool = False


class QueueRequests:
    """Pending requests by number, which their frames carry. Guarded by the connection's lock."""

    def __init__(self) -> None:
        self._numbers = 0
        self._open: dict[int, QueueRequest] = {}
        self._puts = 0
        self._open_puts: dict[int, int] = {}  # numbers of puts, by those of their requests

    def open(
        self, kind: FrameKind, body: bytes, *, hand_out: bool = False
    ) -> tuple[bytes, Future[Any]]:
        """Open a request; return its frame, and the future of its answer."""
        self._numbers = self._numbers % 0x7FFF_FFFF + 1
        answer: Future[Any] = AwaitableFuture()
        self._open[self._numbers] = QueueRequest(kind, body, answer, hand_out)
        return frame(kind, self._numbers, body), answer

    def open_put(self, value: bytes, count: int, timeout_ms: int) -> tuple[bytes, Future[Any]]:
        """Open a PUT of `count` items."""
        self._puts += 1
        first = next(iter(self._open_puts.values()), self._puts)
        body = PUT_BODY.pack(timeout_ms, count, self._puts, first) + value
        data, answer = self.open(FrameKind.PUT, body)
        self._open_puts[self._numbers] = self._puts
        return data, answer

    def close(self, number: int) -> QueueRequest | None:
        """The request that an answer belongs to; None if nobody waits for it any more."""
        self._open_puts.pop(number, None)
        return self._open.pop(number, None)

    def close_all(self) -> list[QueueRequest]:
        """Requests that will have no answer."""
        requests = list(self._open.values())
        self._open.clear()
        self._open_puts.clear()
        return requests

    def close_served(self, count: int) -> tuple[bytes, list[Future[Any]]]:
        """Close at most `count` requests for items that need no acknowledgement, as there are some.

        Returns:
            The frames that cancel them, and the futures of their answers.
        """
        served = [
            (number, request)
            for number, request in self._open.items()
            if request.kind == FrameKind.TAKE and not request.hand_out
        ][: max(0, count)]
        for number, _ in served:
            del self._open[number]
        cancels = b"".join(frame(FrameKind.CANCEL, number) for number, _ in served)
        return cancels, [request.answer for _, request in served]

    def number_of(self, answer: Future[Any]) -> int | None:
        """Number of the request with this future, if it is open."""
        for number, request in self._open.items():
            if request.answer is answer:
                return number
        return None

    def frames(self) -> list[bytes]:
        """Frames of all pending requests, to be sent again."""
        return [frame(each.kind, number, each.body) for number, each in self._open.items()]
