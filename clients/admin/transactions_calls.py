"""What Admin has of transactions."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TypeVar

from ..threads.io_thread import Steps
from ..wire.cluster_client import ClusterClient
from ..wire.record_metadata import TopicPartition, TopicPartitionLike
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
    """Mixed into Admin. Every call raises ConnectionFailed and RequestTimedOut as Admin's do."""

    _client: ClusterClient
    _timeout_ms: int

    def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        running_longer_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids of all coordinators, in order; all, or those that fit each filter.

        Args:
            states: "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit",
                "CompleteAbort", "Dead", "PrepareEpochFence".
            producer_ids: of the producers that have them.
            running_longer_than_ms: transactions that are open for so long (KIP-994).
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
        """State, producer, coordinator and partitions of each, in the order given.

        Raises:
            TransactionalIdNotFound: no coordinator knows it: it never was, or has expired.
        """
        ids = list(transactional_ids)
        found = self._steps(describe_transactions(self._client, ids, timeout_ms=self._timeout_ms))
        for transactional_id in ids:
            if transactional_id not in found:
                raise not_found(transactional_id)
        return [found[transactional_id] for transactional_id in ids]

    def describe_producers(
        self, partitions: Iterable[TopicPartitionLike], *, broker: int | None = None
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        """The producers that each partition's leader remembers, or the replica on node `broker`.

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
        partition: TopicPartitionLike,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int = -1,
    ) -> None:
        """End a transaction that hangs in a partition: an abort marker is written.

        Only for what find_hanging_transactions finds: of a transaction that goes on, the rest would
        be committed without what is aborted here. Repeating changes nothing.

        Raises:
            InvalidProducerEpoch: the producer has gone on since.
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
        """End the producers that have these ids, and abort what they have open.

        They raise ProducerFenced. A new producer with the id goes on.
        """
        ids = list(transactional_ids)
        return self._steps(fence_producers(self._client, ids, timeout_ms=self._timeout_ms))

    def find_hanging_transactions(
        self,
        partitions: Iterable[TopicPartitionLike],
        *,
        broker: int | None = None,
        older_than_ms: int = 15 * 60_000,
    ) -> list[HangingTransaction]:
        """Open transactions of these partitions that no coordinator will end (KIP-664).

        Args:
            partitions: where to look.
            broker: look at the replicas on this node instead of the leaders.
            older_than_ms: without a record for so long. Less than the brokers'
                transaction.max.timeout.ms may show what is about to be ended.

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
