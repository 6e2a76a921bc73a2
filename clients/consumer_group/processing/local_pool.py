"""The worker of a member that processes by itself: a second thread besides the polling one.

While the function runs, the member polls, heartbeats and commits. That holds for Python code and
for code that releases the GIL; a function that holds the GIL for longer than the session timeout
needs separate workers (actor_pool).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

from .batch import Batch
from .function import CallOutcome, Function, call

WORKER: Final = "member"


class PoolEvents(Protocol):
    """The events that a pool reports to its member, from its own threads."""

    def on_worker_up(self, worker: str) -> None: ...

    def on_worker_down(self, worker: str, reason: Exception) -> None: ...

    def on_outcome(self, worker: str, batch: Batch, outcome: CallOutcome, result: Any) -> None: ...

    def on_failure(self, error: Exception) -> None:
        """Called if the function cannot be built, so that nothing can be processed."""


class Pool(Protocol):
    def resize(self, count: int) -> None: ...

    def start(self, worker: str, batch: Batch) -> None: ...

    def retire(self, worker: str) -> None:
        """End a worker that has no batches left."""

    def close(self) -> None: ...


class LocalPool:
    def __init__(self, function: Function, events: PoolEvents) -> None:
        self._events = events
        self._queue: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._function = function
        threading.Thread(target=self._run, name="bradbury-processing", daemon=True).start()

    def resize(self, count: int) -> None:
        """Do nothing: a member without workers has only this thread."""

    def start(self, worker: str, batch: Batch) -> None:
        self._queue.put(batch)

    def retire(self, worker: str) -> None:
        """Never called: this worker stays."""

    def close(self) -> None:
        self._queue.put(None)

    def _run(self) -> None:
        try:
            built: Callable[..., Any] = self._function.build()
        except Exception as error:  # noqa: BLE001 -- the user's constructor; it is reported to the user
            self._events.on_failure(error)
            return
        self._events.on_worker_up(WORKER)
        while (batch := self._queue.get()) is not None:
            outcome, result = call(built, batch.table)
            self._events.on_outcome(WORKER, batch, outcome, result)
