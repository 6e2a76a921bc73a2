"""Keeps Python's garbage collector from stopping a node that holds very many objects.

A full collection looks at every object: 200 ms with 10,000 partitions, during which no client is
answered. Partitions live long, so after many were added, all live objects are frozen (gc.freeze):
full collections skip them. A frozen object is still freed when its last reference goes; only
cycles of dead objects would stay, so after many partitions were removed all are unfrozen.
"""

from __future__ import annotations

import gc

MANY = 200


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
