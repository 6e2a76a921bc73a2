"""Port of the transaction handlers: the coordinators on this node, and those of other nodes.

Implemented in actors/coordinators. Every method copies what it needs of the request before it
returns (a request points into the receive buffer). An awaitable may be done already, or raise a
KafkaError: NotCoordinator when another node has become leader of the partition.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from typing import Protocol

from ...protocol.error_code import ErrorCode
from ...protocol.topic_partition import TopicPartitionPair
from ...transactions.transaction_effects import InitializedProducer
from ...transactions.transaction_metadata import TransactionMetadata


class TransactionShard(Protocol):
    """The transactional ids of one partition of __transaction_state, which this node leads."""

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, *, expected: tuple[int, int] | None
    ) -> Awaitable[InitializedProducer]:
        """Init a producer. `expected`: id and epoch of one that recovers (KIP-360), or None."""
        ...

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicPartitionPair],
        *,
        client_version: int,
    ) -> Awaitable[ErrorCode]: ...
    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartitionPair],
    ) -> dict[TopicPartitionPair, ErrorCode]:
        """Whether each partition is in the producer's open transaction (KIP-890)."""
        ...

    def end(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        client_version: int,
    ) -> Awaitable[InitializedProducer]:
        """End a transaction. `client_version`: the transaction.version that the client follows."""
        ...

    def transactions(self) -> Iterable[tuple[str, TransactionMetadata]]:
        """All transactional ids that producers have initialized."""
        ...

    def metadata_of(self, transactional_id: str) -> TransactionMetadata | None: ...


class Transactions(Protocol):
    """Transaction coordinators of this node, by shard."""

    def shard(self, partition: int) -> TransactionShard:
        """Shard of a partition. Raises NotCoordinator; CoordinatorLoadInProgress if loading."""
        ...

    def shards(self) -> Sequence[TransactionShard]:
        """All shards. Raises CoordinatorLoadInProgress if one is not loaded."""
        ...


class TransactionPartitions(Protocol):
    """Port of leaders to the coordinators of transactions, on this node or others (KIP-890)."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartitionPair],
        *,
        adds: bool,
    ) -> Awaitable[dict[TopicPartitionPair, ErrorCode]]:
        """Check whether each partition is in the producer's open transaction.

        `adds`: missing partitions are added, for clients of transaction.version 2. Errors of the
        request to the coordinator's node are returned as codes; nothing is raised.
        """
        ...
