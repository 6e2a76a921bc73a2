"""Results of the functions, one batch after another, from all members.

    for result in group.map(parse):
        store(result)

Invariants:
    A result counts as handled when the next one is requested, and only then its batch is committed
    (at least once): results lost between a member and the loop are processed again.
    Results of a former process of a restarted member are not returned any more.
    Results of one member are returned in the order of completion.

Not here: processing and commits (member).
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, Self

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from ...protocol.topic_partition import TopicPartition
from .members import Members, WorkerMember
from .processing.function import BatchFailed
from .processing.processed_batches import Entry, MemberReport

TAKE_S: Final = 30.0
"""Seconds that a `take` call waits in a member; it returns at once when there are results."""


@dataclass(slots=True, eq=False)
class _Source:
    """State of a member. known: numbers of results that were taken. done: those handled."""

    member: WorkerMember
    life: str = ""
    version: int = -1
    open: int = -1
    known: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)
    ended: bool = False


class Results(Iterator[Any]):
    """Iterator until the group is stopped or, with `ends`, until all offsets before them are
    committed.

    Raises, from `next`:
        BatchFailed: the function raised, or a batch killed its workers. Requesting the next result
            marks the batch as handled; otherwise the next run processes it again.
        KafkaError, ConnectionFailed: a member cannot continue.
    """

    def __init__(
        self,
        members: Members,
        *,
        owner: object,
        by_reference: bool,
        ends: Mapping[TopicPartition, int] | None,
        committed: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        self._owner = owner  # keeps the group alive while its results are iterated
        self._by_reference = by_reference
        self._ends = ends
        self._committed = dict(committed or {})
        self._sources: dict[WorkerMember, _Source] = {}
        # Events get `results` as an argument, as other threads must not keep a dropped object
        # alive.
        self._events: queue.SimpleQueue[Callable[[Results], None]] = queue.SimpleQueue()
        self._ready: deque[tuple[_Source, Entry]] = deque()
        self._last: tuple[_Source, Entry] | None = None
        self._failure: Exception | None = None
        self._thread = 0
        events = self._events
        members.for_each(lambda member: events.put(lambda results: results._add(member)))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        result = self.next(None)
        if result is None:
            raise StopIteration
        return result[0]

    def next(self, timeout_s: float | None) -> tuple[Any] | None:
        """Return the next result, in a tuple; None at the end.

        Raises:
            TimeoutError: there is none within `timeout_s`.
        """
        self._thread = threading.get_ident()
        self._acknowledge()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            while self._ready:
                found = self._value(*self._ready.popleft())
                if found is not None:
                    return found
            if self._failure is not None:
                raise self._failure
            if self._is_over():
                return None
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                self._events.get(timeout=left_s)(self)
            except queue.Empty:
                raise TimeoutError(f"no result within {timeout_s} s") from None

    def is_iterated_here(self) -> bool:
        """Whether this thread handles the results."""
        return self._thread == threading.get_ident()

    def on_gone(self, member: WorkerMember) -> None:
        """Forget a member that was stopped. From any thread."""
        self._events.put(lambda results: results._end(member))

    # --- inside ------------------------------------------------------------------------------

    def _acknowledge(self) -> None:
        if self._last is None:
            return
        source, entry = self._last
        self._last = None
        if entry.number in source.known:
            source.done.add(entry.number)
            source.member.actor.acknowledge.remote(source.life, [entry.number])

    def _value(self, source: _Source, entry: Entry) -> tuple[Any] | None:
        """Result for the loop; None if it was lost with its member, and is processed again."""
        if entry.number not in source.known:
            return None
        result = entry.result
        if entry.outcome.error is None and self._by_reference:
            try:
                result = ray.get(result)
            except RayTaskError:
                raise
            except RayError:
                return None
        self._last = (source, entry)
        if entry.outcome.error is not None:
            raise BatchFailed(
                entry.spans, entry.table, entry.outcome.error, entry.outcome.traceback
            )
        return (result,)

    def _is_over(self) -> bool:
        sources = self._sources.values()
        if not sources:
            return False
        if all(source.ended for source in sources):
            return True
        if self._ends is None:
            return False
        return all(
            self._committed.get(key, -1) >= end for key, end in self._ends.items()
        ) and not any(source.open for source in sources if not source.ended)

    def _add(self, member: WorkerMember) -> None:
        if member not in self._sources:
            for old in [one for one in self._sources if one.number == member.number]:
                self._end(old)
            self._sources[member] = _Source(member)
            self._ask(self._sources[member])

    def _ask(self, source: _Source) -> None:
        done = list(source.done)
        asked = source.member.actor.take.remote(
            source.life, list(source.known), done, source.version, TAKE_S
        )
        events = self._events
        asked.future().add_done_callback(
            lambda answer: events.put(lambda results: results._on_taken(source, done, answer))
        )

    def _on_taken(self, source: _Source, done: list[int], answer: Future[MemberReport]) -> None:
        if source.ended:
            return
        error = answer.exception()
        if isinstance(error, RayActorError):
            self._end(source.member)  # its actor is replaced, or it was stopped
            return
        if error is not None:
            raise error
        taken = answer.result()
        if taken.life != source.life:
            self._forget(source)
            source.life = taken.life
            done = []
        source.known.difference_update(done)
        source.done.difference_update(done)
        for entry in taken.entries:
            if entry.number not in source.known:
                source.known.add(entry.number)
                self._ready.append((source, entry))
        source.version, source.open = taken.version, taken.open
        for key, offset in taken.committed.items():
            self._committed[key] = max(offset, self._committed.get(key, -1))
        if taken.failure is not None:
            self._failure = taken.failure
        if taken.ended:
            source.ended = True
        else:
            self._ask(source)

    def _forget(self, source: _Source) -> None:
        source.known.clear()
        source.done.clear()
        self._ready = deque((one, entry) for one, entry in self._ready if one is not source)

    def _end(self, member: WorkerMember) -> None:
        source = self._sources.get(member)
        if source is not None:
            self._forget(source)
            source.ended = True
