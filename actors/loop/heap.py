"""Keeps Python's garbage collector from stopping a node that has very many objects.

A full collection visits every object: 50 ms with the imported modules alone, 200 ms with 10,000
partitions, and no client is answered meanwhile. Python runs one whenever the objects that survived
the younger generations have grown by a quarter, garbage or not: with 64 waiting consumers, twice a
second. But nearly all objects of a node live long. In a process that runs nodes alone, all objects
that exist when a node begins to serve, and all that survive a full collection of SLOW_S or more,
are frozen (gc.freeze), and collections skip them. A frozen object is freed with its last reference,
like any other; only garbage cycles of frozen objects would stay. So all are unfrozen every THAW_S
or so, and when the last node of the process closes.

Where `local()` runs in a user's process, the user's gc.collect() has to find the user's objects:
nothing is frozen there, and full collections are only made rarer.

Source: gc_collect_main and untrack rules of CPython 3.11-3.13, Modules/gcmodule.c.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Final

SLOW_S: Final = 0.005
"""Duration of a full collection from which on its survivors are frozen: some 30,000 objects."""
THAW_S: Final = 600.0
"""Seconds after which such a collection unfreezes all objects, for the next one to visit."""
YOUNG: Final = 100_000
"""New objects between two young collections, in a process that runs nodes alone; Python's default
is 700, or 2,000 from 3.13 on. Each collection visits the waiting requests, some 25 objects for each
client: with a threshold of 10,000 that was a third of the CPU of 500 consumers, with 700 a seventh
of that of 64. The cost is memory, if there are garbage cycles: some 20 MB at most.
"""
OLD: Final = 1_000
"""Middle collections between two full ones in a user's process; Python's default is 10."""


class Heap:
    """Garbage collector settings of a process with nodes. Each node calls `open` and `close`, from
    any thread.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._is_own = False
        self._nodes = 0
        self._thresholds: tuple[tuple[int, int, int], tuple[int, int, int]] | None = None
        """Thresholds of a user's process: the user's, and ours."""
        self._began = 0.0
        self._thawed_at = 0.0

    def own_process(self) -> None:
        """Declare that the process is for nodes alone. Call it before `open`."""
        self._is_own = True
        gc.set_threshold(YOUNG)

    def open(self) -> None:
        """Count a node that begins to serve. Takes about a millisecond."""
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
