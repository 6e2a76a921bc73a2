"""Mirror session whose Ray actors copy partitions; this process handles topics and groups.

Invariants:
    The worker of a partition is determined by the number of workers. When that changes, all
    former workers are fenced first (worker_layout).
    Ray restarts a worker that has died, and repeats its turn, from the committed positions.
    Workers end with this process; their open transactions are aborted when the next mirror starts,
    or by timeout.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal, Self

import ray

from ...discovery.ray_connection import join_for_clients
from . import mirror_positions
from .mirror_session import TOPICS_SECONDS, MirrorSession
from .mirror_settings import MirrorProgress, MirrorSettings
from .mirror_worker import MirrorPlan, MirrorWorker, TurnReport
from .record_copier import known_of
from .worker_layout import MOST_ACTORS, lay_out

logger = logging.getLogger(__name__)

TURN_SECONDS: Final = 1.0
WAIT_SECONDS: Final = 0.2
STOP_SECONDS: Final = 60.0
PARTITIONS_PER_ACTOR: Final = 8

_AS_ACTOR: Final[dict[str, Any]] = {
    "num_cpus": 0,
    "max_restarts": -1,
    "max_task_retries": -1,
    "concurrency_groups": {"control": 1},
}
_Worker: Any = ray.remote(**_AS_ACTOR)(MirrorWorker)


def actors_for(partitions: int) -> int:
    """Number of workers for this number of partitions."""
    return max(1, min(MOST_ACTORS, math.ceil(partitions / PARTITIONS_PER_ACTOR)))


class ActorMirrorSession(MirrorSession):
    """Session of a mirror whose partitions are copied by Ray actors.

    actors: number of workers; "auto": by the number of partitions, growing with it.
    actor_options: Ray options of the workers: num_cpus, resources, label_selector, ...
    Raises UpError if there is no Ray cluster to join.
    """

    def __init__(
        self,
        settings: MirrorSettings,
        actors: int | Literal["auto"],
        actor_options: Mapping[str, Any],
    ) -> None:
        join_for_clients(settings.target, None)
        super().__init__(settings)
        self._actors = actors
        self._options = dict(actor_options)
        self._workers: list[Any] = []
        self._turns: dict[Any, Any] = {}
        self._behind: dict[int, int] = {}
        self._total = MirrorProgress()

    def __enter__(self) -> Self:
        super().__enter__()
        self.copier.leads = True
        return self

    def __exit__(self, *_: object) -> None:
        self._end_workers()
        self._total, total = MirrorProgress(), self._total
        super().__exit__()
        self.progress = self._total = total

    def run(
        self,
        stopped: threading.Event,
        on_progress: Callable[[MirrorProgress], None],
        *,
        continuous: bool,
    ) -> None:
        self._follow_topics(on_progress, must_find=not continuous)
        turn_s = TURN_SECONDS if continuous else math.inf
        self._start_workers(turn_s)
        self._worked_at = looked_at = synced_at = time.monotonic()
        while self._turns:
            self._receive_reports(turn_s, stopped, on_progress, continuous=continuous)
            if stopped.is_set():
                self._request_workers_to_stop()
            if not continuous or stopped.is_set():
                continue
            if time.monotonic() - looked_at > TOPICS_SECONDS:
                if self._is_over():
                    return
                self._follow_topics(on_progress)
                looked_at = time.monotonic()
                if self._wanted_actors() > len(self._workers):
                    self._end_workers()
                    self._start_workers(turn_s)
            if time.monotonic() - synced_at > self._settings.sync_groups_interval_s:
                self._try_to_sync_groups()
                synced_at = time.monotonic()
        self.sync_groups()

    def sync_groups(self) -> None:
        """Sync group offsets by the offset syncs that the workers have committed."""
        topic = mirror_positions.positions_topic(self._settings.alias)
        state = mirror_positions.read_state(self.target, topic, self._settings.limits)
        known = known_of(state.positions, self.cluster, self.source)
        self.copier.syncs = {each.source: each.syncs for each in known}
        super().sync_groups()

    # --- workers -----------------------------------------------------------------------------

    def _wanted_actors(self) -> int:
        if self._actors != "auto":
            return self._actors
        return actors_for(sum(self.copier.partitions.values()))

    def _start_workers(self, turn_s: float) -> None:
        count = self._wanted_actors()
        layout = lay_out(self._settings, self.target, self.producer, self.cluster, count)
        self._workers = [
            _Worker.options(**self._options).remote(
                self._settings.alias, self.cluster, layout.epoch, number, count
            )
            for number in range(count)
        ]
        logger.info("mirror %s: %d workers, epoch %d", self._settings.alias, count, layout.epoch)
        for worker in self._workers:
            self._begin_turn(worker, turn_s)

    def _begin_turn(self, worker: Any, turn_s: float) -> None:
        copier = self.copier
        plan = MirrorPlan(dict(copier.targets), dict(copier.partitions), copier.commits)
        self._turns[worker.turn.remote(self._settings, plan, turn_s)] = worker

    def _receive_reports(
        self,
        turn_s: float,
        stopped: threading.Event,
        on_progress: Callable[[MirrorProgress], None],
        *,
        continuous: bool,
    ) -> None:
        done, _ = ray.wait(list(self._turns), num_returns=1, timeout=WAIT_SECONDS)
        for ref in done:
            report: TurnReport = ray.get(ref)
            worker = self._turns.pop(ref)
            self._worked_at = time.monotonic()
            self._add(self._workers.index(worker), report)
            if report.progress.commits:
                on_progress(self._total)
            if not stopped.is_set() and (continuous or not report.is_done):
                self._begin_turn(worker, turn_s)

    def _add(self, number: int, report: TurnReport) -> None:
        before, new = self._total, report.progress
        self._behind[number] = 0 if report.is_done else new.behind
        self._total = MirrorProgress(
            len(self.copier.targets),
            before.records + new.records,
            before.batches + new.batches,
            before.recoded + new.recoded,
            before.bytes + new.bytes,
            before.commits + new.commits,
            sum(self._behind.values()),
            self.copier.left_out,
        )

    def _with_topics(self, topics: int, left_out: tuple[str, ...]) -> MirrorProgress:
        self._total = replace(self._total, topics=topics, left_out=left_out)
        return self._total

    def _request_workers_to_stop(self) -> None:
        for worker in self._workers:
            worker.stop.options(concurrency_group="control").remote()

    def _end_workers(self) -> None:
        """Stop the workers after their current transactions; slow ones are killed."""
        if not self._workers or not ray.is_initialized():
            return
        self._request_workers_to_stop()
        turns = list(self._turns)
        if turns:
            ray.wait(turns, num_returns=len(turns), timeout=STOP_SECONDS)
        closed = [worker.close.remote() for worker in self._workers]
        ray.wait(closed, num_returns=len(closed), timeout=STOP_SECONDS)
        for worker in self._workers:
            ray.kill(worker)
        self._workers, self._turns, self._behind = [], {}, {}
