"""Driver of replication/followers/replica_fetcher: a connection to each leader that is followed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from ...protocol.messages.fetch import FetchResponse
from ...protocol.messages.list_offsets import ListOffsetsResponse
from ...replication.effects import FetchersEnded, FetchingStep, SendFetch, SendListOffsets
from ..loop.step_driver import StepDriver
from ..network.peer_connection import PeerConnection
from ..network.peers import ConnectingNode, connect_to

logger = logging.getLogger(__name__)

FETCH_VERSION = 17
LIST_OFFSETS_VERSION = 9
ANSWER_SECONDS = 30.0


class FetchingNode(ConnectingNode, Protocol):
    """The node that the fetchers belong to."""

    def wall_ms(self) -> int: ...


class LeaderConnections:
    """Connections of fetchers, on one event loop. A fetcher gets its answers until it ends."""

    def __init__(self, node: FetchingNode, driver: StepDriver) -> None:
        self._node = node
        self._driver = driver
        self._connections: dict[FetchingStep, PeerConnection] = {}
        self._requests: dict[FetchingStep, asyncio.Task[None]] = {}
        driver.on(SendFetch, self._send_fetch)
        driver.on(SendListOffsets, self._send_list_offsets)
        driver.on(FetchersEnded, self._on_fetchers_ended)

    def _send_fetch(self, effect: SendFetch) -> None:
        step, request = effect

        async def ask(connection: PeerConnection) -> None:
            answer = await connection.request(
                request,
                FetchResponse,
                FETCH_VERSION,
                timeout_seconds=request.max_wait_ms / 1000 + ANSWER_SECONDS,
                reuses_buffer=True,
            )
            step.on_fetched(answer, self._driver.now_ms(), self._node.wall_ms())

        self._begin(step, ask)

    def _send_list_offsets(self, effect: SendListOffsets) -> None:
        step, request = effect

        async def ask(connection: PeerConnection) -> None:
            answer = await connection.request(
                request, ListOffsetsResponse, LIST_OFFSETS_VERSION, timeout_seconds=ANSWER_SECONDS
            )
            step.on_offsets(answer, self._driver.now_ms())

        self._begin(step, ask)

    def _begin(self, step: FetchingStep, ask: Callable[[PeerConnection], Awaitable[None]]) -> None:
        self._requests[step] = asyncio.get_running_loop().create_task(self._request(step, ask))

    async def _request(
        self, step: FetchingStep, ask: Callable[[PeerConnection], Awaitable[None]]
    ) -> None:
        try:
            await ask(self._connections.get(step) or await self._connect(step))
        except Exception as error:  # noqa: BLE001 -- the step says what it means
            self._close(step)
            step.on_unreachable(error, self._driver.now_ms())
        self._driver.carry_out()
        self._driver.tick_when_due(step)

    async def _connect(self, step: FetchingStep) -> PeerConnection:
        connection = await connect_to(
            step.leader_id,
            self._node,
            purpose="follower",
            most_bytes=self._node.config.replica_fetch_response_max_bytes,
        )
        self._connections[step] = connection
        return connection

    def _close(self, step: FetchingStep) -> None:
        connection = self._connections.pop(step, None)
        if connection is not None:
            connection.close()

    def _on_fetchers_ended(self, effect: FetchersEnded) -> None:
        self._end(effect.steps)

    def _end(self, steps: Sequence[FetchingStep]) -> list[asyncio.Task[None]]:
        """Close the steps' connections and cancel their requests. Returns the cancelled tasks."""
        cancelled = []
        for step in steps:
            task = self._requests.pop(step, None)
            if task is None or task.done() or task is asyncio.current_task():
                self._close(step)
            else:
                self._connections.pop(step, None)
                task.cancel()
                cancelled.append(task)
        return cancelled

    async def close(self) -> None:
        """Cancel the pending requests."""
        tasks = self._end([*self._requests, *self._connections])
        await asyncio.gather(*tasks, return_exceptions=True)
