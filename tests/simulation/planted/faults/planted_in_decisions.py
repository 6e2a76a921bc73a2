"""Planted faults of transactions that show only at chosen moments; see planted_faults."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bradbury.protocol.error_code import ErrorCode
from bradbury.storage.producers.producer_state import ProducerState
from bradbury.storage.producers.verification_guard import VerificationGuard
from bradbury.transactions import transaction_markers
from bradbury.transactions.transaction_coordinator import TransactionCoordinator
from bradbury.transactions.transaction_markers import TransactionMarkerManager
from bradbury.transactions.transaction_state import TransactionState

from ..fault_registry import Patch, fault
from .planted_in_transactions import TRANSACTIONS

DECIDING = {
    **TRANSACTIONS,
    "kinds": ("elect",),
    "fault_every_ms": 600,
    "on_decision": 0.25,
    "outage_ms": 100,
    "session_ms": 300,
    "pace_ms": 5,
    "delay_ms": 4,
}
"""Few faults but those that come when something is decided, so that much is committed."""


@fault(**{**DECIDING, "stray_markers": 0.5})
def the_next_coordinator_aborts_what_was_decided(patch: Patch) -> None:
    """It goes by the partitions of the record, and not by the state."""
    original = TransactionCoordinator.on_loaded

    def on_loaded(coordinator: TransactionCoordinator, *, now_ms: int) -> list[Any]:
        for transaction in coordinator._transactions.values():
            if transaction.metadata.state is TransactionState.PREPARE_COMMIT:
                aborted = replace(transaction.metadata, state=TransactionState.PREPARE_ABORT)
                transaction.metadata = aborted
        return original(coordinator, now_ms=now_ms)

    patch(TransactionCoordinator, "on_loaded", on_loaded)


STRAYING = {
    **TRANSACTIONS,
    "kinds": ("elect",),
    "fault_every_ms": 600,
    "stray_markers": 0.3,
    "pace_ms": 5,
}


@fault(**STRAYING)
def markers_count_as_written_when_one_partition_has_its(patch: Patch) -> None:
    """The others may have none, and nobody writes them any more."""
    original = TransactionMarkerManager._end_if_done

    def end_if_done(manager: TransactionMarkerManager, pending: Any) -> None:
        if len(pending.left) < len(pending.markers.partitions):
            pending.left.clear()
            manager._waiting.pop(pending, None)
        original(manager, pending)

    patch(TransactionMarkerManager, "_end_if_done", end_if_done)


@fault(**DECIDING)
def who_does_not_lead_is_taken_to_have_the_marker(patch: Patch) -> None:
    """As who holds no transactions."""
    done = transaction_markers._DONE_ERRORS | {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    patch(transaction_markers, "_DONE_ERRORS", done)


@fault(**{**DECIDING, "replication_factor": 1, "min_insync": 1})
def a_partition_without_a_leader_is_taken_for_deleted(patch: Patch) -> None:
    """It needs no marker, then."""
    original = TransactionMarkerManager._enqueue

    def direct(manager: TransactionMarkerManager, pending: Any, partitions: Any) -> None:
        led = [each for each in partitions if manager._leaders.leader_of(each) is not None]
        pending.left -= set(partitions) - set(led)
        original(manager, pending, led)

    patch(TransactionMarkerManager, "_enqueue", direct)


@fault(**{**STRAYING, "delay_ms": 2})
def a_marker_of_any_epoch_is_taken(patch: Patch) -> None:
    """One that comes late ends the transaction after its own."""
    patch(ProducerState, "check_marker", lambda state, *given, **named: None)


@fault(**{**STRAYING, "stray_markers": 0.0, "slow_verification": 0.4})
def an_answer_about_the_transaction_before_counts(patch: Patch) -> None:
    """A marker does not end the question that a batch before it has raised."""
    patch(VerificationGuard, "is_of_later_than", lambda guard, producer_epoch: True)
