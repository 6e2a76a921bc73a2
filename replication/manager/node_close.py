"""The order in which a node ends, usually after it has handed its leadership over.

    clients       nothing more is accepted, and open connections are closed
    metadata      no image is applied any more, and nothing is sent to the controller
    coordinators  waiting requests are refused; they append nothing more, so no group and no
                  transaction is answered by a log that is being closed
    partitions    stop following, and are closed cleanly: see replication/logs/clean_stop
    voter         is the last: others need its vote as long as this node has anything to write

Each part begins to end when those above have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..procedure import Condition, ProcedureSteps, done


def close_node(
    *,
    clients: Condition | None,
    metadata: Callable[[], object],
    coordinators: Sequence[Condition],
    partitions: Condition | None,
    voter: Condition | None,
) -> ProcedureSteps:
    """Steps of a node's end. An argument of None was never opened.

    The conditions stop their parts when they are waited for, and are met when those have ended.
    Raises the error of a part that cannot be stopped, and leaves the rest as it is.
    """
    yield from _ended(clients)
    metadata()
    for part in (*coordinators, partitions, voter):
        yield from _ended(part)


def _ended(part: Condition | None) -> ProcedureSteps:
    if part is not None:
        yield from done(part)
