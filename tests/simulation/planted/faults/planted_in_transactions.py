"""Planted faults of transactions, in coordinators, markers, partitions and reading; see planted_faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bradbury.coordinators.coordinator_context import CoordinatorContext
from bradbury.coordinators.coordinator_loader import CoordinatorLoader
from bradbury.coordinators.rules_effects import Append
from bradbury.groups.group_records import TransactionalOffset
from bradbury.groups.offsets.group_offsets import GroupOffsets
from bradbury.handlers.records import fetch_reading
from bradbury.protocol.error_code import ErrorCode
from bradbury.storage.producers.producer_state import ProducerState, UnstableTransaction
from bradbury.storage.producers.verification_guard import UNVERIFIED
from bradbury.storage.segments.transaction_index import TransactionIndex
from bradbury.transactions import transaction_coordinator
from bradbury.transactions.add_partitions_manager import AddPartitionsManager, RetryLimits
from bradbury.transactions.transaction_coordinator import TransactionCoordinator
from bradbury.transactions.transaction_effects import SendMarkers, TransactionWritten
from bradbury.transactions.transaction_markers import TransactionMarkerManager
from bradbury.transactions.transaction_metadata import TransactionMetadata
from bradbury.transactions.transaction_state import TransactionState

from ..fault_registry import Patch, fault

TRANSACTIONS = {
    "producers": 1,
    "duration_ms": 4_000,
    "transactional_ids": 2,
    "is_reckless": False,
}
MOVING = {
    **TRANSACTIONS,
    "kinds": ("kill", "pause", "elect", "group"),
    "fault_every_ms": 150,
    "transaction_partitions": 2,
}
RESTLESS = {
    **TRANSACTIONS,
    "kinds": ("kill producer", "pause producer", "kill"),
    "fault_every_ms": 150,
    "outage_ms": 500,
    "twins": True,
}


# --- the coordinator's log -----------------------------------------------------------------------


@fault(**MOVING)
def the_end_of_a_transaction_is_answered_before_it_is_replicated(patch: Patch) -> None:
    """After a failover what was told to be committed is aborted."""
    _answered_at_once(patch, lambda state: state.is_prepared)


COLLIDING = {
    **TRANSACTIONS,
    "transactional_ids": 1,
    "twins": True,
    "kinds": ("kill producer",),
    "fault_every_ms": 250,
    "on_decision": 0.2,
    "session_ms": 300,
    "pace_ms": 5,
}
"""Two producers get one epoch in nine of twenty seeds: as one begins while the coordinator is cut off."""


@fault(**COLLIDING)
def a_new_epoch_is_answered_before_it_is_replicated(patch: Patch) -> None:
    """After a failover another producer gets the same epoch."""
    _answered_at_once(patch, lambda state: state is TransactionState.EMPTY)


@fault(**MOVING)
def added_partitions_are_answered_before_they_are_replicated(patch: Patch) -> None:
    """After a failover nobody ends what was begun there."""
    _answered_at_once(patch, lambda state: state is TransactionState.ONGOING)


def _answered_at_once(patch: Patch, chosen: Callable[[TransactionState], bool]) -> None:
    original = CoordinatorContext._append

    def append(context: CoordinatorContext, append: Append, now_ms: int, wall_ms: int) -> None:
        original(context, append, now_ms, wall_ms)
        if isinstance(append.completion, TransactionWritten) and all(
            record.metadata is not None and chosen(record.metadata.state)
            for record in append.records
        ):
            context.on_committed(context._pending[-1], now_ms=now_ms, wall_ms=wall_ms)

    patch(CoordinatorContext, "_append", append)
    refused = CoordinatorContext._on_append_refused

    def _on_append_refused(
        context: CoordinatorContext, pending: Any, *rest: Any, **now: int
    ) -> None:
        if pending in context._pending:  # else it was answered
            refused(context, pending, *rest, **now)

    patch(CoordinatorContext, "_on_append_refused", _on_append_refused)


@fault(**MOVING)
def the_next_coordinator_does_not_write_the_markers(patch: Patch) -> None:
    """What was decided when the former one ended stays open."""
    original = TransactionCoordinator.on_loaded

    def on_loaded(coordinator: TransactionCoordinator, *, now_ms: int) -> list[Any]:
        effects = original(coordinator, now_ms=now_ms)
        return [effect for effect in effects if not isinstance(effect, SendMarkers)]

    patch(TransactionCoordinator, "on_loaded", on_loaded)


# --- the coordinator's rules ---------------------------------------------------------------------


@fault(**RESTLESS)
def a_producer_that_was_replaced_may_go_on(patch: Patch) -> None:
    """Its id is looked at, and not its epoch."""

    def check(coordinator: Any, transaction: Any, producer_id: int, epoch: int) -> ErrorCode:
        if transaction is None or transaction.metadata.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE

    patch(TransactionCoordinator, "_check_producer", check)
    original = transaction_coordinator.decide_end

    def decide(
        metadata: TransactionMetadata, producer_id: int, producer_epoch: int, **rest: Any
    ) -> Any:
        return original(metadata, producer_id, metadata.producer_epoch, **rest)

    patch(transaction_coordinator, "decide_end", decide)


@fault(**RESTLESS)
def a_producer_that_begins_has_the_epoch_of_the_former_one(patch: Patch) -> None:
    """Two write as one."""
    original = TransactionMetadata.with_next_epoch

    def with_next_epoch(metadata: TransactionMetadata, *given: Any, **named: Any) -> Any:
        following = original(metadata, *given, **named)
        if following is None or metadata.producer_epoch < 0:
            return following
        return replace(following, producer_epoch=metadata.producer_epoch)

    patch(TransactionMetadata, "with_next_epoch", with_next_epoch)


@fault(**RESTLESS)
def a_commit_of_what_was_aborted_is_said_to_be_done(patch: Patch) -> None:
    """The transaction had timed out, and the producer is told what it wants to be told."""

    def decide(
        metadata: TransactionMetadata,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        is_busy: bool,
    ) -> ErrorCode | None:
        if is_busy:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if metadata.state is TransactionState.ONGOING and metadata.producer_epoch == producer_epoch:
            return None
        return ErrorCode.NONE

    patch(transaction_coordinator, "decide_end", decide)
    patch(transaction_coordinator, "decide_end_v2", decide)


@fault(**TRANSACTIONS)
def partitions_that_are_added_later_replace_the_former_ones(patch: Patch) -> None:
    """These get no marker."""
    original = TransactionMetadata.with_partitions

    def with_partitions(
        metadata: TransactionMetadata, added: Any, client_version: int, *, now_ms: int
    ) -> Any:
        following = original(metadata, added, client_version, now_ms=now_ms)
        return replace(following, partitions=added)

    patch(TransactionMetadata, "with_partitions", with_partitions)


@fault(**TRANSACTIONS)
def the_end_of_a_transaction_keeps_its_epoch(patch: Patch) -> None:
    """Of transaction.version 2: a marker has the epoch of the records, and is taken for a late one."""
    original = TransactionMetadata.prepared

    def prepared(metadata: TransactionMetadata, *given: Any, **named: Any) -> Any:
        following = original(metadata, *given, **named)
        return replace(following, producer_epoch=metadata.producer_epoch)

    patch(TransactionMetadata, "prepared", prepared)


# --- markers -------------------------------------------------------------------------------------


@fault(**MOVING)
def a_marker_that_was_refused_is_not_written_again(patch: Patch) -> None:
    """The transaction is open in that partition forever."""
    patch(TransactionMarkerManager, "_wait", lambda manager, pending, partitions, now_ms: None)


# --- partitions ----------------------------------------------------------------------------------


class _Agreed:
    """A ticket to which a refusal is a consent."""

    def __init__(self, ticket: Any) -> None:
        self._ticket = ticket
        self.done = ticket.done

    def set_result(self, codes: Any) -> None:
        self._ticket.set_result(dict.fromkeys(codes, ErrorCode.NONE))


@fault(**{**RESTLESS, "late": 0.1, "repeat": 0.1})
def batches_are_not_verified(patch: Patch) -> None:
    """One that comes late begins a transaction that nobody ends."""
    patch(ProducerState, "_check_verified", lambda state, header, guard: None)
    patch(ProducerState, "begin_verification", lambda state, *given, **named: UNVERIFIED)
    # Nothing is asked again.
    patch(RetryLimits, "wait_ms", lambda limits, waited_ms: limits.max_ms + 1)
    original = AddPartitionsManager.verify

    def verify(manager: AddPartitionsManager, ticket: Any, *given: Any, **named: Any) -> None:
        """Whatever the coordinator says is good."""
        original(manager, _Agreed(ticket), *given, **named)

    patch(AddPartitionsManager, "verify", verify)


@fault(**{**RESTLESS, "repeat": 0.2, "loss": 0.1})
def a_batch_that_is_sent_again_is_written_again(patch: Patch) -> None:
    """Its sequence is not looked at."""
    patch(ProducerState, "check", lambda state, header, guard=None: None)


@fault(**TRANSACTIONS)
def a_transaction_begins_with_its_last_batch(patch: Patch) -> None:
    """What came before it counts as stable."""
    original = ProducerState.update

    def update(state: ProducerState, header: Any, last_offset: int, timestamp: int) -> None:
        state.open_transactions.pop(header.producer_id, None)
        original(state, header, last_offset, timestamp)

    patch(ProducerState, "update", update)


# --- reading -------------------------------------------------------------------------------------


@fault(**TRANSACTIONS)
def readers_of_committed_records_are_shown_open_transactions(patch: Patch) -> None:
    """They read up to the high watermark."""
    patch(
        fetch_reading,
        "_consumer_end",
        lambda high_watermark, last_stable_offset, *, committed: high_watermark,
    )


@fault(**TRANSACTIONS)
def readers_are_not_told_what_was_aborted(patch: Patch) -> None:
    """They hand out all that is stable."""
    patch(fetch_reading, "_aborted", lambda log, fetch_offset, records: [])


@fault(**{**TRANSACTIONS, "segment_bytes": 1_500})
def aborted_transactions_are_looked_for_in_one_segment(patch: Patch) -> None:
    """The marker of one may be in the next."""
    original = TransactionIndex.find

    def find(index: TransactionIndex, start: int, end: int) -> Any:
        found, _ = original(index, start, end)
        return found, True

    patch(TransactionIndex, "find", find)


@fault(**TRANSACTIONS)
def an_open_transaction_takes_the_last_stable_offset_back(patch: Patch) -> None:
    """To the log start: readers wait, and lose nothing, but lags grow and shrink."""
    original = ProducerState.stable_end

    def stable_end(state: ProducerState, high_watermark: int) -> int:
        return 0 if state.open_transactions else original(state, high_watermark)

    patch(ProducerState, "stable_end", stable_end)


@fault(**TRANSACTIONS)
def the_newest_marker_stands_for_all(patch: Patch) -> None:
    """A transaction that ended before another one counts as stable, though its marker may go."""
    original = ProducerState._add_unstable

    def add(state: ProducerState, transaction: UnstableTransaction) -> None:
        state.unstable.clear()
        original(state, transaction)

    patch(ProducerState, "_add_unstable", add)


@fault(**RESTLESS)
def a_commit_writes_abort_markers(patch: Patch) -> None:
    """All partitions agree, and nothing of what was acknowledged is shown."""
    original = TransactionCoordinator._send_markers

    def send(rules: Any, transactional_id: str, metadata: TransactionMetadata) -> SendMarkers:
        return original(rules, transactional_id, metadata)._replace(is_commit=False)

    patch(TransactionCoordinator, "_send_markers", send)


@fault(**RESTLESS)
def an_abort_writes_commit_markers(patch: Patch) -> None:
    """What nobody has committed is shown."""
    original = TransactionCoordinator._send_markers

    def send(rules: Any, transactional_id: str, metadata: TransactionMetadata) -> SendMarkers:
        return original(rules, transactional_id, metadata)._replace(is_commit=True)

    patch(TransactionCoordinator, "_send_markers", send)


@fault(**RESTLESS)
def an_abandoned_transaction_stays_open(patch: Patch) -> None:
    """Nobody looks for transactions that are older than their timeout."""
    patch(TransactionCoordinator, "_abort_timed_out", lambda rules, now_ms: [])
    original = TransactionCoordinator.on_init_producer_id

    def on_init(
        rules: Any, request_id: int, transactional_id: str, *rest: Any, **given: Any
    ) -> Any:
        transaction = rules._transactions.get(transactional_id)
        if transaction is not None and transaction.metadata.state is TransactionState.ONGOING:
            metadata = transaction.metadata
            transaction.metadata = replace(metadata, state=TransactionState.COMPLETE_ABORT)
        return original(rules, request_id, transactional_id, *rest, **given)

    patch(TransactionCoordinator, "on_init_producer_id", on_init)


@fault(**RESTLESS)
def another_end_is_taken_while_markers_are_written(patch: Patch) -> None:
    """A transaction that is PREPARE_* counts as one that is open."""
    patch(
        transaction_coordinator.Transaction,
        "is_busy",
        property(lambda transaction: transaction.pending is not None),
    )


@fault(**{**MOVING, "kinds": ("kill", "power", "elect", "kill producer")})
def followers_do_not_note_aborts(patch: Patch) -> None:
    """Whoever leads next does not know what was aborted."""
    original = ProducerState.end_transaction

    def end(state: Any, header: Any, *rest: Any) -> Any:
        aborted = original(state, header, *rest)
        return aborted if header.leader_epoch == 0 else None

    patch(ProducerState, "end_transaction", end)


# --- the offsets of groups -----------------------------------------------------------------------

WITH_OFFSETS = {**TRANSACTIONS, "offsets_in_transactions": True}


@fault(**WITH_OFFSETS)
def offsets_of_an_aborted_transaction_count(patch: Patch) -> None:
    """Its output is not there, and is never made again."""
    original = GroupOffsets.end_transaction

    def end_transaction(offsets: GroupOffsets, producer_id: int, *, is_commit: bool) -> bool:
        return original(offsets, producer_id, is_commit=True)

    patch(GroupOffsets, "end_transaction", end_transaction)


@fault(**WITH_OFFSETS)
def offsets_of_a_committed_transaction_do_not_count(patch: Patch) -> None:
    """Its output is made again."""
    original = GroupOffsets.end_transaction

    def end_transaction(offsets: GroupOffsets, producer_id: int, *, is_commit: bool) -> bool:
        return original(offsets, producer_id, is_commit=False)

    patch(GroupOffsets, "end_transaction", end_transaction)


@fault(**WITH_OFFSETS)
def offsets_count_before_their_transaction_ends(patch: Patch) -> None:
    """As if they had been committed without one."""
    original = GroupOffsets.apply_pending

    def apply_pending(
        offsets: GroupOffsets, producer_id: int, topic: str, partition: int, value: Any
    ) -> None:
        original(offsets, producer_id, topic, partition, value)
        offsets._put(topic, partition, value, next(offsets._numbers))

    patch(GroupOffsets, "apply_pending", apply_pending)


@fault(**{**MOVING, "offsets_in_transactions": True})
def pending_offsets_are_forgotten_by_the_next_coordinator(patch: Patch) -> None:
    """It finds the marker, and nothing that it is about."""
    original = CoordinatorLoader.on_read

    def on_read(loader: Any, read: Any, entries: list[Any], next_offset: int) -> None:
        kept = [entry for entry in entries if not isinstance(entry, TransactionalOffset)]
        original(loader, read, kept, next_offset)

    patch(CoordinatorLoader, "on_read", on_read)
