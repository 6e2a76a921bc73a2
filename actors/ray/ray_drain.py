"""The notice that a Ray node is being drained: by `ray drain-node`, by the autoscaler, as a spot
instance ends, or by SIGTERM to `ray start --block`, which is how Kubernetes ends a pod.

Ray places nothing more on such a node, and ends it once nothing runs on it or the deadline has
come. Its actors are not told: only the GCS knows, and is asked every POLL_SECONDS, in a thread. One
question costs it and us less than a millisecond.

What always holds:
    A failed question is neither a notice nor a withdrawal: a GCS that is down drains no node. One
    that was restarted without its tables knows of no drain: what was begun there is withdrawn.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
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

    async def wait(self) -> None:
        """Wait until the node is being drained."""
        while await self._ask() is None:
            await asyncio.sleep(POLL_SECONDS)

    async def follow(
        self, on_notice: Callable[[int | None], None], on_withdrawn: Callable[[], None]
    ) -> None:
        """Tell of every notice, of a deadline that has changed, and of a withdrawal; forever.

        on_notice: gets the ms that are left; None: the drain has no deadline.
        """
        before: int | None = None
        while True:
            deadline_ms = await self._ask()
            if deadline_ms is not None and deadline_ms != before:
                left_ms = max(0, deadline_ms - time.time_ns() // 1_000_000)
                on_notice(left_ms if deadline_ms else None)
            elif deadline_ms is None and before is not None:
                on_withdrawn()
            before = deadline_ms
            await asyncio.sleep(POLL_SECONDS)

    async def _ask(self) -> int | None:
        """See _deadline_ms; asked again until Ray answers."""
        is_answered = True
        while True:
            try:
                return await asyncio.get_running_loop().run_in_executor(
                    self._thread, self._deadline_ms
                )
            except Exception as error:  # noqa: BLE001 -- whatever Ray raises: it is asked again
                if is_answered:
                    logger.warning(
                        "asking Ray whether this node is drained failed, retrying: %s", error
                    )
                is_answered = False
                await asyncio.sleep(PATIENCE_SECONDS)

    def _deadline_ms(self) -> int | None:
        """Deadline of the drain in ms since 1970; 0: no deadline; None: the node is not drained."""
        return self._draining.deadlines_ms().get(self._node_id)
