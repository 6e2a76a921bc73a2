"""Planted faults of transactions: coordinators, markers, partitions; see planted_faults."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bradbury.coordinators.coordinator_context import CoordinatorContext
from bradbury.coordinators.rules_effects import Append
from bradbury.protocol.error_code import ErrorCode
from bradbury.steps.replies import Reply
from bradbury.storage.log import aborted_transactions
from bradbury.storage.producers import producer_state
from bradbury.storage.producers.producer_state import ProducerState
from bradbury.storage.producers.verification_guard import UNVERIFIED
from bradbury.storage.segments.transaction_index import TransactionIndex
from bradbury.transactions import transaction_coordinator
from bradbury.transactions.add_partitions_manager import AddPartitionsManager
from bradbury.transactions.transaction_coordinator import TransactionCoordinator
from bradbury.transactions.transaction_effects import SendMarkers, TransactionWritten
from bradbury.transactions.transaction_markers import MarkersWritten, TransactionMarkerManager
from bradbury.transactions.transaction_metadata import TransactionMetadata
from bradbury.transactions.transaction_state import TransactionState

from .fault_registry import Patch, fault

PRODUCERS = {
    "transactional_ids": 2,
    "transaction_partitions": 2,
    "pace_ms": 15,
    "duration_ms": 4_000,
    "partitions": 1,
    "producers": 1,
    "careless_producers": 0,
    "readers": 0,
}
DYING = {**PRODUCERS, "kinds": ("kill producer", "pause producer", "kill"), "fault_every_ms": 120}
MOVING = {
    **PRODUCERS,
    "kinds": ("kill", "pause", "elect", "group", "kill producer"),
    "fault_every_ms": 150,
}
TWINS = {**DYING, "twins": True, "transactional_ids": 1}
LATE = {**TWINS, "late": 0.05, "ordered": False, "repeat": 0.1}


# --- coordinators --------------------------------------------------------------------------------


@fault(**MOVING)
def an_end_is_answered_before_it_is_replicated(patch: Patch) -> None:
    """EndTxn is answered when the decision is in the coordinator's own log."""
    original = CoordinatorContext._append

    def append(context: CoordinatorContext[Any], append: Append, now_ms: int, wall_ms: int) -> None:
        original(context, append, now_ms, wall_ms)
        if isinstance(append.completion, TransactionWritten):
            context.on_committed(context._pending[-1], now_ms=now_ms, wall_ms=wall_ms)

    patch(CoordinatorContext, "_append", append)


@fault(**DYING)
def a_commit_writes_abort_markers(patch: Patch) -> None:
    """All partitions agree, and nothing of what was acknowledged is shown."""
    original = TransactionCoordinator._send_markers

    def send(rules: Any, transactional_id: str, metadata: TransactionMetadata) -> SendMarkers:
        return original(rules, transactional_id, metadata)._replace(is_commit=False)

    patch(TransactionCoordinator, "_send_markers", send)


@fault(**DYING)
def an_abort_writes_commit_markers(patch: Patch) -> None:
    """What nobody has committed is shown."""
    original = TransactionCoordinator._send_markers

    def send(rules: Any, transactional_id: str, metadata: TransactionMetadata) -> SendMarkers:
        return original(rules, transactional_id, metadata)._replace(is_commit=True)

    patch(TransactionCoordinator, "_send_markers", send)


@fault(**PRODUCERS)
def only_the_newest_partitions_are_in_a_transaction(patch: Patch) -> None:
    """Partitions that are added replace the ones before."""
    original = TransactionMetadata.with_partitions

    def with_partitions(metadata: TransactionMetadata, added: Any, *rest: Any, **given: Any) -> Any:
        return replace(original(metadata, added, *rest, **given), partitions=added)

    patch(TransactionMetadata, "with_partitions", with_partitions)


@fault(**MOVING)
def a_decision_is_forgotten_with_its_coordinator(patch: Patch) -> None:
    """The next coordinator finds PREPARE_* in its log, and sends no markers."""
    original = TransactionCoordinator.on_loaded

    def on_loaded(rules: Any, *, now_ms: int) -> list[Any]:
        effects = original(rules, now_ms=now_ms)
        return [each for each in effects if not isinstance(each, SendMarkers)]

    patch(TransactionCoordinator, "on_loaded", on_loaded)


@fault(**DYING)
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


@fault(**TWINS)
def a_fenced_producer_may_end_a_transaction(patch: Patch) -> None:
    """EndTxn does not look at the epoch."""

    def decide(transaction: Any, producer_id: int, epoch: int, *, is_commit: bool) -> Any:
        return original(
            transaction, producer_id, transaction.metadata.producer_epoch, is_commit=is_commit
        )

    original = transaction_coordinator._decide_end_v2
    former = transaction_coordinator._decide_end
    patch(transaction_coordinator, "_decide_end_v2", decide)
    patch(
        transaction_coordinator,
        "_decide_end",
        lambda transaction, producer_id, epoch, *, is_commit: former(
            transaction, producer_id, transaction.metadata.producer_epoch, is_commit=is_commit
        ),
    )


@fault(**TWINS)
def a_fenced_producer_may_add_partitions(patch: Patch) -> None:
    """AddPartitionsToTxn and the leaders' questions do not look at the epoch."""
    patch(
        TransactionCoordinator,
        "_check_producer",
        lambda rules, transaction, producer_id, epoch: (
            ErrorCode.NONE if transaction else ErrorCode.INVALID_PRODUCER_ID_MAPPING
        ),
    )


@fault(**DYING)
def another_end_is_taken_while_markers_are_written(patch: Patch) -> None:
    """A transaction that is PREPARE_* counts as one that is open."""
    patch(
        transaction_coordinator.Transaction,
        "is_busy",
        property(lambda transaction: transaction.pending is not None),
    )


# --- markers -------------------------------------------------------------------------------------


@fault(**DYING)
def a_transaction_completes_without_its_markers(patch: Patch) -> None:
    """They count as written when they are sent."""
    original = TransactionMarkerManager.send

    def send(manager: Any, partition: int, epoch: int, markers: SendMarkers) -> None:
        original(manager, partition, epoch, markers)
        pending = manager._pending.get((partition, markers.transactional_id))
        if pending is not None:
            manager._drop(pending)
            manager._effects.append(MarkersWritten(pending.key, markers))

    patch(TransactionMarkerManager, "send", send)


@fault(**MOVING)
def a_marker_without_an_answer_counts_as_written(patch: Patch) -> None:
    """A node that does not answer has perhaps taken it."""

    def on_failed(manager: Any, node_id: int, error: Exception, now_ms: int) -> None:
        for pending, partitions in manager._in_flight.pop(node_id).items():
            if manager._is_current(pending):
                pending.left -= partitions
                manager._end_if_done(pending)

    patch(TransactionMarkerManager, "on_failed", on_failed)


@fault(**MOVING)
def a_refused_marker_is_not_sent_again(patch: Patch) -> None:
    """NOT_LEADER_OR_FOLLOWER ends it, as if the partition had no part in the transaction."""

    def wait(manager: Any, pending: Any, partitions: Any, now_ms: int) -> None:
        pending.left -= partitions

    patch(TransactionMarkerManager, "_wait", wait)


# --- leaders -------------------------------------------------------------------------------------


@fault(**{**PRODUCERS, "kinds": (), "late": 0.3, "ordered": False, "loss": 0.05})
def a_leader_asks_no_coordinator(patch: Patch) -> None:
    """What comes late, after its transaction's marker, begins one that nobody ends (KIP-890)."""
    patch(ProducerState, "begin_verification", lambda state, *values, **given: UNVERIFIED)
    original = AddPartitionsManager.verify

    def verify(manager: Any, ticket: Any, *rest: Any, adds: bool, now_ms: int) -> None:
        if adds:
            original(manager, ticket, *rest, adds=adds, now_ms=now_ms)
        else:
            manager._effects.append(Reply(ticket, dict.fromkeys(rest[3], ErrorCode.NONE)))

    patch(AddPartitionsManager, "verify", verify)


@fault(**PRODUCERS)
def open_transactions_are_shown(patch: Patch) -> None:
    """Readers of committed records read up to the high watermark."""
    patch(ProducerState, "stable_end", lambda state, high_watermark: high_watermark)


@fault(**{**MOVING, "kinds": ("kill", "pause", "group", "cut", "kill producer")})
def a_transaction_is_stable_before_its_marker_is_committed(patch: Patch) -> None:
    """It is shown as soon as the leader has the marker."""
    patch(ProducerState, "_add_unstable", lambda state, transaction: None)


@fault(**DYING)
def aborted_transactions_are_not_indexed(patch: Patch) -> None:
    """Readers cannot know which records to drop."""
    patch(TransactionIndex, "add", lambda index, transaction: None)


@fault(**{**DYING, "segment_bytes": 1_500})
def only_one_segment_is_looked_at_for_aborted_transactions(patch: Patch) -> None:
    """One that began in a segment and was aborted in the next is shown."""

    def find(log: Any, fetch_offset: int, end_offset: int) -> Any:
        for segment in log.segments.from_offset(fetch_offset):
            return segment.transaction_index.find(fetch_offset, end_offset)[0]
        return []

    patch(aborted_transactions, "find_aborted", find)
    from bradbury.handlers.records import fetch_reading

    if hasattr(fetch_reading, "find_aborted"):
        patch(fetch_reading, "find_aborted", find)


@fault(**{**MOVING, "kinds": ("kill", "power", "elect", "kill producer")})
def followers_do_not_note_aborts(patch: Patch) -> None:
    """Whoever leads next does not know what was aborted."""
    original = ProducerState.end_transaction

    def end(state: Any, header: Any, marker: Any, offset: int) -> Any:
        aborted = original(state, header, marker, offset)
        return aborted if header.leader_epoch == 0 else None

    patch(ProducerState, "end_transaction", end)


@fault(**LATE)
def old_epochs_may_write(patch: Patch) -> None:
    """A leader does not fence: what a zombie sends is in the transaction of its successor."""
    patch(producer_state, "_check_epoch", lambda header, entry: None)
    patch(
        ProducerState,
        "has_open_transaction",
        lambda state, producer_id, epoch: producer_id in state.open_transactions,
    )
