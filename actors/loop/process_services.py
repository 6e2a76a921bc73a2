"""Per-process services of a node: its heap, a thread for long computations, and the probe of its
event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ...handlers.ports.request_metrics import Histogram
from .heap import heap
from .node_metrics import LoopProbe

T = TypeVar("T")


class ProcessServices:
    """Services of one node: `open` and `close` with the node, `serve` when it begins to serve."""

    def __init__(self, loop_lag: Histogram) -> None:
        self._probe = LoopProbe(loop_lag)
        self._thread: ThreadPoolExecutor | None = None
        self._is_serving = False

    def open(self) -> None:
        """Start the thread. One is enough: the GIL would let two computations run only in turns."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="computation")

    def serve(self) -> None:
        """Start the probe, and the freezing of the heap: the node serves requests from now on."""
        self._is_serving = True
        self._probe.start()
        heap.open()

    def run_in_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, call)

    def close(self) -> None:
        """Stop the services. A running call ends by itself; queued calls are cancelled."""
        self._probe.stop()
        if self._is_serving:
            self._is_serving = False
            heap.close()
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
