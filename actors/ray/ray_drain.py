"""The notice that a Ray node is being drained: by `ray drain-node`, by the autoscaler, as a spot
instance ends, or by SIGTERM to `ray start --block`, which is how Kubernetes ends a pod.

Ray schedules nothing more on such a node, and terminates it when it is idle or at the deadline. Ray
does not notify the actors on it: only the GCS knows of the drain, and is polled every POLL_SECONDS,
in a thread. One poll costs the GCS and this process less than a millisecond.

Invariants:
    A failed poll is neither a notice nor a withdrawal: a GCS that is down drains no node. But one
    that restarted without its tables no longer lists the drain, which counts as a withdrawal.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import ray

from .ray_nodes import DrainingNodes, living_nodes

logger = logging.getLogger(__name__)

POLL_SECONDS = 2.0
PATIENCE_SECONDS = 30.0
"""Seconds between two questions while Ray does not answer."""


class Notice(NamedTuple):
    """A drain of this node.

    deadline_ms: since 1970; 0: there is none.
    leaving: names of the other nodes that are being drained; looked up only if there are any.
    """

    deadline_ms: int
    leaving: frozenset[str]


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
        self,
        on_notice: Callable[[int | None, frozenset[str]], None],
        on_withdrawn: Callable[[], None],
    ) -> None:
        """Report every notice, every change of one, and a withdrawal; forever.

        on_notice: gets the ms that are left (None: the drain has no deadline), and the names of the
            other nodes that are being drained.
        """
        before: Notice | None = None
        while True:
            notice = await self._ask()
            if notice is not None and notice != before:
                left_ms = max(0, notice.deadline_ms - time.time_ns() // 1_000_000)
                on_notice(left_ms if notice.deadline_ms else None, notice.leaving)
            elif notice is None and before is not None:
                on_withdrawn()
            before = notice
            await asyncio.sleep(POLL_SECONDS)

    async def _ask(self) -> Notice | None:
        """See _notice; asked again until Ray answers."""
        is_answered = True
        while True:
            try:
                return await asyncio.get_running_loop().run_in_executor(self._thread, self._notice)
            except Exception as error:  # noqa: BLE001 -- whatever Ray raises: it is asked again
                if is_answered:
                    logger.warning(
                        "asking Ray whether this node is drained failed, retrying: %s", error
                    )
                is_answered = False
                await asyncio.sleep(PATIENCE_SECONDS)

    def _notice(self) -> Notice | None:
        """Notice of this node's drain; None: it is not being drained."""
        deadlines_ms = self._draining.deadlines_ms()
        deadline_ms = deadlines_ms.pop(self._node_id, None)
        if deadline_ms is None:
            return None
        others = living_nodes() if deadlines_ms else {}
        return Notice(
            deadline_ms,
            frozenset(node.name for node_id, node in others.items() if node_id in deadlines_ms),
        )
