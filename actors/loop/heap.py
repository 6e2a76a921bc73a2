"""Keeps Python's garbage collector from stopping a node that has very many objects.

A full collection looks at every object: 50 ms with what is imported alone, 200 ms with 10,000
partitions, and no client is answered meanwhile. It is due whenever a quarter more has outlived the
smaller ones, dead or not, so with 64 consumers that wait twice a second. But nearly all there is
lives long. In a process that is the nodes' own, what there is when one begins to serve, and again
whatever is alive when a full collection took SLOW_S, is frozen (gc.freeze), and collections skip
it. A frozen object is freed when its last reference goes, as any other; only dead cycles of them
would stay. So all are thawed every now and then, and when the last node of the process closes.

Where `local()` is in somebody's process, his gc.collect() has to find his objects: nothing is
frozen there, and full collections are only rarer.

Source: gc_collect_main and untrack rules of CPython 3.11-3.13, Modules/gcmodule.c.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Final

SLOW_S: Final = 0.005
"""Seconds of a full collection from which on its survivors are frozen: some 30,000 objects."""
THAW_S: Final = 600.0
"""Seconds between two such collections after which all are thawed, and the next one sees all."""
YOUNG: Final = 100_000
"""New objects of an own process between two collections; 700 is Python's number. Each looks at the
requests that wait, some 25 objects for each client: with 10,000 that was a third of the CPU of 500
consumers, with 700 a seventh of that of 64. What it costs is memory, if there are dead cycles: some
20 MB at most.
"""
OLD: Final = 1_000
"""Middle collections between two full ones in somebody's process; 10 is Python's number."""


class Heap:
    """Garbage collector settings of a process with nodes. `open` and `close`: as each node, in any
    thread.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._is_own = False
        self._nodes = 0
        self._thresholds: tuple[tuple[int, int, int], tuple[int, int, int]] | None = None
        """The thresholds of somebody's process: his, and ours."""
        self._began = 0.0
        self._thawed_at = 0.0

    def own_process(self) -> None:
        """Declare that the process is for nodes alone. Call it before `open`."""
        self._is_own = True
        gc.set_threshold(YOUNG)

    def open(self) -> None:
        """Count a node that begins to serve. Cost: about a millisecond."""
        with self._lock:
            self._nodes += 1
            if self._nodes == 1 and self._is_own:
                self._thawed_at = self._clock()
                gc.callbacks.append(self._on_collection)
            elif self._nodes == 1:
                young, middle, old = his = gc.get_threshold()
                self._thresholds = his, (young, middle, max(old, OLD))
                gc.set_threshold(*self._thresholds[1])
        if self._is_own:
            gc.collect(1)
            gc.freeze()

    def close(self) -> None:
        """Count a node that has stopped."""
        with self._lock:
            self._nodes -= 1
            if self._nodes:
                return
            if self._thresholds is None:
                gc.callbacks.remove(self._on_collection)
                gc.unfreeze()
                return
            (his, ours), self._thresholds = self._thresholds, None
            if gc.get_threshold() == ours:
                gc.set_threshold(*his)

    def _on_collection(self, phase: str, about: Mapping[str, Any]) -> None:
        if about["generation"] < 2:
            return
        now = self._clock()
        if phase == "start":
            self._began = now
        elif now - self._began >= SLOW_S:
            if now - self._thawed_at >= THAW_S:
                self._thawed_at = now
                gc.unfreeze()
            else:
                gc.freeze()


heap: Final = Heap()
"""Heap of this process."""
