"""Driver of transactions/add_partitions_manager: sends its requests to transaction coordinators."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from functools import partial

from ...cluster.metadata.metadata_image import MetadataImage
from ...handlers.ports.request_metrics import Histogram
from ...protocol.error_code import ErrorCode
from ...protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from ...protocol.partitioner import partition_for_group
from ...protocol.topic_name import TRANSACTIONS_TOPIC
from ...protocol.topic_partition import TopicPartitionPair
from ...transactions.add_partitions_manager import (
    AddPartitionsManager,
    RetryLimits,
    SendAddPartitionsToTxn,
)
from ..loop.step_driver import StepDriver
from .node_requests import AskingNode, NodeRequests

ADD_PARTITIONS_TO_TXN_VERSION = 5
REQUEST_TIMEOUT_MS = 30_000
"""Timeout of requests to other brokers: Kafka's request.timeout.ms."""


class HostedTransactionPartitions:
    """Implements handlers.ports.transaction_port.TransactionPartitions. One event loop."""

    def __init__(self, node: AskingNode) -> None:
        self.answer_times = Histogram()
        """Time of each verification, from request to result, failed ones included."""
        self.failed_partitions = 0
        """Partitions that the coordinator did not confirm, or that had no coordinator."""
        self._node = node
        self._driver = driver = StepDriver()
        config = node.server_config.transactions
        self._manager = AddPartitionsManager(
            self,
            driver.effects,
            RetryLimits(
                config.add_partitions_to_txn_retry_backoff_ms,
                config.add_partitions_to_txn_retry_backoff_max_ms,
            ),
        )
        self._image = MetadataImage()
        self._requests: NodeRequests | None = None
        driver.on_awaited(SendAddPartitionsToTxn, self._ask, self._asked)
        driver.watch(self._manager)

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartitionPair],
        *,
        adds: bool,
    ) -> asyncio.Future[dict[TopicPartitionPair, ErrorCode]]:
        ticket: asyncio.Future[dict[TopicPartitionPair, ErrorCode]]
        ticket = asyncio.get_running_loop().create_future()
        ticket.add_done_callback(partial(self._count, time.perf_counter()))
        self._manager.verify(
            ticket,
            transactional_id,
            producer_id,
            producer_epoch,
            partitions,
            adds=adds,
            now_ms=self._driver.now_ms(),
        )
        self._driver.carry_out()
        return ticket

    def _count(
        self, began: float, ticket: asyncio.Future[dict[TopicPartitionPair, ErrorCode]]
    ) -> None:
        if ticket.cancelled():  # its client has gone, or the node ends
            return
        self.answer_times.observe(time.perf_counter() - began)
        self.failed_partitions += sum(
            code is not ErrorCode.NONE for code in ticket.result().values()
        )

    def coordinator_of(self, transactional_id: str) -> int | None:
        """Node id of the coordinator, or None; see add_partitions_manager.CoordinatorNodes."""
        topic = self._image.topics.get(TRANSACTIONS_TOPIC)
        if topic is None or not topic.partitions:
            return None
        partition = partition_for_group(transactional_id, len(topic.partitions))
        return self._image.live_leader(topic.name, partition)

    def on_metadata(self, image: MetadataImage) -> None:
        before, self._image = self._image, image
        if before.topics is not image.topics or before.nodes is not image.nodes:
            self._manager.on_metadata()
            self._driver.carry_out()

    async def _ask(self, effect: SendAddPartitionsToTxn) -> AddPartitionsToTxnResponse:
        if self._requests is None:
            self._requests = NodeRequests(
                self._node, f"transaction-partitions-{self._node.node_id}"
            )
        return await self._requests.ask(
            effect.node_id,
            effect.request,
            AddPartitionsToTxnResponse,
            ADD_PARTITIONS_TO_TXN_VERSION,
            REQUEST_TIMEOUT_MS,
        )

    def _asked(
        self, effect: SendAddPartitionsToTxn, result: AddPartitionsToTxnResponse | Exception
    ) -> None:
        if isinstance(result, Exception):
            effect.step.on_failed(effect.node_id, result)
        else:
            effect.step.on_answer(effect.node_id, result, self._driver.now_ms())

    async def close(self) -> None:
        """Cancel the pending requests."""
        self._manager.close()
        self._driver.carry_out()
        await self._driver.shut_down()
        if self._requests is not None:
            self._requests.close()
