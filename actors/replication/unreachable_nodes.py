"""Nodes that cannot be reached, as leaders or as followers: reported to the controller."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine

from ...protocol.errors import ConnectionFailed, KafkaError
from ...replication.effects import SuspectNode
from ..loop.step_driver import StepDriver


class UnreachableNodes:
    """Reporter of unreachable nodes. Before `start` there is no controller to report to."""

    def __init__(self, driver: StepDriver) -> None:
        self._suspect: Callable[[int], Coroutine[None, None, None]] | None = None
        self._followers: dict[str, int] = {}
        """Node id of each follower, by the peer address of its connection."""
        self._reports: set[asyncio.Task[None]] = set()
        driver.on(SuspectNode, lambda effect: self.report(effect.node_id))

    def start(self, suspect: Callable[[int], Coroutine[None, None, None]]) -> None:
        """`suspect`: reports a node to the controller."""
        self._suspect = suspect

    def on_follower(self, node_id: int, peer: str) -> None:
        """Note that a replica of the node fetches from here, over the connection from `peer`."""
        self._followers[peer] = node_id

    def on_closed(self, peer: str) -> None:
        """Report the node of a closed follower connection: acks=all waits for it."""
        node_id = self._followers.pop(peer, None)
        if node_id is not None:
            self.report(node_id)

    def report(self, node_id: int) -> None:
        if self._suspect is None:
            return
        task = asyncio.get_running_loop().create_task(self._report(self._suspect(node_id)))
        self._reports.add(task)
        task.add_done_callback(self._reports.discard)

    async def _report(self, call: Coroutine[None, None, None]) -> None:
        with contextlib.suppress(KafkaError, ConnectionFailed):
            await call
