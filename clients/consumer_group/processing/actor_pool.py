"""Workers of a member as separate actors, possibly more than partitions.

Invariants:
    A worker's name has the number of its process ("w3#2"): outcomes from a former process are
    ignored, as from an unknown worker.
    A worker whose call failed gets no batches until its process is replaced: a process that still
    runs is killed. Ray restarts it, as a new worker.
    Workers end with their member, so that a restarted member's batches do not wait for batches of
    the former process.

    Ray's threads only record events; this pool's thread handles them. A Ray call in one of Ray's
    threads could wait for that same thread.

A batch is one call. Its table goes through Ray's object store; workers read it without a copy.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from itertools import count
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from .batch import Batch
from .function import CallOutcome, Function, call, portable
from .local_pool import PoolEvents

logger = logging.getLogger(__name__)

DEFAULT_OPTIONS: Final[Mapping[str, Any]] = {"num_cpus": 0, "max_restarts": -1}


class StaleWorker(Exception):
    """Raised if a batch was sent to a former process of the worker: not processed by this one."""


class WorkerProcess:
    """Code of a worker actor: one call at a time, in order."""

    def __init__(self, function: Function, *, deliver: bool) -> None:
        self._function = (
            function  # built in `ready`: an actor whose __init__ raises is never restarted
        )
        self._deliver = deliver
        self._built: Callable[[pa.Table], Any] | None = None
        self._life = uuid4().hex

    def __repr__(self) -> str:
        """Name shown in Ray's dashboard, with the function's name."""
        fn = self._function.fn
        return f"{type(self).__name__}({getattr(fn, '__name__', type(fn).__name__)})"

    @ray.method(max_task_retries=-1)
    def ready(self) -> str:
        """Build the function, and return the id of this process."""
        if self._built is None:
            self._built = self._function.build()
        return self._life

    @ray.method(num_returns=2, max_task_retries=0)
    def process(self, table: pa.Table) -> tuple[CallOutcome, Any]:
        if self._built is None:
            # Sent to the former process, which died; Ray has retried it here.
            raise StaleWorker
        outcome, result = call(self._built, table)
        return outcome, result if self._deliver else None


_Worker: Any = ray.remote(WorkerProcess)


class ActorPool:
    """Pool of worker actors. events: called from a thread of the pool."""

    def __init__(
        self,
        function: Function,
        events: PoolEvents,
        *,
        workers: int,
        deliver: bool,
        options: Mapping[str, Any],
    ) -> None:
        self._function = function
        self._events = events
        self._deliver = deliver
        self._options = {**DEFAULT_OPTIONS, **options}
        self._lock = threading.RLock()
        self._names = count()
        self._lives = count(1)
        self._actors: dict[str, Any] = {}
        self._processes: dict[str, str] = {}
        self._closed = False
        self._happened: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="bradbury-pool", daemon=True).start()
        self.resize(workers)

    def resize(self, count: int) -> None:
        """Add workers until there are `count`. For fewer, `retire` surplus ones.

        Workers that are starting, or being restarted by Ray, count.
        """
        with self._lock:
            for _ in range(count - len(self._actors)):
                self._start_worker()

    def start(self, worker: str, batch: Batch) -> None:
        actor = self._actors.get(worker)
        if actor is None:
            return  # it died, and its batches are being assigned to others
        outcome, result = actor.process.remote(batch.table)
        outcome.future().add_done_callback(
            lambda done: self._happened.put(lambda: self._on_processed(worker, batch, done, result))
        )

    def retire(self, worker: str) -> None:
        with self._lock:
            actor = self._actors.pop(worker, None)
            self._processes.pop(worker, None)
        if actor is not None:
            ray.kill(actor)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for worker in list(self._actors):
                self.retire(worker)
        self._happened.put(None)

    def _run(self) -> None:
        while (happened := self._happened.get()) is not None:
            try:
                happened()
            except Exception as error:  # reported as a failure of the member
                logger.exception("a pool of workers failed; this is a bug in Bradbury")
                self._events.on_failure(error)

    def _start_worker(self) -> None:
        actor = _Worker.options(**self._options).remote(self._function, deliver=self._deliver)
        self._await(f"w{next(self._names)}", actor)

    def _await(self, name: str, actor: Any, former: str | None = None) -> None:
        """Report the worker when it is ready, in another process than `former`."""
        worker = f"{name}#{next(self._lives)}"
        self._actors[worker] = actor
        self._ask(worker, actor, former)

    def _ask(self, worker: str, actor: Any, former: str | None) -> None:
        actor.ready.remote().future().add_done_callback(
            lambda done: self._happened.put(lambda: self._on_ready(worker, done, former))
        )

    def _on_ready(self, worker: str, done: Future[str], former: str | None) -> None:
        error = done.exception()
        if worker not in self._actors or self._closed:
            return
        if error is None and done.result() == former:
            # It was only unreachable, and may still process batches that others have now.
            actor = self._actors[worker]
            ray.kill(actor, no_restart=False)
            self._ask(worker, actor, former)
        elif error is None:
            self._processes[worker] = done.result()
            self._events.on_worker_up(worker)
        elif isinstance(error, RayActorError):
            self._replace(worker)
        else:
            self._events.on_failure(_cause(error))

    def _on_processed(
        self, worker: str, batch: Batch, done: Future[CallOutcome], result: Any
    ) -> None:
        error = done.exception()
        if error is None:
            self._events.on_outcome(worker, batch, done.result(), result)
        elif isinstance(error, RayActorError):
            self._on_died(worker, error)
        elif isinstance(cause := _cause(error), StaleWorker):
            self._on_died(worker, cause)
        else:
            self._events.on_outcome(worker, batch, CallOutcome(cause), None)

    def _on_died(self, worker: str, error: Exception) -> None:
        with self._lock:
            actor = self._actors.pop(worker, None)
            if actor is None or self._closed:
                return  # one of its other calls has reported it
            name = worker.partition("#")[0]
            # Not killed here: Ray may have restarted it by then.
            self._await(name, actor, self._processes.pop(worker, None))
        self._events.on_worker_down(worker, error)

    def _replace(self, worker: str) -> None:
        """Start another actor, as Ray does not restart this one: its node may be lost."""
        with self._lock:
            if self._actors.pop(worker, None) is not None and not self._closed:
                self._start_worker()


def _cause(error: BaseException) -> Exception:
    if isinstance(error, RayTaskError):
        return portable(error.cause)
    return portable(error) if not isinstance(error, RayError) else RuntimeError(str(error))
