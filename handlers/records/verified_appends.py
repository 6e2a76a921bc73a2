"""The transactional batches of one Produce request (KIP-890).

A transaction's first batch in a partition is appended when the transaction coordinator has
confirmed that the partition is part of the transaction; later batches at once. From Produce version
12 on the same request to the coordinator also adds the partition. While a batch waits, later ones
of its producer in the partition are verified, too: the coordinator's responses arrive in the order
of the requests, so sequences reach the log in order. Other producers' batches do not wait.

Clients before version 11 do not know TRANSACTION_ABORTABLE, and clients before 12 would fail the
transaction on a coordinator's errors: they get NOT_ENOUGH_REPLICAS, which they retry without
refreshing metadata.
Source: ReplicaManager.handleProduceAppend and maybeSendPartitionsToTransactionCoordinator in
apache/kafka (4.1).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import NamedTuple

from ...protocol.error_code import ErrorCode
from ...protocol.errors import InvalidTxnState, KafkaError, NotEnoughReplicas, error_for
from ...protocol.records.record_batch import read_header
from ...protocol.topic_partition import TopicPartitionPair
from ...storage.producers.verification_guard import UNVERIFIED, VerificationGuard
from ..ports.context import RequestContext
from ..ports.replica_port import Appended, LeaderReplica

FIRST_WITH_ABORTABLE = 11
FIRST_THAT_ADDS = 12
_COORDINATOR_ERRORS = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class _Waiting(NamedTuple):
    replica: LeaderReplica
    batch: bytearray
    guard: VerificationGuard
    answer: asyncio.Future[Appended]


class VerifiedAppends:
    """Appends of one Produce request: `append` each batch, then call `begin_verification`."""

    def __init__(self, transactional_id: str, context: RequestContext, *, acks_all: bool) -> None:
        self._transactional_id = transactional_id
        self._context = context
        self._acks_all = acks_all
        self._adds = context.api_version >= FIRST_THAT_ADDS
        self._producer = (-1, -1)
        self._waiting: dict[TopicPartitionPair, _Waiting] = {}

    def append(
        self, replica: LeaderReplica, partition: TopicPartitionPair, batch: memoryview
    ) -> Appended | Awaitable[Appended]:
        """Append a batch now, or once it is verified. All batches are of one producer.

        `batch` is copied if it has to wait. Raises KafkaError if it is not appended.
        """
        header = read_header(batch)
        transactions = self._context.node.server_config.transactions
        if not self._adds and not transactions.transaction_partition_verification_enable:
            return self._produce(replica, batch, UNVERIFIED)
        guard = replica.begin_verification(
            header.producer_id,
            header.producer_epoch,
            sequence=header.base_sequence,
            supports_epoch_bump=self._adds,
        )
        if guard is None:
            return self._produce(replica, batch, None)
        self._producer = header.producer_id, header.producer_epoch
        guard.waiting += 1
        answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self._waiting[partition] = _Waiting(replica, bytearray(batch), guard, answer)
        return answer

    def begin_verification(self) -> None:
        """Send one request for all waiting batches, before the next Produce request is handled."""
        if not self._waiting:
            return
        answer = asyncio.ensure_future(
            self._context.node.transaction_partitions.verify(
                self._transactional_id, *self._producer, list(self._waiting), adds=self._adds
            )
        )
        # Not in the task that awaits the response: that may be cancelled, and tasks run in any
        # order.
        answer.add_done_callback(self._on_verified)

    def _on_verified(self, answer: asyncio.Future[dict[TopicPartitionPair, ErrorCode]]) -> None:
        codes: dict[TopicPartitionPair, ErrorCode] = {}
        if not answer.cancelled() and answer.exception() is None:
            codes = answer.result()
        for partition, waiting in self._waiting.items():
            waiting.guard.waiting -= 1
            code = codes.get(partition, ErrorCode.NETWORK_EXCEPTION)
            if code:
                _refuse(waiting.answer, self._error(code))
                continue
            try:
                appended = self._produce(waiting.replica, memoryview(waiting.batch), waiting.guard)
            except InvalidTxnState as error:
                # A marker of a later epoch was appended during the verification: this transaction
                # has timed out, or another producer was initialized. On a retry the coordinator
                # returns which of the two, and the client gets no error that is fatal for it.
                again = NotEnoughReplicas("the transaction has just been ended")
                _refuse(waiting.answer, again if self._adds else error)
            except KafkaError as error:
                _refuse(waiting.answer, error)
            else:
                _pass_on(appended, waiting.answer)

    def _produce(
        self,
        replica: LeaderReplica,
        batch: memoryview,
        guard: VerificationGuard | None,
    ) -> Appended | Awaitable[Appended]:
        return replica.produce(batch, is_message_set=False, acks_all=self._acks_all, guard=guard)

    def _error(self, code: ErrorCode) -> KafkaError:
        is_trouble = code in _COORDINATOR_ERRORS or (
            code == ErrorCode.CONCURRENT_TRANSACTIONS and not self._adds
        )
        if is_trouble:
            return NotEnoughReplicas(f"the transaction could not be verified: {code.name}")
        if (
            code == ErrorCode.TRANSACTION_ABORTABLE
            and self._context.api_version < FIRST_WITH_ABORTABLE
        ):
            code = ErrorCode.INVALID_TXN_STATE
        return error_for(code, "the transaction's coordinator does not know of this partition")


def _refuse(answer: asyncio.Future[Appended], error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)
        answer.exception()  # marked as retrieved, in case the producer has disconnected


def _pass_on(appended: Appended | Awaitable[Appended], answer: asyncio.Future[Appended]) -> None:
    if isinstance(appended, Appended):
        if not answer.done():
            answer.set_result(appended)
        return

    def converted(later: asyncio.Future[Appended]) -> None:
        error = later.exception()
        if error is not None:
            _refuse(answer, error)
        elif not answer.done():
            answer.set_result(later.result())

    asyncio.ensure_future(appended).add_done_callback(converted)
