"""Hand-over of a transactional id from one Python worker of an executor to the next, by a file.

    {SPARK_LOCAL_DIRS}/bradbury-{SHA-256 of cluster, transactional id, run of the query}.json

Spark gives tasks to its idle workers in turn: the next batch of a task mostly runs in another
worker, which would initialize the transactional id again, and read the markers. Instead, the state
that it needs is in a file in a directory of the executor, which Spark deletes with the executor.

Invariants:
    The worker that wrote the file has released the transactional id, and no longer uses it.
    The file is renamed before it is read, so one worker gets it, and no second attempt of its task.
    If a file is lost, or its producer epoch was fenced, the next task initializes the id again.

Not here: whether the batch may be written (transactional_sink).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ....clients.producer.batches.partition_queue import Identity
from .sink_batch import BatchMarker, TaskMarker

logger = logging.getLogger(__name__)

LOCAL_DIRS: Final = "SPARK_LOCAL_DIRS"
"""Environment variable that Spark sets for Python workers: directories of the executor."""


@dataclass(frozen=True, slots=True)
class Handover:
    """State of a task's batches after a commit; identity is that of its transactional id."""

    identity: Identity
    last: TaskMarker
    all_done: BatchMarker | None


def handover_file(bootstrap: str | None, transactional_id: str, run_id: str | None) -> Path | None:
    """File of a transactional id in a run of the query; None: the executor has no directory."""
    folder = os.environ.get(LOCAL_DIRS, "").split(",")[0]
    if not folder or not os.path.isdir(folder):
        return None
    names = json.dumps([bootstrap, transactional_id, run_id])
    return Path(folder, f"bradbury-{hashlib.sha256(names.encode()).hexdigest()}.json")


def offer(file: Path, handover: Handover) -> None:
    """Write the file. Where that fails, the next task initializes its transactional id."""
    done = handover.all_done
    content = {
        "producer": handover.identity,
        "last": [handover.last.batch_id, handover.last.metadata],
        "done": None if done is None else [done.batch_id, done.metadata],
    }
    draft = _private_name(file)
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            json.dump(content, out)
        draft.rename(file)
    except OSError as error:
        logger.debug("%s: no hand-over to the next task: %s", file, error)
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def claim(file: Path) -> Handover | None:
    """Take the file away and return its content; None: there is none, or it is unreadable."""
    mine = _private_name(file)
    try:
        file.rename(mine)
    except OSError:
        return None
    try:
        content = json.loads(mine.read_text())
        done = content["done"]
        return Handover(
            Identity(*map(int, content["producer"])),
            TaskMarker.parse(*content["last"]),
            None if done is None else BatchMarker.parse(*done),
        )
    except (OSError, ValueError, TypeError, KeyError) as error:
        logger.warning("%s: unreadable, the transactional id is initialized: %s", file, error)
        return None
    finally:
        with suppress(OSError):
            mine.unlink(missing_ok=True)


def _private_name(file: Path) -> Path:
    return file.with_suffix(f".{os.getpid()}")
