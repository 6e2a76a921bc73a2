"""Outcomes of records: the futures of `send`, and the one future of `send_batch`.

Invariants:
    A future of `send` is two words: its run, shared by all records flushed together, and its row.
    All outcomes of a producer are reported under one condition: no record needs its own lock.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Generator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from ...threads.awaitable_future import AwaitableFuture
from ...wire.record_metadata import BatchMetadata, OffsetRange, RecordMetadata
from .producer_batch import AppendedBatch, ProducerBatch

if TYPE_CHECKING:
    import asyncio

logger = logging.getLogger(__name__)

HeaderPairs = list[tuple[str, bytes | None]]


class CollectedRecords:
    """The records that `send` collects for one topic until they are encoded together.

    headers, partitions: None until a record has one; -1 is no partition.
    size: bytes, of the producer's `buffer_memory`. deadline: time.monotonic() seconds.
    """

    __slots__ = (
        "_batch_of",
        "_batches",
        "_callbacks",
        "_position_of",
        "_waiters",
        "condition",
        "deadline",
        "error",
        "has_keys",
        "headers",
        "keys",
        "partitions",
        "size",
        "timestamps",
        "topic",
        "values",
    )

    def __init__(self, topic: str, condition: threading.Condition, deadline: float) -> None:
        self.topic = topic
        self.condition = condition
        self.deadline = deadline
        self.keys: list[bytes | None] = []
        self.has_keys = False
        self.values: list[bytes | None] = []
        self.timestamps: list[int] = []
        self.headers: list[HeaderPairs | None] | None = None
        self.partitions: list[int] | None = None
        self.size = 0
        self.error: Exception | None = None
        self._batches: list[ProducerBatch] = []
        self._batch_of: npt.NDArray[np.int32] | None = None
        self._position_of: npt.NDArray[np.int32] | None = None
        self._callbacks: dict[int, list[tuple[RecordFuture, DoneCallback]]] = {}
        self._waiters: dict[int, list[asyncio.Future[None]]] = {}

    def on_placed(self, batches: list[ProducerBatch]) -> None:
        """Record which batch each row is in. The columns are not needed any more."""
        count = len(self.values)
        batch_of: npt.NDArray[np.int32] = np.empty(count, np.int32)
        position_of: npt.NDArray[np.int32] = np.empty(count, np.int32)
        for number, batch in enumerate(batches):
            batch_of[batch.rows] = number
            position_of[batch.rows] = np.arange(batch.record_count, dtype=np.int32)
        self._batches = batches
        self._position_of = position_of
        self._batch_of = batch_of
        self.keys, self.values, self.headers, self.partitions = [], [], None, None

    def fail(self, error: Exception) -> None:
        """Fail all records, which could not be encoded."""
        with self.condition:
            self.error = error
            self.condition.notify_all()
        self._call_back([*self._callbacks, *self._waiters])

    def outcome(self, row: int) -> RecordMetadata | Exception | None:
        """Outcome of a row; None while it is open."""
        if self.error is not None:
            return self.error
        if self._batch_of is None or self._position_of is None:
            return None
        batch = self._batches[self._batch_of[row]]
        outcome = batch.outcome
        if outcome is None or isinstance(outcome, Exception):
            return outcome
        offset, timestamp = outcome
        if offset >= 0:
            offset += int(self._position_of[row])
        if timestamp < 0:
            timestamp = self.timestamps[row]
        return RecordMetadata(self.topic, batch.partition, offset, timestamp)

    def on_done(self, batch: ProducerBatch, outcome: AppendedBatch | Exception) -> None:
        if self._callbacks or self._waiters:
            self._call_back(batch.rows.tolist())

    def on_split(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        assert self._batch_of is not None
        assert self._position_of is not None
        with self.condition:
            for part in parts:
                self._batch_of[part.rows] = len(self._batches)
                self._position_of[part.rows] = np.arange(part.record_count, dtype=np.int32)
                self._batches.append(part)

    def add_callback(self, row: int, future: RecordFuture, callback: DoneCallback) -> None:
        with self.condition:
            if self.outcome(row) is None:
                self._callbacks.setdefault(row, []).append((future, callback))
                return
        callback(future)

    def add_waiter(self, row: int, waiter: asyncio.Future[None]) -> bool:
        """Have `waiter` done on its loop when the row is; return False if the row is already."""
        with self.condition:
            if self.outcome(row) is not None:
                return False
            self._waiters.setdefault(row, []).append(waiter)
            return True

    def _call_back(self, rows: Collection[int]) -> None:
        with self.condition:
            done = [entry for row in rows for entry in self._callbacks.pop(row, ())]
            waiters = [waiter for row in rows for waiter in self._waiters.pop(row, ())]
        if waiters:
            _wake(waiters)
        for future, callback in done:
            try:
                callback(future)
            except Exception:
                logger.exception("a delivery callback failed")


def _wake(waiters: list[asyncio.Future[None]]) -> None:
    """Wake each loop once, however many coroutines wait there."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = defaultdict(list)
    for waiter in waiters:
        by_loop[waiter.get_loop()].append(waiter)
    for loop, theirs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle_all, theirs)
        except RuntimeError:
            pass  # the loop is closed: no coroutine waits any more


def _settle_all(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


class RecordFuture(AwaitableFuture[RecordMetadata]):
    """Future of one sent record, with its metadata.

    It is a concurrent.futures.Future, but has only the two slots below: attributes of the base
    class are created when they are accessed, as by concurrent.futures.wait.
    """

    __slots__ = ("_row", "_run")

    def __init__(self, run: CollectedRecords, row: int) -> None:
        self._run = run
        self._row = row

    def done(self) -> bool:
        return self._run.outcome(self._row) is not None

    def running(self) -> bool:
        return not self.done()

    def cancelled(self) -> bool:
        return False

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait, at most `timeout` seconds, until the record is acknowledged.

        Raises:
            TimeoutError: it is still open.
            KafkaError, ConnectionFailed: the reason why it was not delivered.
        """
        outcome = self._wait(timeout)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def exception(self, timeout: float | None = None) -> Exception | None:
        outcome = self._wait(timeout)
        return outcome if isinstance(outcome, Exception) else None

    def add_done_callback(self, callback: DoneCallback) -> None:
        """Call `callback(future)` when it is done: on the client's thread, or now if it is."""
        self._run.add_callback(self._row, self, callback)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self.done():
            from asyncio import get_running_loop

            waiter = get_running_loop().create_future()
            if self._run.add_waiter(self._row, waiter):
                yield from waiter
        return self.result()

    def __getattr__(self, name: str) -> Any:
        """Attributes of the base class, which functions of concurrent.futures use."""
        if name not in _BASE_STATE:
            raise AttributeError(f"a future of a sent record has no {name!r}")
        with _BASE_LOCK:
            is_new = "_condition" not in vars(self)
            if is_new:
                super().__init__()
        if is_new:
            self.add_done_callback(RecordFuture._settle)
        return vars(self)[name]

    def __repr__(self) -> str:
        outcome = self._run.outcome(self._row)
        return f"<RecordFuture of {self._run.topic!r}: {outcome or 'not acknowledged yet'}>"

    def _settle(self) -> None:
        outcome = self._run.outcome(self._row)
        if isinstance(outcome, Exception):
            self.set_exception(outcome)
        elif outcome is not None:
            self.set_result(outcome)

    def _wait(self, timeout: float | None) -> RecordMetadata | Exception:
        run, row = self._run, self._row
        outcome = run.outcome(row)
        if outcome is None:
            with run.condition:
                run.condition.wait_for(lambda: run.outcome(row) is not None, timeout)
            outcome = run.outcome(row)
        if outcome is None:
            raise TimeoutError(f"the record is not acknowledged within {timeout} s")
        return outcome


_BASE_STATE: Final = frozenset(vars(Future()))
_BASE_LOCK: Final = threading.Lock()

DoneCallback = Callable[[RecordFuture], Any]


class TableDelivery:
    """All batches of one `send_batch`. It fails with its first failure, when all are done."""

    def __init__(self, topic: str) -> None:
        self.future: AwaitableFuture[BatchMetadata] = AwaitableFuture()
        self._topic = topic
        self._count = 0
        self._placed = 0
        self._lock = threading.Lock()
        self._open = 1  # the open call itself, which `seal` ends
        self._ranges: list[OffsetRange] = []
        self._error: Exception | None = None

    def add(self, count: int) -> None:
        """Count records that are about to be sent."""
        self._count += count

    @property
    def unplaced_count(self) -> int:
        """Number of records that are in no batch; if sending failed, these were not sent."""
        return self._count - self._placed

    def on_placed(self, batches: list[ProducerBatch]) -> None:
        with self._lock:
            self._open += len(batches)
            self._placed += sum(batch.record_count for batch in batches)

    def seal(self, error: Exception | None = None) -> None:
        """Declare that no more batches follow; error: the reason, if sending has failed."""
        self._close(error)

    def on_done(self, batch: ProducerBatch, outcome: AppendedBatch | Exception) -> None:
        if isinstance(outcome, AppendedBatch):
            start = outcome.base_offset
            if start >= 0:
                with self._lock:
                    self._ranges.append(
                        OffsetRange(batch.partition, start, start + batch.record_count)
                    )
            self._close(None)
        else:
            self._close(outcome)

    def on_split(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        with self._lock:
            self._open += len(parts) - 1

    def _close(self, error: Exception | None) -> None:
        with self._lock:
            self._error = self._error or error
            self._open -= 1
            if self._open:
                return
        if self._error is not None:
            self.future.set_exception(self._error)
        else:
            self.future.set_result(BatchMetadata(self._topic, self._count, _merged(self._ranges)))


def _merged(ranges: list[OffsetRange]) -> tuple[OffsetRange, ...]:
    merged: list[OffsetRange] = []
    for one in sorted(ranges):
        if merged and merged[-1].partition == one.partition and merged[-1].end == one.start:
            merged[-1] = OffsetRange(one.partition, merged[-1].start, one.end)
        else:
            merged.append(one)
    return tuple(merged)
