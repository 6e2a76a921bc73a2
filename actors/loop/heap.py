"""Keeps Python's garbage collector from stopping a node that holds very many objects.

A full collection looks at every object: 200 ms with 10,000 partitions, during which no client is
answered. Partitions live long, so after many have come, everything that lives is set apart
(gc.freeze): full collections skip it. What is set apart is still freed when nobody refers to it;
only rings of dead objects would stay, so after many partitions have gone it is given back.
"""

from __future__ import annotations

import gc

MANY = 200


class Heap:
    """One per node; the collector is the process's."""

    def __init__(self) -> None:
        self._partitions = 0

    def on_partitions(self, count: int) -> None:
        """The node holds `count` partitions now. Cost: about 1 ms when it acts."""
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
