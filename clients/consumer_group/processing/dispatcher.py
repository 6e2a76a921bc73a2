"""The dispatcher of a member's batches: assigns batches to workers.

Invariants:
    A worker has at most `max_in_flight` batches: one in progress, the others queued at it.
    At most one batch of a lane is with a worker at a time, and lanes are first in, first out: so
    records of one key, or of one partition, are processed in order.
    A lane keeps its worker for as long as the worker exists, so that state that a worker keeps
    per key stays valid; when workers are added or removed as few lanes move as possible.
    Batches of a worker that died are reassigned before others, and `attempts` rises only for the
    oldest of them, which was in progress.
    A batch with a failed attempt is sent to a worker alone. The oldest batch may have been
    finished, and its outcome lost when the next one killed the worker: sent alone, only the batch
    that kills workers is counted again.

Pure: `starts` returns the batches to send, and the caller sends them.

Not here: progress and commits (group_progress).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from ....protocol.topic_partition import TopicPartition
from .batch import Batch

Merge = Callable[[list[Batch]], Batch]


class Dispatcher:
    """Dispatcher of one member. merge: merges batches of a lane, up to `batch_records` rows."""

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
        """Assign no more batches to a worker; return whether it has none left."""
        self._retiring.add(worker)
        self._share_lanes()
        return not self._in_flight.get(worker)

    def remove_worker(self, worker: str) -> list[Batch]:
        """Remove a worker that died; its batches, oldest first, are queued again and returned."""
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
        """Workers that get batches."""
        return [worker for worker in self._in_flight if worker not in self._retiring]

    @property
    def retiring(self) -> list[str]:
        """Workers that finish their batches and get no more."""
        return [worker for worker in self._in_flight if worker in self._retiring]

    # --- batches -----------------------------------------------------------------------------

    def add(self, batch: Batch, *, first: bool = False) -> None:
        """Queue a batch. first: it is retried, before later batches."""
        queue = self._free
        if batch.lane is not None:
            queue = self._queues.setdefault(batch.lane, deque())
        if first:
            queue.appendleft(batch)
        else:
            queue.append(batch)

    def starts(self) -> list[tuple[str, Batch]]:
        """Assign batches to workers now; they are in flight from here on."""
        found: list[tuple[str, Batch]] = []
        while True:
            start = self._next_free() or self._next_of_lanes()
            if start is None:
                return found
            worker, batch = start
            self._in_flight[worker][batch.number] = batch
            found.append(start)

    def on_finished(self, worker: str, batch: Batch) -> bool:
        """Record the end of a batch; False: it was reassigned to another worker."""
        if self._in_flight.get(worker, {}).pop(batch.number, None) is None:
            return False
        if batch.lane is not None:
            self._busy_lanes.discard(batch.lane)
        return True

    def is_idle(self, worker: str) -> bool:
        """Whether a worker exists and has no batches."""
        return worker in self._in_flight and not self._in_flight[worker]

    def discard(self, unwanted: Callable[[Batch], bool]) -> list[Batch]:
        """Remove queued batches that are `unwanted`; return them."""
        taken = []
        for queue in (self._free, *self._queues.values()):
            kept = [batch for batch in queue if not unwanted(batch)]
            taken += [batch for batch in queue if unwanted(batch)]
            queue.clear()
            queue.extend(kept)
        return taken

    def hold(self, keys: Iterable[TopicPartition]) -> None:
        """Start no batches of these partitions until `release`."""
        self._held.update(keys)

    def release(self) -> None:
        self._held.clear()

    def in_flight(self, keys: Iterable[TopicPartition] | None = None) -> int:
        """Number of batches with workers: all, or those of some partitions."""
        wanted = None if keys is None else set(keys)
        return sum(
            wanted is None or not wanted.isdisjoint(batch.topic_partitions)
            for batches in self._in_flight.values()
            for batch in batches.values()
        )

    def waiting(self) -> int:
        return len(self._free) + sum(len(queue) for queue in self._queues.values())

    def rows(self) -> int:
        """Number of rows of all batches that wait or are with a worker."""
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
                continue  # kept free for a batch that is sent alone
            self._queues[lane] = self._queues.pop(lane)  # moved behind the other lanes
            self._busy_lanes.add(lane)
            return home, self._take(queue)
        return None

    def _has_room(self, worker: str, batch: Batch) -> bool:
        taken = self._in_flight[worker].values()
        if batch.attempts:
            return not taken
        return len(taken) < self._max_in_flight and not any(one.attempts for one in taken)

    def _take(self, queue: deque[Batch]) -> Batch:
        """Take the first batch, merged with following ones that fit; a retried batch alone."""
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
        """Assign every lane to a worker, so that the numbers of lanes differ by at most one."""
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
