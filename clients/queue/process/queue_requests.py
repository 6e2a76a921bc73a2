"""Requests of a process to the actor of a queue that have no answer yet.

They are sent again to the next actor, so each is kept as it was sent.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from ...threads.awaitable_future import AwaitableFuture
from ..frames.queue_frames import FrameKind, frame


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

    def open(
        self, kind: FrameKind, body: bytes, *, hand_out: bool = False
    ) -> tuple[bytes, Future[Any]]:
        """Open a request; return its frame, and the future of its answer."""
        self._numbers = self._numbers % 0x7FFF_FFFF + 1
        answer: Future[Any] = AwaitableFuture()
        self._open[self._numbers] = QueueRequest(kind, body, answer, hand_out)
        return frame(kind, self._numbers, body), answer

    def close(self, number: int) -> QueueRequest | None:
        """The request that an answer belongs to; None if nobody waits for it any more."""
        return self._open.pop(number, None)

    def close_all(self) -> list[QueueRequest]:
        """Requests that will have no answer."""
        requests = list(self._open.values())
        self._open.clear()
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
