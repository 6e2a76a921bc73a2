"""The order in which a node joins its cluster.

    registered    the controller knows the node, and the node its id
    partitions    the logs are given to what follows the metadata, and the coordinators are told of
                  the partitions that are theirs: nothing of the first image may be missed
    followed      the first image is applied: the node leads and follows what that says
    clients       only now, as until then each would be told that its partitions are nowhere here

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
