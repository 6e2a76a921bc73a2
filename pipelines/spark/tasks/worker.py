"""Objects kept for the life of a Python worker of Spark: producers, and a frozen heap.

What always holds:
    A producer that failed is closed and forgotten: the next task starts with a clean one.
    Of transactional producers at most MAX_TRANSACTIONAL are kept: each has its own thread and
    connections, and a worker runs tasks of any number.

Spark runs a full garbage collection after every call of a Python worker; with pandas and pyarrow
loaded that is 25-35 ms of CPU a task, more than most tasks themselves take, and as much for each
process that plans or commits a micro-batch. `freeze` moves all that is loaded out of its sight.
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
"""How long a producer that is closed tries to abort what it has open; else who takes over does."""

_frozen: tuple[bool, int] | None = None
_is_kept = False
_producers: dict[tuple[int, str | None, tuple[tuple[str, Any], ...]], Producer] = {}
_transactional: dict[tuple[int, str | None, str], KeptProducer] = {}


@dataclass(slots=True, eq=False)
class KeptProducer:
    """A transactional producer, and what is known of its task's batches.

    run: of which run of a query, with which options, it was made in.
    last: the last batch that is committed by it, or was when it took over. all_done: by all tasks.
    """

    producer: Producer
    bootstrap: str | None
    transactional_id: str
    run: object
    last: TaskMarker | None = None
    all_done: BatchMarker | None = None


def freeze() -> None:
    """Keep everything loaded so far out of garbage collections.

    Once a process, and again when the compiled kernels or more modules have come: they are many
    objects. Any other call is free.
    """
    global _frozen
    loaded = kernels_ready(), len(sys.modules)
    if _frozen != loaded:
        _frozen = loaded
        gc.collect()
        gc.freeze()


def freeze_if_kept() -> None:
    """The same for what plans and commits queries, whose answer Spark waits for: from the second
    call of a process on, when it is known to be kept and most is loaded.
    """
    global _is_kept
    if _is_kept:
        freeze()
    _is_kept = True


def producer(bootstrap: str | None, settings: Mapping[str, Any]) -> Producer:
    """The producer of this process for these settings.

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
    """Close it without waiting for what it still holds: its task failed and will be run again."""
    found = _producers.pop(_producer_key(bootstrap, settings), None)
    if found is not None:
        found.close(0)


def kept_transactional(bootstrap: str | None, transactional_id: str) -> KeptProducer | None:
    """The producer of this process that last had the transactional id."""
    key = (os.getpid(), bootstrap, transactional_id)
    kept = _transactional.pop(key, None)
    if kept is not None:
        _transactional[key] = kept  # the last used is the last to go
    return kept


def keep_transactional(kept: KeptProducer) -> None:
    """Keep it, and close those that were not used for longest."""
    _transactional[os.getpid(), kept.bootstrap, kept.transactional_id] = kept
    while len(_transactional) > MAX_TRANSACTIONAL:
        _transactional.pop(next(iter(_transactional))).producer.close(0)


def forget_transactional(kept: KeptProducer) -> None:
    """Close it, and abort what it has open."""
    _transactional.pop((os.getpid(), kept.bootstrap, kept.transactional_id), None)
    kept.producer.close(ABORT_SECONDS)


def _producer_key(
    bootstrap: str | None, settings: Mapping[str, Any]
) -> tuple[int, str | None, tuple[tuple[str, Any], ...]]:
    return os.getpid(), bootstrap, tuple(sorted(settings.items()))
