"""The notice that a Ray node is being drained: by `ray drain-node`, by the autoscaler, as a spot
instance ends, or by SIGTERM to `ray start --block`, which is how Kubernetes ends a pod.

Ray places nothing more on such a node, and ends it once nothing runs on it or the deadline has
come. Its actors are not told: only the GCS knows, and is asked every POLL_SECONDS, in a thread. One
question costs it and us less than a millisecond.

What always holds:
    A failed question is no notice: a GCS that is down, or a restarted one, drains no node.
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
"""Seconds between two questions while Ray does not answer."""


class RayDrain:
    """Notice of a drain of the Ray node that this process runs on."""

    def __init__(self) -> None:
        self._node_id: str = ray.get_runtime_context().get_node_id()
        self._draining = DrainingNodes()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="drain")

    async def wait(self) -> float:
        """Wait until the node is being drained; returns the seconds left, which may be infinite."""
        is_answered = True
        while True:
            try:
                deadline_ms = await asyncio.get_running_loop().run_in_executor(
                    self._thread, self._deadline_ms
                )
            except Exception as error:  # noqa: BLE001 -- whatever Ray raises: it is asked again
                if is_answered:
                    logger.warning(
                        "asking Ray whether this node is drained failed, retrying: %s", error
                    )
                is_answered = False
                await asyncio.sleep(PATIENCE_SECONDS)
                continue
            is_answered = True
            if deadline_ms is not None:
                return math.inf if deadline_ms == 0 else max(0, deadline_ms / 1000 - time.time())
            await asyncio.sleep(POLL_SECONDS)

    def _deadline_ms(self) -> int | None:
        """Deadline of the drain in ms since 1970; 0: no deadline; None: the node is not drained."""
        return self._draining.deadlines_ms().get(self._node_id)
