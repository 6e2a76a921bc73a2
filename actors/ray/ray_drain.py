"""The notice that a Ray node is being drained: by `ray drain-node`, by the autoscaler, as a spot
instance ends, or by SIGTERM to `ray start --block`, which is how Kubernetes ends a pod.

Ray places nothing more on such a node, and ends it once nothing runs on it or the deadline has
come. Until then its actors go on as if nothing were: only the GCS knows, and is asked every
POLL_SECONDS, in a thread. One question costs it and us less than a millisecond.

What always holds:
    No answer is no notice: a GCS that is away, or another one after its restart, drains nobody.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from concurrent.futures import ThreadPoolExecutor

import ray

from .ray_nodes import DrainingNodes

logger = logging.getLogger(__name__)

POLL_SECONDS = 2.0
PATIENCE_SECONDS = 30.0
"""Seconds between two questions while none is answered."""


class RayDrain:
    """Whether the Ray node that this process runs on is being drained."""

    def __init__(self) -> None:
        self._node_id: str = ray.get_runtime_context().get_node_id()
        self._draining = DrainingNodes()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="drain")

    async def wait(self) -> float:
        """Return when the node is being drained: the seconds that are left, perhaps infinite."""
        is_answered = True
        while True:
            try:
                deadline_ms = await asyncio.get_running_loop().run_in_executor(
                    self._thread, self._deadline_ms
                )
            except Exception as error:  # noqa: BLE001 -- whatever Ray raises: it is asked again
                if is_answered:
                    logger.warning("asking Ray whether this node is drained failed: %s", error)
                is_answered = False
                await asyncio.sleep(PATIENCE_SECONDS)
                continue
            is_answered = True
            if deadline_ms is not None:
                return math.inf if deadline_ms == 0 else max(0, deadline_ms / 1000 - time.time())
            await asyncio.sleep(POLL_SECONDS)

    def _deadline_ms(self) -> int | None:
        """None: the node is not drained; 0: without a deadline."""
        return self._draining.deadlines_ms().get(self._node_id)
