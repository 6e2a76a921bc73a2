"""Transaction coordinator of the ids of one partition of `__transaction_state`.

    InitProducerId, AddPartitionsToTxn, EndTxn --on_...--> Append, or Respond
    once committed --on_committed--> the record is applied, Respond; SendMarkers after PREPARE_*
    SendMarkers, when all are written --on_markers_written--> Append(COMPLETE_*)

One transition of an id at a time: while its record or its markers are being written, others are
refused with CONCURRENT_TRANSACTIONS, and clients retry. Only a client's AddPartitionsToTxn waits
for its turn, for up to MOST_WAIT_MS: it is a producer's next request after an end, and the client
would retry after 20 ms, many times what markers take. A partition leader's AddPartitionsToTxn does
not wait: other producers are in the same request. EndTxn is answered as soon as the decision is
committed: the next coordinator finds it in the log and writes the markers.

An open transaction is aborted when it is older than its timeout, and when another producer is
initialized with its id; in both cases the next epoch fences its producer.

Invariants:
    until its record is committed, a request is answered only with an error, or not at all;
    a transaction whose commit was answered is never aborted, and the other way round;
    of the producers initialized with one id only the latest changes anything.

Not here: which ids belong to this partition (handlers), how markers reach the partitions
(transaction_markers), the transitions (transaction_metadata).
Source: apache/kafka core/.../transaction/TransactionCoordinator.scala,
TransactionStateManager.scala (4.1); KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from ..coordinators.rules_effects import Append, CancelTimer, Respond, StartTimer
from ..protocol.error_code import ErrorCode
from .end_decision import decide_end, decide_end_v2
from .transaction_config import TransactionConfig
from .transaction_effects import (
    Effect,
    InitializedProducer,
    SendMarkers,
    TransactionTimer,
    TransactionTimerKind,
    TransactionWritten,
)
from .transaction_metadata import (
    FIRST_WITH_EPOCH_BUMP,
    NO_EPOCH,
    NO_PRODUCER_ID,
    Partitions,
    TransactionMetadata,
    is_exhausted,
)
from .transaction_records import TransactionRecord
from .transaction_state import TransactionState
from .waiting_requests import AddPartitions, WaitingRequests

TakeProducerId = Callable[[], int | None]
"""Takes an unused producer id; None: none is available at the moment."""

ABORT_TIMER = TransactionTimer(TransactionTimerKind.ABORT_TIMED_OUT)
EXPIRE_TIMER = TransactionTimer(TransactionTimerKind.EXPIRE)
COMPLETE_RETRY_MS = 1_000
MOST_WAIT_MS = 100
"""Longest wait of a request; as long as a partition leader retries
(add.partitions.to.txn.retry.backoff.max.ms).
"""
MOST_TOMBSTONES = 1_000
"""Maximum number of tombstones in one batch."""

_WRITE_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""Error codes for clients when a record cannot be written, where they differ from the error itself.
"""


@dataclass(slots=True)
class Transaction:
    """A transactional id. `pending`: the transition that is being written; no other may begin."""

    metadata: TransactionMetadata
    pending: TransactionMetadata | None = None

    @property
    def is_busy(self) -> bool:
        """Whether no other transition may begin: one is being written, or its markers are."""
        return self.pending is not None or self.metadata.state.is_prepared


class TransactionCoordinator:
    """Rules of the coordinator. First `apply` for each record of the log, `on_loaded`, then
    requests and timers.
    """

    def __init__(
        self, config: TransactionConfig, take_producer_id: TakeProducerId, version: int
    ) -> None:
        """`version`: the cluster's transaction.version."""
        self._config = config
        self._take_producer_id = take_producer_id
        self._version = version
        self._transactions: dict[str, Transaction] = {}
        self._waiting = WaitingRequests()
        self._to_complete: set[str] = set()
        """Transactional ids whose COMPLETE_* record was refused; it is appended again by a timer.
        """

    def __len__(self) -> int:
        return len(self._transactions)

    def __iter__(self) -> Iterator[tuple[str, TransactionMetadata]]:
        """Transactional ids with their metadata, without those that have no epoch."""
        for transactional_id, transaction in self._transactions.items():
            if transaction.metadata.producer_epoch != NO_EPOCH:
                yield transactional_id, transaction.metadata

    @property
    def append_retry_count(self) -> int:
        """Number of ended transactions whose last record could not be appended and is retried."""
        return len(self._to_complete)

    def metadata_of(self, transactional_id: str) -> TransactionMetadata | None:
        transaction = self._transactions.get(transactional_id)
        return None if transaction is None else transaction.metadata

    # --- InitProducerId --------------------------------------------------------------------------

    def on_init_producer_id(
        self,
        request_id: int,
        transactional_id: str,
        timeout_ms: int,
        *,
        expected: tuple[int, int] | None,
        now_ms: int,
    ) -> list[Effect]:
        """Initialize a producer with this id. `expected`: id and epoch of a producer that
        recovers (KIP-360).

        An open transaction is aborted, and the client gets CONCURRENT_TRANSACTIONS: it retries.
        """
        if not self._config.may_time_out_after(timeout_ms):
            return [Respond(request_id, InitializedProducer(ErrorCode.INVALID_TRANSACTION_TIMEOUT))]
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            producer_id = self._take_producer_id()
            if producer_id is None:
                return [
                    Respond(request_id, InitializedProducer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
                ]
            created = TransactionMetadata(producer_id, timeout_ms, now_ms)
            transaction = self._transactions[transactional_id] = Transaction(created)
        metadata = transaction.metadata
        if transaction.is_busy:
            return [Respond(request_id, InitializedProducer(ErrorCode.CONCURRENT_TRANSACTIONS))]
        if expected is not None and not _may_recover(metadata, *expected):
            return [Respond(request_id, InitializedProducer(ErrorCode.PRODUCER_FENCED))]
        if metadata.state is TransactionState.ONGOING:
            written = TransactionWritten(
                transactional_id, request_id, InitializedProducer(ErrorCode.CONCURRENT_TRANSACTIONS)
            )
            aborting = self._fence_and_abort(transaction, written, now_ms)
            if aborting is None:
                return [
                    Respond(request_id, InitializedProducer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
                ]
            return aborting
        following = self._begin(metadata, timeout_ms, expected, now_ms)
        if isinstance(following, ErrorCode):
            return [Respond(request_id, InitializedProducer(following))]
        answer = InitializedProducer(
            ErrorCode.NONE, following.producer_id, following.producer_epoch
        )
        return self._write(
            transaction, following, TransactionWritten(transactional_id, request_id, answer)
        )

    def _begin(
        self,
        metadata: TransactionMetadata,
        timeout_ms: int,
        expected: tuple[int, int] | None,
        now_ms: int,
    ) -> TransactionMetadata | ErrorCode:
        expected_epoch = None if expected is None else expected[1]
        is_current = expected_epoch is None or expected_epoch == metadata.producer_epoch
        if metadata.is_epoch_exhausted and is_current:
            producer_id = self._take_producer_id()
            if producer_id is None:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return metadata.with_producer_id(
                producer_id, timeout_ms, keeps_last_epoch=expected is not None, now_ms=now_ms
            )
        following = metadata.with_next_epoch(timeout_ms, expected_epoch, now_ms=now_ms)
        return ErrorCode.PRODUCER_FENCED if following is None else following

    # --- AddPartitionsToTxn ----------------------------------------------------------------------

    def on_add_partitions(
        self,
        request_id: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Partitions,
        *,
        client_version: int,
        now_ms: int,
    ) -> list[Effect]:
        request = AddPartitions(request_id, producer_id, producer_epoch, partitions, client_version)
        transaction = self._transactions.get(transactional_id)
        if transaction is not None and transaction.is_busy:
            # Checked first: the producer may already use the id that is current from COMPLETE_* on.
            if client_version >= FIRST_WITH_EPOCH_BUMP:
                return [Respond(request_id, ErrorCode.CONCURRENT_TRANSACTIONS)]
            if self._waiting.add(transactional_id, request):
                return [StartTimer(_turn_timer(transactional_id), MOST_WAIT_MS)]
            return []
        return self._add_partitions(transactional_id, request, now_ms)

    def _add_partitions(
        self, transactional_id: str, request: AddPartitions, now_ms: int
    ) -> list[Effect]:
        request_id = request.request_id
        transaction = self._transactions.get(transactional_id)
        error = self._check_producer(transaction, request.producer_id, request.producer_epoch)
        if error or transaction is None:
            return [Respond(request_id, error)]
        metadata = transaction.metadata
        if metadata.state is TransactionState.ONGOING and request.partitions <= metadata.partitions:
            return [Respond(request_id, ErrorCode.NONE)]
        following = metadata.with_partitions(
            request.partitions, request.client_version, now_ms=now_ms
        )
        return self._write(
            transaction, following, TransactionWritten(transactional_id, request_id, ErrorCode.NONE)
        )

    def _handle_waiting(self, transactional_id: str, now_ms: int) -> list[Effect]:
        """Handle the waiting requests in order, until the id is busy again."""
        effects: list[Effect] = []
        while self._waiting.has(transactional_id):
            transaction = self._transactions.get(transactional_id)
            if transaction is not None and transaction.is_busy:
                return effects
            request = self._waiting.take(transactional_id)
            effects += self._add_partitions(transactional_id, request, now_ms)
            if not self._waiting.has(transactional_id):
                effects.append(CancelTimer(_turn_timer(transactional_id)))
        return effects

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[tuple[str, int]],
    ) -> dict[tuple[str, int], ErrorCode]:
        """Verify whether each partition is in the producer's open transaction (KIP-890)."""
        transaction = self._transactions.get(transactional_id)
        error = self._check_producer(transaction, producer_id, producer_epoch)
        if not error and transaction is not None:
            metadata = transaction.metadata
            if not metadata.state.is_prepared:
                return {
                    partition: ErrorCode.NONE
                    if partition in metadata.partitions
                    else ErrorCode.TRANSACTION_ABORTABLE
                    for partition in partitions
                }
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        return dict.fromkeys(partitions, error)

    def _check_producer(
        self, transaction: Transaction | None, producer_id: int, producer_epoch: int
    ) -> ErrorCode:
        if transaction is None or transaction.metadata.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if transaction.metadata.producer_epoch != producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.NONE

    # --- EndTxn ----------------------------------------------------------------------------------

    def on_end(
        self,
        request_id: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        client_version: int,
        now_ms: int,
    ) -> list[Effect]:
        """Commit or abort for a client.

        With client version 2 the answer has the epoch for the next transaction. A repeated request,
        which has the previous epoch, gets the same answer.
        """
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            return [Respond(request_id, InitializedProducer(ErrorCode.INVALID_PRODUCER_ID_MAPPING))]
        decide = decide_end_v2 if client_version >= FIRST_WITH_EPOCH_BUMP else decide_end
        metadata = transaction.metadata
        decision = decide(
            metadata,
            producer_id,
            producer_epoch,
            is_commit=is_commit,
            is_busy=transaction.is_busy,
        )
        if decision is ErrorCode.NONE and client_version >= FIRST_WITH_EPOCH_BUMP:
            current = InitializedProducer(
                ErrorCode.NONE, metadata.producer_id, metadata.producer_epoch
            )
            return [Respond(request_id, current)]
        if decision is not None:
            return [Respond(request_id, InitializedProducer(decision))]
        next_producer_id = NO_PRODUCER_ID
        if client_version >= FIRST_WITH_EPOCH_BUMP and metadata.is_epoch_exhausted:
            taken = self._take_producer_id()
            if taken is None:
                return [
                    Respond(request_id, InitializedProducer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
                ]
            next_producer_id = taken
        following = metadata.prepared(
            _prepared(is_commit=is_commit),
            client_version,
            next_producer_id=next_producer_id,
            now_ms=now_ms,
        )
        return self._write(
            transaction,
            following,
            TransactionWritten(transactional_id, request_id, _ended(following)),
        )

    def _fence_and_abort(
        self, transaction: Transaction, written: TransactionWritten, now_ms: int
    ) -> list[Effect] | None:
        """Fence the producer and abort its transaction. None: no producer id is available at
        the moment.

        From version 2 on the end itself raises the epoch, which fences; raising it twice would go
        beyond the last epoch (KAFKA-19367). At the last epoch the end rotates the producer id, as
        any end does, or the fenced producer could begin a transaction that no epoch is left to end
        (KAFKA-20090).
        """
        metadata = transaction.metadata
        next_producer_id = NO_PRODUCER_ID
        if self._version < FIRST_WITH_EPOCH_BUMP:
            metadata = metadata.fenced()
        elif metadata.is_epoch_exhausted:
            taken = self._take_producer_id()
            if taken is None:
                return None
            next_producer_id = taken
        following = metadata.prepared(
            TransactionState.PREPARE_ABORT,
            self._version,
            next_producer_id=next_producer_id,
            now_ms=now_ms,
        )
        return self._write(transaction, following, written)

    # --- the end of a transaction ----------------------------------------------------------------

    def on_markers_written(self, markers: SendMarkers, *, now_ms: int) -> list[Effect]:
        """Called when all partitions have the markers; ignored unless of the latest transaction."""
        transaction = self._transactions.get(markers.transactional_id)
        if transaction is None or transaction.pending is not None:
            return []
        metadata = transaction.metadata
        if (
            not metadata.state.is_prepared
            or self._send_markers(markers.transactional_id, metadata) != markers
        ):
            return []
        return self._complete(markers.transactional_id, transaction, now_ms)

    def _complete(
        self, transactional_id: str, transaction: Transaction, now_ms: int
    ) -> list[Effect]:
        following = transaction.metadata.completed(now_ms=now_ms)
        return self._write(
            transaction, following, TransactionWritten(transactional_id, None, ErrorCode.NONE)
        )

    def _send_markers(self, transactional_id: str, metadata: TransactionMetadata) -> SendMarkers:
        return SendMarkers(
            transactional_id,
            metadata.producer_id,
            metadata.producer_epoch,
            metadata.state is TransactionState.PREPARE_COMMIT,
            metadata.partitions,
            metadata.client_version,
        )

    # --- time ------------------------------------------------------------------------------------

    def on_timer(self, key: TransactionTimer, *, now_ms: int) -> list[Effect]:
        match key.kind:
            case TransactionTimerKind.ABORT_TIMED_OUT:
                return self._abort_timed_out(now_ms)
            case TransactionTimerKind.EXPIRE:
                return self._expire(now_ms)
            case TransactionTimerKind.TRANSITION:
                return [
                    Respond(request.request_id, ErrorCode.CONCURRENT_TRANSACTIONS)
                    for request in self._waiting.take_all(key.transactional_id)
                ]
            case TransactionTimerKind.COMPLETE:
                self._to_complete.discard(key.transactional_id)
                transaction = self._transactions.get(key.transactional_id)
                if (
                    transaction is None
                    or transaction.pending is not None
                    or not transaction.metadata.state.is_prepared
                ):
                    return []
                return self._complete(key.transactional_id, transaction, now_ms)

    def _abort_timed_out(self, now_ms: int) -> list[Effect]:
        interval = self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        effects: list[Effect] = [StartTimer(ABORT_TIMER, interval)]
        for transactional_id, transaction in self._transactions.items():
            metadata = transaction.metadata
            if (
                transaction.pending is None
                and metadata.state is TransactionState.ONGOING
                and metadata.start_ms + metadata.timeout_ms < now_ms
            ):
                written = TransactionWritten(transactional_id, None, ErrorCode.NONE)
                effects += self._fence_and_abort(transaction, written, now_ms) or []
        return effects

    def _expire(self, now_ms: int) -> list[Effect]:
        interval = self._config.transaction_remove_expired_transaction_cleanup_interval_ms
        oldest_ms = now_ms - self._config.transactional_id_expiration_ms
        expired = []
        for transactional_id, transaction in self._transactions.items():
            metadata = transaction.metadata
            if (
                transaction.pending is None
                and metadata.state.may_expire
                and metadata.last_update_ms <= oldest_ms
            ):
                transaction.pending = metadata.dead()
                expired.append(TransactionRecord(transactional_id, None))
        return [
            StartTimer(EXPIRE_TIMER, interval),
            *(
                Append(tuple(expired[start : start + MOST_TOMBSTONES]))
                for start in range(0, len(expired), MOST_TOMBSTONES)
            ),
        ]

    # --- the log ---------------------------------------------------------------------------------

    def apply(self, record: TransactionRecord) -> None:
        """Apply the next record of the log, while loading."""
        if record.metadata is None:
            self._transactions.pop(record.transactional_id, None)
        else:
            self._transactions[record.transactional_id] = Transaction(record.metadata)

    def on_loaded(self, *, now_ms: int) -> list[Effect]:
        """Called when the log is applied to its end: sends the markers of decided transactions."""
        abort_ms = self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        expire_ms = self._config.transaction_remove_expired_transaction_cleanup_interval_ms
        effects: list[Effect] = [
            StartTimer(ABORT_TIMER, abort_ms),
            StartTimer(EXPIRE_TIMER, expire_ms),
        ]
        for transactional_id, transaction in self._transactions.items():
            if transaction.metadata.state.is_prepared:
                effects.append(self._send_markers(transactional_id, transaction.metadata))
        return effects

    def _write(
        self, transaction: Transaction, following: TransactionMetadata, written: TransactionWritten
    ) -> list[Effect]:
        assert transaction.pending is None
        transaction.pending = following
        return [Append((TransactionRecord(written.transactional_id, following),), written)]

    def on_committed(self, append: Append, *, now_ms: int) -> list[Effect]:
        """Called when the records are committed, in log order."""
        effects: list[Effect] = []
        for transactional_id, metadata in append.records:
            if metadata is None:
                del self._transactions[transactional_id]
            else:
                transaction = self._transactions[transactional_id]
                transaction.metadata, transaction.pending = metadata, None
                if metadata.state.is_prepared:
                    effects.append(self._send_markers(transactional_id, metadata))
            effects += self._handle_waiting(transactional_id, now_ms)
        written = append.completion
        if written is not None and written.request_id is not None:
            effects.insert(0, Respond(written.request_id, written.answer))
        return effects

    def on_failed(self, append: Append, error: ErrorCode, *, now_ms: int) -> list[Effect]:
        """Called when the append failed with `error`: nothing was appended, no transition made."""
        effects = self._refuse(append, error)
        for transactional_id, metadata in append.records:
            transaction = self._transactions[transactional_id]
            transaction.pending = None
            if transaction.metadata.producer_epoch == NO_EPOCH:
                del self._transactions[transactional_id]  # the id was never written
            elif metadata is not None and transaction.metadata.state.is_prepared:
                self._to_complete.add(transactional_id)
                key = TransactionTimer(TransactionTimerKind.COMPLETE, transactional_id)
                effects.append(StartTimer(key, COMPLETE_RETRY_MS))
            effects += self._handle_waiting(transactional_id, now_ms)
        return effects

    def on_late(self, append: Append, *, now_ms: int) -> tuple[list[Effect], Append]:
        """Called when the append is not committed in time: the waiting request is answered with a
        retriable error.

        Returns the Append to continue with, which no request waits for. If the record is committed
        later, it is applied, as after an answer that was lost on its way.
        """
        effects = self._refuse(append, ErrorCode.REQUEST_TIMED_OUT)
        written: TransactionWritten | None = append.completion
        if written is not None:
            append = replace(append, completion=written._replace(request_id=None))
        return effects, append

    def close(self) -> None:
        """Called when the coordinator has ended: another one now owns its ids."""
        self._transactions.clear()
        self._to_complete.clear()
        self._waiting.clear()

    def _refuse(self, append: Append, error: ErrorCode) -> list[Effect]:
        written = append.completion
        if written is None or written.request_id is None:
            return []
        told = _WRITE_ERRORS.get(error, error)
        answer = (
            InitializedProducer(told) if isinstance(written.answer, InitializedProducer) else told
        )
        return [Respond(written.request_id, answer)]


def _turn_timer(transactional_id: str) -> TransactionTimer:
    return TransactionTimer(TransactionTimerKind.TRANSITION, transactional_id)


def _may_recover(metadata: TransactionMetadata, producer_id: int, producer_epoch: int) -> bool:
    """Whether a producer that had this id and epoch may continue: no other was initialized
    since.

    The epoch is checked when it is raised. The previous id is accepted at its last epoch: the
    answer with the new id may have been lost.
    """
    return (
        metadata.producer_epoch == NO_EPOCH
        or producer_id == metadata.producer_id
        or (producer_id == metadata.previous_producer_id and is_exhausted(producer_epoch))
    )


def _prepared(*, is_commit: bool) -> TransactionState:
    return TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT


def _ended(prepared: TransactionMetadata) -> InitializedProducer:
    """Result for the client: from version 2 on, its next epoch or producer id."""
    if not prepared.bumps_epoch:
        return InitializedProducer(ErrorCode.NONE)
    if prepared.next_producer_id != NO_PRODUCER_ID:
        return InitializedProducer(ErrorCode.NONE, prepared.next_producer_id, 0)
    return InitializedProducer(ErrorCode.NONE, prepared.producer_id, prepared.producer_epoch)
