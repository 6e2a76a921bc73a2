"""One request of a transactional producer, and what its answer advises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from ....protocol.schema import Message
from ....protocol.topic_partition import TopicPartition
from ...group.membership import ConsumerGroupMetadata
from ...wire.record_metadata import OffsetAndMetadata


class RequestKind(Enum):
    """API of a request."""

    INITIALIZE = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    COMMIT_OFFSETS = "TxnOffsetCommit"
    END = "EndTxn"


class TransactionOperation:
    """A call of the application, and its result.

    error: why it failed, once it is done. is_acknowledged: the application has received its result.
    """

    __slots__ = ("error", "is_acknowledged", "is_done", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_done = False
        self.error: Exception | None = None
        self.is_acknowledged = False

    def end(self, error: Exception | None = None) -> None:
        """End the operation; later calls have no effect."""
        if not self.is_done:
            self.is_done = True
            self.error = error


@dataclass(slots=True, eq=False)
class OffsetsToSend:
    """Offsets to add to the transaction. missing: those without an answer yet.

    is_added: the transaction coordinator knows of the group.
    """

    operation: TransactionOperation
    group: ConsumerGroupMetadata
    missing: dict[TopicPartition, OffsetAndMetadata]
    is_added: bool

    @classmethod
    def of(
        cls, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> OffsetsToSend:
        return cls(TransactionOperation("send_offsets"), group, dict(offsets), is_added=False)


@dataclass(frozen=True, slots=True)
class TransactionRequest:
    """Request to the coordinator of the group if one is given, else to the transaction's.

    min_version, max_version: limits that select the protocol of a transaction.version.
    """

    kind: RequestKind
    message: Message
    response: type[Message]
    min_version: int = 0
    max_version: int | None = None
    group_id: str | None = None


class Advice(NamedTuple):
    """Actions before the next request. delay_ms: time to wait.

    find_coordinator: the broker that was asked may no longer be the coordinator.
    """

    delay_ms: int = 0
    find_coordinator: bool = False
