"""Keeps Python's garbage collector from stopping a node that holds very many objects.

A full collection looks at every object: 200 ms with 10,000 partitions, during which no client is
answered. Partitions live long, so after many were added, all live objects are frozen (gc.freeze):
full collections skip them. A frozen object is still freed when its last reference goes; only
cycles of dead objects would stay, so after many partitions were removed all are unfrozen.

With many clients a process also collects often, and each time looks at what their requests have
allocated and wait for: a seventh of the CPU that 64 consumers cost. `settle` makes that rarer,
where the process is the node's own, not in somebody's `local()`.
"""

from __future__ import annotations

import gc

MANY = 200
YOUNG = 10_000
"""Objects that a process of a node makes between two collections: requests that wait, of which
there are some for each client, are not looked at time and again (700 is Python's own number).
"""


def settle() -> None:
    """Fit the collector to a process that is a node, and has just begun to serve: what exists now
    lives as long as it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG)


class Heap:
    """Control of the garbage collector. One per node; the collector is shared by the process."""

    def __init__(self) -> None:
        self._partitions = 0

    def on_partitions(self, count: int) -> None:
        """Adapt to `count` partitions on the node. Cost: about 1 ms when it acts."""
        if count > self._partitions + max(MANY, self._partitions // 10):
            gc.collect(1)
            gc.freeze()
            self._partitions = count
        elif count < self._partitions - max(MANY, self._partitions // 10):
            gc.unfreeze()
            self._partitions = count

    def close(self) -> None:
        if self._partitions:
            gc.unfreeze()
