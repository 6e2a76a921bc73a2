"""The order in which a node joins its cluster.

    registered    the controller has registered the node, and the node has its id
    partitions    the replica manager gets the logs, and the coordinators listen for the partitions
                  of their topics: nothing of the first image may be missed
    followed      the first image is applied: the node leads and follows what that says
    clients       accepted only now: before, they would be answered that no partition is here

Each part begins when the one above has ended. A join that has failed may be made again, as a whole.
"""

from __future__ import annotations

from collections.abc import Callable

from ..procedure import Condition, ProcedureSteps, done


def join_node(
    *,
    registered: Condition,
    partitions: Callable[[], object],
    followed: Condition,
    clients: Callable[[], object],
) -> ProcedureSteps:
    """Steps of a node's start, when its directories are open.

    `partitions` is called again when a join is made again. Raises what a part has raised, and
    leaves the rest as it is.
    """
    yield from done(registered)
    partitions()
    yield from done(followed)
    clients()
