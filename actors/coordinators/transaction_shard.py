"""The driver of one partition of `__transaction_state`: requests, put to its coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from ...handlers.ports.replica_port import LeaderReplica
from ...protocol.error_code import ErrorCode
from ...protocol.topic_partition import TopicPartitionPair
from ...transactions.transaction_coordinators import TransactionContext
from ...transactions.transaction_effects import InitializedProducer, SendMarkers
from ...transactions.transaction_markers import MarkersWritten
from ...transactions.transaction_metadata import TransactionMetadata
from ...transactions.transaction_records import transactions_in
from ...transactions.transaction_requests import TransactionRequests
from .coordinator_driver import CoordinatorDriver


class TransactionShard:
    """Implements handlers.ports.transaction_port.TransactionShard while its context is ACTIVE."""

    def __init__(
        self,
        context: TransactionContext,
        replica: LeaderReplica,
        wall_ms: Callable[[], int],
        send_markers: Callable[[TransactionShard, SendMarkers], None],
    ) -> None:
        """`send_markers` leads to one call of on_markers_written, or none if the shard closes."""
        self.partition = context.partition
        self.coordinator_epoch = context.leader_epoch
        self._context = context
        self._requests = TransactionRequests(context)
        self._driver = CoordinatorDriver(
            context,
            replica,
            transactions_in,
            wall_ms,
            lambda effect: send_markers(self, effect),
        )
        self._driver.begin()

    def close(self) -> None:
        self._driver.close()

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, *, expected: tuple[int, int] | None
    ) -> asyncio.Future[InitializedProducer]:
        return self._driver.ask(
            self._requests.init_producer_id, transactional_id, timeout_ms, expected=expected
        )

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicPartitionPair],
        *,
        client_version: int,
    ) -> asyncio.Future[ErrorCode]:
        return self._driver.ask(
            self._requests.add_partitions,
            transactional_id,
            producer_id,
            producer_epoch,
            partitions,
            client_version=client_version,
        )

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartitionPair],
    ) -> dict[TopicPartitionPair, ErrorCode]:
        return self._context.coordinator.verify_partitions(
            transactional_id, producer_id, producer_epoch, partitions
        )

    def end(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        client_version: int,
    ) -> asyncio.Future[InitializedProducer]:
        return self._driver.ask(
            self._requests.end,
            transactional_id,
            producer_id,
            producer_epoch,
            is_commit=is_commit,
            client_version=client_version,
        )

    def transactions(self) -> Iterable[tuple[str, TransactionMetadata]]:
        return iter(self._context.coordinator)

    def metadata_of(self, transactional_id: str) -> TransactionMetadata | None:
        return self._context.coordinator.metadata_of(transactional_id)

    def on_markers_written(self, written: MarkersWritten) -> None:
        self._driver.input(self._requests.on_markers_written, written)
