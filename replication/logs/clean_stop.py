"""Clean stop: the order in which the work on a node's logs ends, before they are closed.

    moves          no copy is written any more; the copies stay, and the next start continues them
    scrubber       no segment is replaced by a repaired one
    cleaner        no segment is replaced by a compacted one
    maintenance    no checkpoint, no retention, no deletion is under way
    directories    everything is flushed, the checkpoints say how far, then the clean marks
    token          the directories need no proof any more that nothing was lost

A directory is closed once nothing else can write to it: otherwise its files could change after its
checkpoints and clean mark were written. Source: LogManager.shutdown in apache/kafka.
"""

from __future__ import annotations

from collections.abc import Callable

from ...storage.directories.log_directories import LogDirectories
from ..procedure import Condition, ProcedureSteps
from .alter_log_dirs_manager import AlterLogDirsManager
from .directory_lifecycle import DirectoryLifecycle


def clean_stop(
    *,
    moves: AlterLogDirsManager | None,
    scrubber: Condition | None,
    cleaner: Condition | None,
    maintenance: Condition | None,
    lifecycle: DirectoryLifecycle,
    shut_down: Callable[[LogDirectories], ProcedureSteps],
) -> ProcedureSteps:
    """Steps of the clean stop. An argument of None was never started.

    The conditions stop their parts when they are waited for, and are met when those have ended.

    `shut_down`: ReplicaManager.shut_down. Raises what stopping a part has raised.
    """
    if moves is not None:
        yield from moves.close()
    for part in (scrubber, cleaner, maintenance):
        if part is not None:
            [failure] = yield [part]
            if failure is not None:
                raise failure
    directories = lifecycle.end()
    if directories is not None:
        yield from shut_down(directories)
        lifecycle.on_closed()
