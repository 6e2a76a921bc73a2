"""Methods of Admin for transactions."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TypeVar

from ...protocol.topic_partition import TopicPartition, TopicPartitionPair
from ..threads.io_thread import Steps
from ..wire.cluster_client import ClusterClient
from .transactions_admin import (
    ActiveProducer,
    FencedProducer,
    HangingTransaction,
    TransactionDescription,
    TransactionFilter,
    TransactionListing,
    abort_transaction,
    describe_producers,
    describe_transactions,
    fence_producers,
    find_hanging_transactions,
    list_transactions,
    not_found,
)

T = TypeVar("T")


class TransactionsCalls:
    """Part of Admin. Every call raises ConnectionFailed and RequestTimedOut as Admin's do."""

    def __init__(self, client: ClusterClient, timeout_ms: int) -> None:
        self._client = client
        self._timeout_ms = timeout_ms

    def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        running_longer_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Transactional ids of all coordinators, sorted; all, or those that match every filter.

        Args:
            states: "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit",
                "CompleteAbort", "Dead", "PrepareEpochFence".
            producer_ids: ids of their producers.
            running_longer_than_ms: minimum time that a transaction is open (KIP-994).
            pattern: a regular expression that the whole id matches (KIP-1152).

        Raises:
            UnsupportedVersion: the brokers are too old for a filter.
            ValueError: there is no such state.
        """
        wanted = TransactionFilter(
            states=tuple(states),
            producer_ids=tuple(producer_ids),
            running_longer_than_ms=running_longer_than_ms,
            pattern=pattern,
        )
        return self._steps(list_transactions(self._client, wanted, timeout_ms=self._timeout_ms))

    def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> list[TransactionDescription]:
        """Descriptions of transactional ids, in the order given.

        Raises:
            TransactionalIdNotFound: no coordinator knows it: it never existed, or has expired.
        """
        ids = list(transactional_ids)
        found = self._steps(describe_transactions(self._client, ids, timeout_ms=self._timeout_ms))
        for transactional_id in ids:
            if transactional_id not in found:
                raise not_found(transactional_id)
        return [found[transactional_id] for transactional_id in ids]

    def describe_producers(
        self, partitions: Iterable[TopicPartitionPair], *, broker: int | None = None
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        """Active producers of each partition, from its leader or from the replica on node `broker`.

        Raises:
            UnknownTopicOrPartition: there is no such topic.
        """
        keys = [TopicPartition(*key) for key in partitions]
        timeout_ms = self._timeout_ms
        return self._steps(
            describe_producers(self._client, keys, broker=broker, timeout_ms=timeout_ms)
        )

    def abort_transaction(
        self,
        partition: TopicPartitionPair,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int = -1,
    ) -> None:
        """Abort a hanging transaction in one partition, by an abort marker. Idempotent.

        Use it only for results of find_hanging_transactions: a live transaction would be committed
        without the records that are aborted here.

        Raises:
            InvalidProducerEpoch: the producer has a newer epoch.
            UnknownTopicOrPartition: there is no such partition.
        """
        self._steps(
            abort_transaction(
                self._client,
                TopicPartition(*partition),
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
                timeout_ms=self._timeout_ms,
            )
        )

    def fence_producers(self, transactional_ids: Iterable[str]) -> dict[str, FencedProducer]:
        """Fence the producers that have these ids, and abort their open transactions.

        They raise ProducerFenced. A new producer can use the id.
        """
        ids = list(transactional_ids)
        return self._steps(fence_producers(self._client, ids, timeout_ms=self._timeout_ms))

    def find_hanging_transactions(
        self,
        partitions: Iterable[TopicPartitionPair],
        *,
        broker: int | None = None,
        older_than_ms: int = 15 * 60_000,
    ) -> list[HangingTransaction]:
        """Find open transactions in these partitions that no coordinator will end (KIP-664).

        Args:
            partitions: partitions to search.
            broker: node id of replicas to ask instead of the leaders.
            older_than_ms: time since the last record. Less than the brokers'
                transaction.max.timeout.ms may show transactions that are about to end.

        Raises:
            UnknownTopicOrPartition: there is no such topic.
        """
        return self._steps(
            find_hanging_transactions(
                self._client,
                [TopicPartition(*key) for key in partitions],
                broker=broker,
                older_than_ms=older_than_ms,
                now_ms=int(time.time() * 1000),
                timeout_ms=self._timeout_ms,
            )
        )

    def _steps(self, steps: Steps[T]) -> T:
        return self._client.run(steps, self._timeout_ms)
