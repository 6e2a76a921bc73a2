"""Driver of transactions/transaction_markers: the markers of all transaction coordinators here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...cluster.metadata.metadata_image import MetadataImage
from ...protocol.messages.write_txn_markers import WriteTxnMarkersResponse
from ...protocol.topic_partition import TopicPartitionPair
from ...transactions.transaction_effects import SendMarkers
from ...transactions.transaction_markers import (
    MarkersWritten,
    SendWriteTxnMarkers,
    TransactionMarkerManager,
)
from ..loop.step_driver import StepDriver
from .node_requests import AskingNode, NodeRequests

WRITE_TXN_MARKERS_VERSION = 2
"""Version of WriteTxnMarkers that has the transaction.version, needed for KIP-1228."""
REQUEST_TIMEOUT_MS = 30_000
"""Timeout of requests to other brokers: Kafka's request.timeout.ms."""


class ServingLeaders:
    """Implements transaction_markers.PartitionLeaders."""

    def __init__(self) -> None:
        self.image = MetadataImage()

    def exists(self, partition: TopicPartitionPair) -> bool:
        return self.image.partition(*partition) is not None

    def leader_of(self, partition: TopicPartitionPair) -> int | None:
        return self.image.live_leader(*partition)


class TransactionMarkerSender:
    """Sender of markers, on one event loop. Call `on_metadata` before the node applies an image."""

    def __init__(self, node: AskingNode, on_written: Callable[[MarkersWritten], None]) -> None:
        """`on_written`: called, in a later turn, when all markers of a transaction are written."""
        self._node = node
        self._on_written = on_written
        self._driver = driver = StepDriver()
        self._leaders = ServingLeaders()
        self.manager = TransactionMarkerManager(self._leaders, driver.effects)
        self._requests: NodeRequests | None = None
        driver.on(MarkersWritten, self._written)
        driver.on_awaited(SendWriteTxnMarkers, self._ask, self._asked)
        driver.watch(self.manager)

    def send(self, partition: int, coordinator_epoch: int, markers: SendMarkers) -> None:
        """Send markers; see TransactionMarkerManager. `partition` is one of __transaction_state."""
        self.manager.send(partition, coordinator_epoch, markers)
        self._driver.carry_out()

    def on_elected(self, partition: int, coordinator_epoch: int) -> None:
        self.manager.on_elected(partition, coordinator_epoch)
        self._driver.carry_out()

    def on_resigned(self, partition: int) -> None:
        self.manager.on_resigned(partition)
        self._driver.carry_out()

    def on_metadata(self, image: MetadataImage) -> None:
        """Use a new image, before the coordinators do; transaction_markers says why."""
        before, self._leaders.image = self._leaders.image, image
        if before.topics is not image.topics or before.nodes is not image.nodes:
            self.manager.on_metadata()
            self._driver.carry_out()

    def _written(self, effect: MarkersWritten) -> None:
        """Report in a separate turn of the loop: the coordinator may be in the middle of a step."""
        asyncio.get_running_loop().call_soon(self._on_written, effect)

    async def _ask(self, effect: SendWriteTxnMarkers) -> WriteTxnMarkersResponse:
        if self._requests is None:
            self._requests = NodeRequests(self._node, f"transaction-markers-{self._node.node_id}")
        return await self._requests.ask(
            effect.node_id,
            effect.request,
            WriteTxnMarkersResponse,
            WRITE_TXN_MARKERS_VERSION,
            REQUEST_TIMEOUT_MS,
        )

    def _asked(
        self, effect: SendWriteTxnMarkers, result: WriteTxnMarkersResponse | Exception
    ) -> None:
        now_ms = self._driver.now_ms()
        if isinstance(result, Exception):
            effect.step.on_failed(effect.node_id, result, now_ms)
        else:
            effect.step.on_answer(effect.node_id, result, now_ms)

    async def close(self) -> None:
        """Cancel the pending requests."""
        await self._driver.shut_down()
        if self._requests is not None:
            self._requests.close()
