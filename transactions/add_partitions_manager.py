"""AddPartitionsToTxn manager: asks coordinators whether partitions are in transactions (KIP-890).

A leader asks before the first batch of a transaction is appended, so that a late batch cannot begin
a hanging transaction. Clients of transaction.version 2 do not send AddPartitionsToTxn themselves:
for them the leader's question also adds the partitions.

At most one request is in flight to each coordinator's node. Questions that arrive meanwhile go into
the next one: those of one producer that are of the same kind (verify or add) are merged, since a
request has each transactional id once. A question with a newer producer epoch fails the queued ones
of the older epoch.

While a coordinator still ends the producer's former transaction, it answers CONCURRENT_TRANSACTIONS
to the first batches of the next one. That takes only a moment, so questions that add are retried
here for a while, before the error reaches the client. Later questions of the same producer wait
behind them: they are answered in the order in which they were asked, or batches would be appended
in another order than sent.

Unlike Kafka: a second question of the same producer does not end the first one with
NETWORK_EXCEPTION; both are answered.

Not here: what an error means for the request that waits (handlers), the connections (actors).
Source: apache/kafka server/.../transaction/AddPartitionsToTxnManager.java,
AddPartitionsToTxnConfig.java, core/.../server/ReplicaManager.scala (4.1).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from ..protocol.error_code import ErrorCode
from ..protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ..protocol.topic_partition import TopicPartitionPair
from ..steps.replies import Reply

logger = logging.getLogger(__name__)

_AS_ANSWERED = {
    # The error that producers expect from a partition leader.
    ErrorCode.PRODUCER_FENCED.value: ErrorCode.INVALID_PRODUCER_EPOCH,
    # Not attempted because another partition of the request failed; clients retry.
    ErrorCode.OPERATION_NOT_ATTEMPTED.value: ErrorCode.NETWORK_EXCEPTION,
}
_CODES: dict[int, ErrorCode] = {code.value: code for code in ErrorCode}


class CoordinatorNodes(Protocol):
    """Nodes of transaction coordinators, by the committed metadata."""

    def coordinator_of(self, transactional_id: str) -> int | None:
        """Node that leads the id's partition of __transaction_state and is in service; None: there
        is none.
        """
        ...


FIRST_WAIT_MS = 2


class RetryLimits(NamedTuple):
    """Retry limits (add.partitions.to.txn.retry.backoff.ms and .max.ms): pause, and total time."""

    backoff_ms: int = 20
    max_ms: int = 100

    def wait_ms(self, waited_ms: int) -> int:
        """Pause in ms before the next retry: as long as the question has waited so far,
        but at most backoff_ms.

        Markers of the former transaction are usually written within a few milliseconds.
        """
        return min(self.backoff_ms, max(FIRST_WAIT_MS, waited_ms))


class SendAddPartitionsToTxn(NamedTuple):
    """Send the request to the node. Then `step.on_answer` or `step.on_failed`, exactly one."""

    step: AddPartitionsManager
    node_id: int
    request: AddPartitionsToTxnRequest


class _Producer(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    adds: bool


class _Question(NamedTuple):
    ticket: Any
    producer: _Producer
    partitions: frozenset[TopicPartitionPair]
    since_ms: int


_Batch = dict[_Producer, list[_Question]]
_Queue = dict[str, _Batch]
"""Questions by transactional id: a request has each id once."""


class AddPartitionsManager:
    """A step object. Watch its `next_deadline_ms`: what is queued is sent at a tick, together."""

    def __init__(
        self, coordinators: CoordinatorNodes, effects: list[Any], limits: RetryLimits | None = None
    ) -> None:
        self._coordinators = coordinators
        self._effects = effects
        self._limits = limits or RetryLimits()
        self._queues: dict[int, _Queue] = {}
        self._in_flight: dict[int, _Batch] = {}
        self._again: dict[_Producer, tuple[int, list[_Question]]] = {}
        """Questions to retry, with the time of the retry, by producer."""

    def verify(
        self,
        ticket: Any,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartitionPair],
        *,
        adds: bool,
        now_ms: int,
    ) -> None:
        """Verify or add partitions; answered with a code for each, see
        handlers.ports.transaction_port.
        """
        producer = _Producer(transactional_id, producer_id, producer_epoch, adds)
        self._ask(_Question(ticket, producer, frozenset(partitions), now_ms))

    def on_metadata(self) -> None:
        """Called on new metadata: unsent questions go to the current coordinators."""
        queues, self._queues = self._queues, {}
        for queue in queues.values():
            for batch in queue.values():
                for questions in batch.values():
                    for question in questions:
                        self._ask(question)

    def close(self) -> None:
        """Close at shutdown: nothing more is sent; questions are answered NETWORK_EXCEPTION."""
        waiting = [batch for queue in self._queues.values() for batch in queue.values()]
        for batch in (*waiting, *self._in_flight.values()):
            self._answer_all(batch, ErrorCode.NETWORK_EXCEPTION)
        self._answer_all(
            {producer: questions for producer, (_, questions) in self._again.items()},
            ErrorCode.NETWORK_EXCEPTION,
        )
        self._queues, self._in_flight, self._again = {}, {}, {}

    # --- answers of coordinators -----------------------------------------------------------------

    def on_answer(self, node_id: int, answer: AddPartitionsToTxnResponse, now_ms: int) -> None:
        asked = self._in_flight.pop(node_id)
        if answer.error_code:
            self._answer_all(asked, _CODES.get(answer.error_code, ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        results = {result.transactional_id: result for result in answer.results_by_transaction}
        for producer, questions in asked.items():
            codes = _codes(results.get(producer.transactional_id))
            if ErrorCode.CONCURRENT_TRANSACTIONS in codes.values() and producer.adds:
                since_ms = questions[0].since_ms
                again_ms = now_ms + self._limits.wait_ms(now_ms - since_ms)
                if again_ms <= since_ms + self._limits.max_ms:
                    behind = self._queues.get(node_id, {}).get(producer.transactional_id, {})
                    questions += behind.pop(producer, [])
                    self._again[producer] = (again_ms, questions)
                    continue
            for question in questions:
                # A partition that is not in the answer is not verified.
                answers = {
                    each: codes.get(each, ErrorCode.NETWORK_EXCEPTION)
                    for each in question.partitions
                }
                self._effects.append(Reply(question.ticket, answers))
        self._drop_empty(node_id)

    def on_failed(self, node_id: int, error: Exception) -> None:
        """Called when there is no answer. Partitions may have been added: a retry finds them."""
        logger.info("transaction coordinators on node %d do not answer: %s", node_id, error)
        self._answer_all(self._in_flight.pop(node_id), ErrorCode.NETWORK_EXCEPTION)

    def _drop_empty(self, node_id: int) -> None:
        queue = self._queues.get(node_id)
        if queue is not None:
            for name in [name for name, batch in queue.items() if not batch]:
                del queue[name]
            if not queue:
                del self._queues[node_id]

    # --- time ------------------------------------------------------------------------------------

    @property
    def next_deadline_ms(self) -> int | None:
        """See replication.effects.TickingStep."""
        if any(node_id not in self._in_flight for node_id in self._queues):
            return 0
        return min((at_ms for at_ms, _ in self._again.values()), default=None)

    def on_tick(self, now_ms: int) -> None:
        """Send queued questions to nodes without a request in flight."""
        for producer in [each for each, (at_ms, _) in self._again.items() if at_ms <= now_ms]:
            for question in self._again.pop(producer)[1]:
                self._ask(question)
        for node_id in list(self._queues):
            if node_id not in self._in_flight:
                batch = self._take(node_id)
                self._in_flight[node_id] = batch
                request = AddPartitionsToTxnRequest(
                    transactions=[_transaction(*each) for each in batch.items()]
                )
                self._effects.append(SendAddPartitionsToTxn(self, node_id, request))

    def _take(self, node_id: int) -> _Batch:
        """Take the oldest question of each transactional id; its other questions come next."""
        taken: _Batch = {}
        rest: _Queue = {}
        for name, batch in self._queues.pop(node_id).items():
            producer = next(iter(batch))
            taken[producer] = batch.pop(producer)
            if batch:
                rest[name] = batch
        if rest:
            self._queues[node_id] = rest
        return taken

    # --- questions -------------------------------------------------------------------------------

    def _ask(self, question: _Question) -> None:
        producer = question.producer
        if producer in self._again:
            self._again[producer][1].append(question)
            return
        node_id = self._coordinators.coordinator_of(producer.transactional_id)
        if node_id is None:
            self._answer(question, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        batch = self._queues.setdefault(node_id, {}).setdefault(producer.transactional_id, {})
        for other in [each for each in batch if each.producer_id == producer.producer_id]:
            if other.producer_epoch > producer.producer_epoch:
                self._answer(question, ErrorCode.INVALID_PRODUCER_EPOCH)
                return
            if other.producer_epoch < producer.producer_epoch:
                for former in batch.pop(other):
                    self._answer(former, ErrorCode.INVALID_PRODUCER_EPOCH)
        batch.setdefault(producer, []).append(question)

    def _answer_all(self, batch: _Batch, code: ErrorCode) -> None:
        for questions in batch.values():
            for question in questions:
                self._answer(question, code)

    def _answer(self, question: _Question, code: ErrorCode) -> None:
        self._effects.append(Reply(question.ticket, dict.fromkeys(question.partitions, code)))


def _codes(result: AddPartitionsToTxnResult | None) -> dict[TopicPartitionPair, ErrorCode]:
    if result is None:
        return {}
    codes = {}
    for topic in result.topic_results:
        for partition in topic.results_by_partition:
            code = partition.partition_error_code
            answered = _AS_ANSWERED.get(code) or _CODES.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)
            codes[topic.name, partition.partition_index] = answered
    return codes


def _transaction(producer: _Producer, questions: list[_Question]) -> AddPartitionsToTxnTransaction:
    """Part of a request, with its partitions sorted, so that equal questions have equal bytes."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted({each for question in questions for each in question.partitions}):
        topics.setdefault(topic, []).append(index)
    return AddPartitionsToTxnTransaction(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        verify_only=not producer.adds,
        topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=indexes)
            for topic, indexes in topics.items()
        ],
    )
