"""Requests of one connection that have no answer yet, in their order, and their deadlines.

Answers come in the order of the requests, so only the oldest one's deadline matters: later ones can
only be answered after it. One timer serves all: it is set again when it fires early, so a stream of
requests costs no timer each.

Source: InFlightRequests.java in apache/kafka's clients.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from ...protocol.schema import Message
from ..threads.io_thread import IoThread, Timer


class InFlightRequest(NamedTuple):
    """A request that was sent. `deadline`: on the clock time.monotonic."""

    correlation_id: int
    response: type[Message]
    version: int
    future: Future[Any]
    deadline: float


class InFlightRequests:
    """on_late: called with the oldest request, once its deadline has passed."""

    def __init__(self, io: IoThread, on_late: Callable[[InFlightRequest], None]) -> None:
        self._io = io
        self._on_late = on_late
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self.correlation_ids = itertools.count(1)
        """Ids of the next requests, whether they have an answer or not."""
        self.requests: deque[InFlightRequest] = deque()
        """The oldest first. Call `keep_time` after each change that leaves any."""

    def keep_time(self) -> None:
        """Set the timer, to fire no later than the oldest request's deadline."""
        deadline = self.requests[0].deadline
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._io.call_later(max(0.0, deadline - time.monotonic()), self._on_time)

    def close(self) -> list[Future[Any]]:
        """Stop the timer, and remove all requests; return their futures."""
        if self._timer is not None:
            self._timer.cancel()
        futures = [request.future for request in self.requests]
        self.requests.clear()
        return futures

    def _on_time(self) -> None:
        self._timer = None
        if not self.requests:
            return
        if self.requests[0].deadline <= time.monotonic():
            self._on_late(self.requests[0])
        else:
            self.keep_time()
