"""The dispatcher of a member's batches: which worker gets which batch, and when.

What always holds:
    A worker has at most `max_in_flight` batches: one it works on, the others at hand.
    Of a lane at most one batch is with a worker at a time, and lanes are first in, first out: so
    records of one key, or of one partition, are processed in order, by whichever worker.
    A lane has one worker as its home for as long as that worker is there, so what a worker keeps
    in memory of a key stays true; when workers come and go as few lanes move as keep them even.
    What a worker had when it died goes to others before everything else, and counts as an attempt
    for the oldest of it only, which is what it worked on.
    A batch with an attempt is alone with its worker. The oldest may have been finished, and its
    outcome lost with the worker that died of the next one: alone, only the guilty one counts again.

Pure: `starts` says what to send where, the caller does.

Not here: what is unfinished and may be committed (progress).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from ...wire.record_metadata import TopicPartition
from .batch import Batch

Merge = Callable[[list[Batch]], Batch]


class Dispatcher:
    """`merge` makes one batch of small ones that wait in a lane, up to `batch_records` rows."""

    def __init__(self, *, lanes: int, max_in_flight: int, batch_records: int, merge: Merge) -> None:
        self._lanes = lanes
        self._max_in_flight = max_in_flight
        self._batch_records = batch_records
        self._merge = merge
        self._free: deque[Batch] = deque()
        self._queues: dict[int, deque[Batch]] = {}
        self._busy_lanes: set[int] = set()
        self._in_flight: dict[str, dict[int, Batch]] = {}
        self._retiring: set[str] = set()
        self._homes: dict[int, str] = {}
        self._held: set[TopicPartition] = set()

    # --- workers -----------------------------------------------------------------------------

    def add_worker(self, worker: str) -> None:
        self._in_flight.setdefault(worker, {})
        self._retiring.discard(worker)
        self._share_lanes()

    def retire_worker(self, worker: str) -> bool:
        """It gets nothing more; True when it has nothing left."""
        self._retiring.add(worker)
        self._share_lanes()
        return not self._in_flight.get(worker)

    def remove_worker(self, worker: str) -> list[Batch]:
        """It is gone. Its batches, oldest first, wait again; they are returned."""
        lost = list(self._in_flight.pop(worker, {}).values())
        self._retiring.discard(worker)
        if lost:
            lost[0].attempts += 1
        for batch in reversed(lost):
            if batch.lane is None:
                self._free.appendleft(batch)
            else:
                self._busy_lanes.discard(batch.lane)
                self._queues.setdefault(batch.lane, deque()).appendleft(batch)
        self._share_lanes()
        return lost

    @property
    def workers(self) -> list[str]:
        """The workers that get batches."""
        return [worker for worker in self._in_flight if worker not in self._retiring]

    @property
    def retiring(self) -> list[str]:
        """The workers that finish what they have and get nothing more."""
        return [worker for worker in self._in_flight if worker in self._retiring]

    # --- batches -----------------------------------------------------------------------------

    def add(self, batch: Batch, *, first: bool = False) -> None:
        """`first`: it has failed and is to be tried again, before what came after it."""
        queue = self._free
        if batch.lane is not None:
            queue = self._queues.setdefault(batch.lane, deque())
        if first:
            queue.appendleft(batch)
        else:
            queue.append(batch)

    def starts(self) -> list[tuple[str, Batch]]:
        """What goes to a worker now. Each is in flight from here on."""
        found: list[tuple[str, Batch]] = []
        while True:
            start = self._next_free() or self._next_of_lanes()
            if start is None:
                return found
            worker, batch = start
            self._in_flight[worker][batch.number] = batch
            found.append(start)

    def on_finished(self, worker: str, batch: Batch) -> bool:
        """False: it was not with this worker, and is done, or being done, elsewhere."""
        if self._in_flight.get(worker, {}).pop(batch.number, None) is None:
            return False
        if batch.lane is not None:
            self._busy_lanes.discard(batch.lane)
        return True

    def is_idle(self, worker: str) -> bool:
        """Whether it is there and has nothing."""
        return worker in self._in_flight and not self._in_flight[worker]

    def discard(self, unwanted: Callable[[Batch], bool]) -> list[Batch]:
        """Remove queued batches that are no longer needed."""
        taken = []
        for queue in (self._free, *self._queues.values()):
            kept = [batch for batch in queue if not unwanted(batch)]
            taken += [batch for batch in queue if unwanted(batch)]
            queue.clear()
            queue.extend(kept)
        return taken

    def hold(self, keys: Iterable[TopicPartition]) -> None:
        """Start nothing of these partitions until `release`."""
        self._held.update(keys)

    def release(self) -> None:
        self._held.clear()

    def in_flight(self, keys: Iterable[TopicPartition] | None = None) -> int:
        """How many batches are with workers: all, or those of some partitions."""
        wanted = None if keys is None else set(keys)
        return sum(
            wanted is None or not wanted.isdisjoint(batch.topic_partitions)
            for batches in self._in_flight.values()
            for batch in batches.values()
        )

    def waiting(self) -> int:
        return len(self._free) + sum(len(queue) for queue in self._queues.values())

    def rows(self) -> int:
        """Rows of everything that waits or is with a worker."""
        queues = (
            self._free,
            *self._queues.values(),
            *(b.values() for b in self._in_flight.values()),
        )
        return sum(batch.rows for queue in queues for batch in queue)

    # --- choices -----------------------------------------------------------------------------

    def _next_free(self) -> tuple[str, Batch] | None:
        if not self._free or self._is_held(self._free[0]):
            return None
        able = [worker for worker in self.workers if self._has_room(worker, self._free[0])]
        idle = min(able, key=lambda worker: len(self._in_flight[worker]), default=None)
        return None if idle is None else (idle, self._free.popleft())

    def _next_of_lanes(self) -> tuple[str, Batch] | None:
        ready = [
            (lane, queue)
            for lane, queue in self._queues.items()
            if queue and lane not in self._busy_lanes and not self._is_held(queue[0])
        ]
        awaited = {self._homes.get(lane) for lane, queue in ready if queue[0].attempts}
        for lane, queue in ready:
            home = self._homes.get(lane)
            if home is None or not self._has_room(home, queue[0]):
                continue
            if home in awaited and not queue[0].attempts:
                continue  # it is to have nothing, so that it can take one alone
            self._queues[lane] = self._queues.pop(lane)  # the others first next time
            self._busy_lanes.add(lane)
            return home, self._take(queue)
        return None

    def _has_room(self, worker: str, batch: Batch) -> bool:
        taken = self._in_flight[worker].values()
        if batch.attempts:
            return not taken
        return len(taken) < self._max_in_flight and not any(one.attempts for one in taken)

    def _take(self, queue: deque[Batch]) -> Batch:
        """The first that waits, with those after it that fit; one that was tried before, alone."""
        taken = [queue.popleft()]
        rows = taken[0].rows
        while (
            queue
            and not taken[0].attempts
            and not queue[0].attempts
            and not self._is_held(queue[0])
            and rows + queue[0].rows <= self._batch_records
        ):
            taken.append(queue.popleft())
            rows += taken[-1].rows
        return self._merge(taken)

    def _is_held(self, batch: Batch) -> bool:
        return bool(self._held) and not self._held.isdisjoint(batch.topic_partitions)

    def _share_lanes(self) -> None:
        """Every lane has a home, and no worker has two more than another."""
        workers = self.workers
        if not workers:
            self._homes.clear()
            return
        load: dict[str, list[int]] = {worker: [] for worker in workers}
        for lane in range(self._lanes):
            home = self._homes.get(lane)
            if home in load:
                load[home].append(lane)
        homeless = [lane for lane in range(self._lanes) if self._homes.get(lane) not in load]
        for lane in homeless:
            poorest = min(workers, key=lambda worker: len(load[worker]))
            load[poorest].append(lane)
        while True:
            richest = max(workers, key=lambda worker: len(load[worker]))
            poorest = min(workers, key=lambda worker: len(load[worker]))
            if len(load[richest]) - len(load[poorest]) < 2:
                break
            load[poorest].append(load[richest].pop())
        self._homes = {lane: worker for worker, lanes in load.items() for lane in lanes}
