"""The partitions of a producer's current transaction, and those that are to be added to it.

Source: partitionsInTransaction, newPartitionsInTransaction of TransactionManager in apache/kafka
clients/.../producer/internals.
"""

from __future__ import annotations

from collections.abc import Collection

from ....protocol.error_code import ErrorCode
from ....protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from ....protocol.topic_partition import TopicPartition


class PartitionsInTransaction:
    """Partitions of one transaction. `to_add`: those that the coordinator has not confirmed yet.

    A partition is in the transaction before the first batch is sent to it.
    """

    def __init__(self) -> None:
        self.to_add: set[TopicPartition] = set()
        self._added: set[TopicPartition] = set()

    def __contains__(self, partition: TopicPartition) -> bool:
        """Whether batches may be sent to it."""
        return partition in self._added

    def add(self, partitions: Collection[TopicPartition]) -> None:
        """Add partitions that the coordinator has confirmed, or that the brokers add themselves."""
        self.to_add.difference_update(partitions)
        self._added.update(partitions)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop partitions that the coordinator has added to a transaction which is being ended."""
        self.to_add.difference_update(partitions)

    def stop_adding(self) -> None:
        """Drop what is to be added: nothing more is sent in this transaction."""
        self.to_add.clear()


def added_partitions(
    response: AddPartitionsToTxnResponse,
) -> tuple[set[TopicPartition], int, str]:
    """Returns the partitions in the response, the error code (0: none), and the partitions that
    have it, as text.
    """
    answered: set[TopicPartition] = set()
    refused: dict[int, list[str]] = {}
    for topic in response.results_by_topic_v3_and_below:
        for answer in topic.results_by_partition:
            partition = TopicPartition(topic.name, answer.partition_index)
            answered.add(partition)
            code = answer.partition_error_code
            if code:
                refused.setdefault(code, []).append(str(partition))
    # OPERATION_NOT_ATTEMPTED only follows from another partition's error: return that one.
    codes = [code for code in refused if code != ErrorCode.OPERATION_NOT_ATTEMPTED] or [*refused]
    if not codes:
        return answered, ErrorCode.NONE, ""
    return answered, codes[0], ", ".join(sorted(refused[codes[0]]))
