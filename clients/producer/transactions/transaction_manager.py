"""A transactional producer's state: whether batches may be sent, and the next request.

    events in       initialize, resume, begin, end, send_offsets, release (the application's calls)
                    may_send, on_send_failed (of batches), on_response, on_error (of requests)
    decisions out   next_request, the ends of operations, `failure`

      UNINITIALIZED -> INITIALIZING -> READY -> IN_TRANSACTION -> COMMITTING -> READY
                                                  |              |
                                                  v              v
                     READY <- ABORTING <- IN_TRANSACTION, ABORTABLE_ERROR   any -> FATAL_ERROR

Invariants:
    At most one request is open. EndTxn is the last one of a transaction: it is sent when every
    batch and all offsets have their outcome, a commit only if all have succeeded.
    After a batch with an unknown outcome nothing is written under the same producer epoch once the
    transaction is aborted, as a late request could write into the next one: the coordinator raises
    the epoch with every end (transaction.version 2, KIP-890), or this producer requests a new one
    (KIP-360).

Two protocols: below transaction.version 2 partitions and groups are announced to the coordinator
before anything is sent to them (AddPartitionsToTxn, AddOffsetsToTxn); from 2 on the brokers do that
for Produce v12 and TxnOffsetCommit v5. The version in use changes between transactions only.

Errors are of three kinds (KIP-1050): retriable ones are retried here; abortable ones end the
transaction, not the producer (TransactionAbortable); the others end the producer (ProducerFenced,
ApplicationRecoverable).

Source: TransactionManager in apache/kafka clients/.../producer/internals.

Not here: sockets, waiting, where coordinators are (producer_transactions), sequences
(partition_queue); how a transaction ends (transaction_completion), what is to join it
(partitions_in_transaction, pending_offset_commits), calls that have timed out (pending_operation).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from ....protocol.error_code import ErrorCode
from ....protocol.errors import (
    ConnectionFailed,
    InvalidTxnState,
    KafkaError,
    TransactionAbortable,
    error_for,
)
from ....protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from ....protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from ....protocol.messages.end_txn import EndTxnResponse
from ....protocol.messages.init_producer_id import InitProducerIdResponse
from ....protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
from ....protocol.schema import Message
from ....protocol.topic_partition import TopicPartition
from ...group.membership import ConsumerGroupMetadata, reason_of
from ...wire.record_metadata import OffsetAndMetadata
from ..batches.partition_queue import Identity
from .partitions_in_transaction import PartitionsInTransaction, added_partitions
from .pending_offset_commits import PendingOffsetCommits
from .pending_operation import PendingOperation
from .transaction_completion import TransactionCompletion
from .transaction_errors import (
    ABORTABLE,
    BATCH_FATAL,
    FENCED,
    MOVED,
    NEEDS_NEW_EPOCH,
    NOT_STARTED,
    cannot_commit,
    cannot_go_on,
    no_transaction,
    not_initialized,
)
from .transaction_messages import (
    add_offsets_request,
    add_partitions_request,
    commit_offsets_request,
    end_request,
    initialize_request,
)
from .transaction_request import (
    Advice,
    RequestKind,
    TransactionOperation,
    TransactionRequest,
)

NO_IDENTITY: Final = Identity(-1, -1)
IMPLICIT_PARTITIONS: Final = 2
"""transaction.version from which brokers add partitions, and each end raises the epoch."""

CONCURRENT_BACKOFF_MS: Final = 20
"""Backoff in ms while the previous transaction is completed, shorter than the usual one."""


class Phase(Enum):
    """Phase of a transactional producer."""

    UNINITIALIZED = "not initialized"
    INITIALIZING = "being initialized"
    READY = "between transactions"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "in a transaction that has failed"
    FATAL_ERROR = "at its end"


class OpenTransaction(NamedTuple):
    """An open transaction that its producer has released: what another one needs to end it."""

    producer_id: int
    epoch: int
    transaction_version: int


class TransactionManager:
    """State in memory only: the coordinator stores the state that must survive the producer.

    identity: that of batches written now. transaction_version: of the current transaction.
    failure: error of the failed transaction or producer; None if there is none.
    """

    def __init__(
        self, transactional_id: str, timeout_ms: int, *, retry_backoff_ms: int = 100
    ) -> None:
        self.transactional_id = transactional_id
        self.phase = Phase.UNINITIALIZED
        self.identity = NO_IDENTITY
        self.transaction_version = 0
        self.failure: KafkaError | None = None
        self._timeout_ms = timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._offered_version = 0
        self._pending = PendingOperation()
        self._offsets = PendingOffsetCommits()
        self._partitions = PartitionsInTransaction()
        self._completion = TransactionCompletion()
        self._open: TransactionRequest | None = None

    # --- the application's calls ---------------------------------------------------------------

    def initialize(self) -> TransactionOperation:
        """Get the producer id, and fence earlier producers of the transactional id. Idempotent.

        Raises:
            InvalidTxnState: another call has timed out and is to be repeated first.
            ProducerFenced, ApplicationRecoverable: the producer has ended.
        """
        if (pending := self._pending.same("init_transactions")) is not None:
            return pending
        self._raise_if_fatal()
        if self.phase is not Phase.UNINITIALIZED:
            operation = TransactionOperation("init_transactions")
            operation.end()
            return operation
        self.phase = Phase.INITIALIZING
        return self._pending.begin("init_transactions")

    def release(self) -> Identity | OpenTransaction | None:
        """Release the transactional id, or the open transaction, for the one that `resume`s it.

        Between two transactions an identity; in one, of which every record and offset has been
        acknowledged, what it takes to end it. This producer is uninitialized again. None: it keeps
        the transactional id, as no new epoch began with the end of its transaction
        (transaction.version below 2), or as it is not ready.
        """
        released: Identity | OpenTransaction
        if self.phase is Phase.IN_TRANSACTION:
            released = OpenTransaction(*self.identity, self.transaction_version)
        elif self.phase is Phase.READY and self.transaction_version >= IMPLICIT_PARTITIONS:
            released = self.identity
        else:
            return None
        self.identity = NO_IDENTITY
        self.phase = Phase.UNINITIALIZED
        return released

    def resume(self, released: Identity | OpenTransaction) -> None:
        """Continue with what another producer of the transactional id has released.

        Between two transactions nothing was written under its epoch, so all sequences begin at 0.
        An open transaction is to be ended next. Only one producer may resume it.

        Raises:
            InvalidTxnState: this producer is initialized already.
            ProducerFenced, ApplicationRecoverable: the producer has ended.
        """
        self._pending.same("resume")
        self._raise_if_fatal()
        if self.phase is not Phase.UNINITIALIZED:
            raise InvalidTxnState(
                f"resume: the producer of {self.transactional_id!r} is {self.phase.value}"
            )
        self.identity = Identity(*released[:2])
        self._offered_version = max(self._offered_version, IMPLICIT_PARTITIONS)
        self._on_ready()
        if isinstance(released, OpenTransaction):
            self.transaction_version = released.transaction_version
            self._completion.is_started = True
            self.phase = Phase.IN_TRANSACTION

    def begin(self) -> None:
        """Begin a transaction. It is local: the coordinator is informed with the first records.

        Raises:
            InvalidTxnState: a transaction is open, or the producer is not initialized.
            TransactionAbortable: the previous transaction has failed: abort it first.
            ProducerFenced, ApplicationRecoverable: the producer has ended.
        """
        self._pending.same("begin")
        self._raise_failure()
        if self.phase is not Phase.READY:
            raise InvalidTxnState(
                f"begin: the producer of {self.transactional_id!r} is {self.phase.value}; "
                "commit() or abort() the open transaction first"
            )
        self.phase = Phase.IN_TRANSACTION

    def end(self, *, is_commit: bool) -> TransactionOperation:
        """End the transaction. If a commit fails, abort the transaction.

        Raises:
            InvalidTxnState: no transaction is open.
            TransactionAbortable: it has failed and can only be aborted.
            ProducerFenced, ApplicationRecoverable: the producer has ended.
        """
        name = "commit" if is_commit else "abort"
        if (pending := self._pending.same(name)) is not None:
            return pending
        if is_commit:
            self._raise_failure()
        else:
            self._raise_if_fatal()
        if self.phase not in (Phase.IN_TRANSACTION, Phase.ABORTABLE_ERROR):
            raise no_transaction(name, self.transactional_id, self.phase.value)
        self.phase = Phase.COMMITTING if is_commit else Phase.ABORTING
        if not is_commit:
            self._partitions.stop_adding()
            if self._offsets.first is not None:
                self._completion.needs_new_epoch = True  # a commit of offsets may be in flight
            self._offsets.drop(TransactionAbortable("the transaction was aborted"))
        return self._pending.begin(name)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> TransactionOperation:
        """Commit `offsets` for the group if, and when, the transaction is committed.

        Raises:
            InvalidTxnState: no transaction is open.
            TransactionAbortable: it has failed and can only be aborted.
            ProducerFenced, ApplicationRecoverable: the producer has ended.
        """
        self._pending.same("send_offsets")
        self._raise_failure()
        if self.phase is not Phase.IN_TRANSACTION:
            raise no_transaction("send_offsets", self.transactional_id, self.phase.value)
        return self._offsets.add(offsets, group)

    def check_open(self) -> None:
        """Raise unless records may be sent.

        Raises:
            InvalidTxnState: no transaction is open.
            TransactionAbortable, ProducerFenced, ApplicationRecoverable: as `send_offsets`.
        """
        if self.phase is not Phase.IN_TRANSACTION:
            self._raise_failure()
            raise no_transaction("send", self.transactional_id, self.phase.value)

    # --- batches -------------------------------------------------------------------------------

    @property
    def accepts_batches(self) -> bool:
        """Whether queued batches may still join the transaction."""
        is_good = self.phase in (Phase.IN_TRANSACTION, Phase.COMMITTING)
        return is_good and not self._completion.has_begun

    def may_send(self, partition: TopicPartition) -> bool:
        """Whether batches may go to `partition` now; if not yet, it will be added."""
        if not self.accepts_batches:
            return False
        if partition in self._partitions:
            return True
        if self.transaction_version >= IMPLICIT_PARTITIONS:
            self._partitions.add((partition,))
            self._completion.is_started = True
            return True
        self._partitions.to_add.add(partition)
        return False

    def on_send_failed(self, error: Exception) -> None:
        """Fail the transaction, as a record may be missing in it."""
        if self.phase is Phase.FATAL_ERROR:
            return
        if isinstance(error, KafkaError) and error.code in BATCH_FATAL:
            self._fail_for_good(error)
        elif self.phase is Phase.ABORTING:
            self._completion.needs_new_epoch = True
        elif self.phase in (Phase.IN_TRANSACTION, Phase.COMMITTING):
            self._completion.needs_new_epoch = True
            self._fail_transaction(error)

    # --- requests ------------------------------------------------------------------------------

    def on_features(self, transaction_version: int) -> None:
        """Set the brokers' transaction.version, which is used from the next transaction on."""
        self._offered_version = transaction_version

    def next_request(self, *, is_flushed: bool) -> TransactionRequest | None:
        """Next request to send, or None. One at a time: the next one follows its answer.

        Args:
            is_flushed: every batch of the transaction has its outcome.
        """
        if self._open is None:
            self._open = self._choose(is_flushed=is_flushed)
            return self._open
        return None

    def on_response(self, request: TransactionRequest, response: Message) -> Advice:
        """Handle an answer of the coordinator."""
        assert request is self._open
        self._open = None
        match response:
            case InitProducerIdResponse():
                return self._on_initialized(request, response)
            case AddPartitionsToTxnResponse():
                return self._on_partitions_added(request, response)
            case AddOffsetsToTxnResponse():
                if response.error_code:
                    return self._on_refused(request, response.error_code)
                self._completion.is_started = True
                self._offsets.on_group_added()
            case TxnOffsetCommitResponse():
                return self._on_offsets_committed(request, response)
            case EndTxnResponse():
                if response.error_code:
                    return self._on_refused(request, response.error_code)
                if response.producer_id >= 0:
                    self.identity = Identity(response.producer_id, response.producer_epoch)
                self._on_ended()
            case _:
                raise AssertionError(response)
        return Advice()

    def on_error(self, request: TransactionRequest, error: Exception) -> Advice:
        """Handle a request that could not be sent, or whose answer was lost."""
        assert request is self._open
        self._open = None
        if isinstance(error, ConnectionFailed):
            return Advice(self._retry_backoff_ms, find_coordinator=True)
        if isinstance(error, KafkaError) and error.retriable:
            return Advice(self._retry_backoff_ms)
        code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            self._fail_transaction(error)
        elif self.phase is Phase.INITIALIZING and code in NOT_STARTED:
            self._not_started(error)
        else:
            self._fail_for_good(error)
        return Advice()

    # --- which request -------------------------------------------------------------------------

    def _choose(self, *, is_flushed: bool) -> TransactionRequest | None:
        match self.phase:
            case Phase.INITIALIZING:
                return initialize_request(self.transactional_id, self._timeout_ms, self.identity)
            case Phase.IN_TRANSACTION:
                return self._addition()
            case Phase.COMMITTING:
                return self._addition() or (self._end() if is_flushed else None)
            case Phase.ABORTING:
                return self._end() if is_flushed else None
        return None

    def _addition(self) -> TransactionRequest | None:
        to_add = self._partitions.to_add
        if to_add:
            return add_partitions_request(self.transactional_id, self.identity, to_add)
        waiting = self._offsets.first
        if waiting is None:
            return None
        implicit = self.transaction_version >= IMPLICIT_PARTITIONS
        if not implicit and not waiting.is_added:
            return add_offsets_request(self.transactional_id, self.identity, waiting.group.group_id)
        self._completion.is_started = True
        return commit_offsets_request(
            self.transactional_id, self.identity, waiting, implicit=implicit
        )

    def _end(self) -> TransactionRequest | None:
        if self._completion.needs_request:
            implicit = self.transaction_version >= IMPLICIT_PARTITIONS
            self._completion.is_sent = True
            return end_request(
                self.transactional_id,
                self.identity,
                is_commit=self.phase is Phase.COMMITTING,
                implicit=implicit,
            )
        if not self._completion.is_done:
            self._on_ended()
        if self.phase in (Phase.COMMITTING, Phase.ABORTING):
            return initialize_request(self.transactional_id, self._timeout_ms, self.identity)
        return None

    # --- answers -------------------------------------------------------------------------------

    def _on_initialized(
        self, request: TransactionRequest, response: InitProducerIdResponse
    ) -> Advice:
        code = response.error_code
        if not code:
            self.identity = Identity(response.producer_id, response.producer_epoch)
            self._on_ready()
            return Advice()
        if self.phase is Phase.INITIALIZING and code in NOT_STARTED:
            self._not_started(not_initialized(code, self.transactional_id, self._timeout_ms))
            return Advice()
        return self._on_refused(request, code)

    def _on_partitions_added(
        self, request: TransactionRequest, response: AddPartitionsToTxnResponse
    ) -> Advice:
        answered, code, what = added_partitions(response)
        if code:
            return self._on_refused(request, code, what)
        if self.phase is Phase.ABORTING:
            self._partitions.forget(answered)
        else:
            self._partitions.add(answered)
        self._completion.is_started = True
        return Advice()

    def _on_offsets_committed(
        self, request: TransactionRequest, response: TxnOffsetCommitResponse
    ) -> Advice:
        waiting = self._offsets.first
        if waiting is None:
            return Advice()  # aborted meanwhile
        advice = Advice()
        for topic in response.topics:
            for answer in topic.partitions:
                partition = TopicPartition(topic.name, answer.partition_index)
                if answer.error_code:
                    advice = self._on_refused(request, answer.error_code, str(partition))
                    if self.failure is not None:
                        return advice
                else:
                    waiting.missing.pop(partition, None)
        if not waiting.missing:
            self._offsets.end_first()
        elif advice == Advice():  # the answer omits some partitions
            return Advice(self._retry_backoff_ms)
        return advice

    def _on_refused(self, request: TransactionRequest, code: int, what: str = "") -> Advice:
        """Repeat the request, or end the transaction or the producer."""
        error = error_for(code)
        reason = str(error)
        if request.kind is RequestKind.COMMIT_OFFSETS and self._offsets.first is not None:
            reason = reason_of(code, self._offsets.first.group.group_instance_id)
        reason = f"{request.kind.value}{f' of {what}' if what else ''}: {reason}"
        if request.group_id is not None:
            reason = f"{reason} (group {request.group_id!r})"
        if code in MOVED:
            return Advice(self._retry_backoff_ms, find_coordinator=True)
        if error.retriable:
            is_concurrent = code == ErrorCode.CONCURRENT_TRANSACTIONS
            soon = is_concurrent and request.kind is not RequestKind.INITIALIZE
            backoff_ms = min(CONCURRENT_BACKOFF_MS, self._retry_backoff_ms)
            return Advice(backoff_ms if soon else self._retry_backoff_ms)
        if code in FENCED:
            self._fail_for_good(error_for(ErrorCode.PRODUCER_FENCED))
        elif code in NEEDS_NEW_EPOCH and request.kind is not RequestKind.INITIALIZE:
            self._completion.needs_new_epoch = True
            self._completion.without_request = code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
            self._fail_transaction(error_for(code, reason))
        elif code in ABORTABLE and request.kind is not RequestKind.INITIALIZE:
            self._fail_transaction(error_for(code, reason))
        else:
            self._fail_for_good(error_for(code, reason))
        return Advice()

    # --- transitions ---------------------------------------------------------------------------

    def _not_started(self, error: Exception) -> None:
        self.phase = Phase.UNINITIALIZED
        self._pending.end(error)

    def _on_ended(self) -> None:
        """Finish the transaction. A new epoch is requested next, if needed."""
        self._completion.is_done = True
        was_explicit = self.transaction_version < IMPLICIT_PARTITIONS
        is_upgrade = was_explicit and self._offered_version >= IMPLICIT_PARTITIONS
        if not self._completion.needs_initialization(
            was_explicit=was_explicit, is_upgrade=is_upgrade
        ):
            self._on_ready()

    def _on_ready(self) -> None:
        self.phase = Phase.READY
        self.failure = None
        self.transaction_version = self._offered_version
        self._completion = TransactionCompletion()
        self._partitions = PartitionsInTransaction()
        self._pending.end(None)

    def _fail_transaction(self, error: Exception) -> None:
        if self.phase is Phase.ABORTING:
            self._end_abort_with(error)
            return
        self.phase = Phase.ABORTABLE_ERROR
        self.failure = cannot_commit(self.transactional_id, error)
        self._completion.is_sent = False
        self._partitions.stop_adding()
        self._offsets.drop(self.failure)
        self._pending.end(self.failure)

    def _end_abort_with(self, error: Exception) -> None:
        """Handle an abort that the coordinator refuses, as it does not know the transaction: if
        possible, end it by a new epoch alone.
        """
        if self._completion.without_request or self._completion.needs_new_epoch:
            self._completion.without_request = True
        else:
            self._fail_for_good(error)

    def _fail_for_good(self, error: Exception) -> None:
        self.failure = cannot_go_on(self.transactional_id, self.identity, self._timeout_ms, error)
        self.phase = Phase.FATAL_ERROR
        self._offsets.drop(self.failure)
        self._pending.end(self.failure)

    def _raise_if_fatal(self) -> None:
        if self.phase is Phase.FATAL_ERROR:
            self._raise_failure()

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise type(self.failure)(str(self.failure)) from self.failure.__cause__
