"""Objects kept for the lifetime of a Python worker of Spark: producers, and a frozen heap.

Invariants:
    A producer that failed is closed and dropped: the next task starts with a new one.
    At most MAX_TRANSACTIONAL transactional producers are kept: each has its own thread and
    connections, and a worker runs any number of tasks.

Spark runs a full garbage collection after every call of a Python worker; with pandas and pyarrow
loaded that is 25-35 ms of CPU a task, more than most tasks themselves take, and as much for each
process that plans or commits a micro-batch. `freeze` excludes all loaded objects from it.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ....protocol.columns.columns import kernels_ready

if TYPE_CHECKING:
    from ....clients.producer.producer import Producer
    from .sink_batch import BatchMarker, TaskMarker

MAX_TRANSACTIONAL: Final = 8
ABORT_SECONDS: Final = 5.0
"""Most seconds for aborting an open transaction on close; else its next producer aborts it."""

_frozen: tuple[bool, int] | None = None
_is_kept = False
_producers: dict[tuple[int, str | None, tuple[tuple[str, Any], ...]], Producer] = {}
_transactional: dict[tuple[int, str | None, str], KeptProducer] = {}


@dataclass(slots=True, eq=False)
class KeptProducer:
    """A transactional producer, and the state of its task's batches.

    run: run of the query, and options, for which it was made. is_owner: whether it has initialized
    its transactional id, or resumed it, and has not released it since; if not, the rest is stale.
    last: last batch of the task that was committed. all_done: last batch completed by all tasks.
    """

    producer: Producer
    bootstrap: str | None
    transactional_id: str
    run: object
    is_owner: bool = False
    last: TaskMarker | None = None
    all_done: BatchMarker | None = None


def freeze() -> None:
    """Exclude everything loaded so far from garbage collections.

    Takes effect once a process, and again after compiled kernels or more modules were loaded, which
    are many objects. Any other call costs nothing.
    """
    global _frozen
    loaded = kernels_ready(), len(sys.modules)
    if _frozen != loaded:
        _frozen = loaded
        gc.collect()
        gc.freeze()


def freeze_if_kept() -> None:
    """Call `freeze` from the second call in a process on.

    For processes that plan and commit queries, for which Spark waits: by then it is known that the
    process is reused, and most modules are loaded.
    """
    global _is_kept
    if _is_kept:
        freeze()
    _is_kept = True


def producer(bootstrap: str | None, settings: Mapping[str, Any]) -> Producer:
    """Producer of this process for these settings.

    Raises:
        InvalidConfig, ConnectionFailed: as bradbury.Producer.
    """
    from ....clients.producer.producer import Producer

    key = _producer_key(bootstrap, settings)
    found = _producers.get(key)
    if found is None:
        found = _producers[key] = Producer(bootstrap, **settings)
    return found


def forget_producer(bootstrap: str | None, settings: Mapping[str, Any]) -> None:
    """Close and drop a producer without flushing: its task failed and will be run again."""
    found = _producers.pop(_producer_key(bootstrap, settings), None)
    if found is not None:
        found.close(0)


def kept_transactional(bootstrap: str | None, transactional_id: str) -> KeptProducer | None:
    """Producer of this process that last had the transactional id; None: there is none."""
    key = (os.getpid(), bootstrap, transactional_id)
    kept = _transactional.pop(key, None)
    if kept is not None:
        _transactional[key] = kept  # last used, last to be closed
    return kept


def keep_transactional(kept: KeptProducer) -> None:
    """Keep a producer, and close the least recently used ones above MAX_TRANSACTIONAL."""
    _transactional[os.getpid(), kept.bootstrap, kept.transactional_id] = kept
    while len(_transactional) > MAX_TRANSACTIONAL:
        _transactional.pop(next(iter(_transactional))).producer.close(0)


def forget_transactional(kept: KeptProducer) -> None:
    """Close and drop a producer, and abort its open transaction."""
    _transactional.pop((os.getpid(), kept.bootstrap, kept.transactional_id), None)
    kept.producer.close(ABORT_SECONDS)


def _producer_key(
    bootstrap: str | None, settings: Mapping[str, Any]
) -> tuple[int, str | None, tuple[tuple[str, Any], ...]]:
    return os.getpid(), bootstrap, tuple(sorted(settings.items()))
