"""Planted faults of offsets in transactions; see planted_faults."""

from __future__ import annotations

from typing import Any

from bradbury.coordinators.coordinator_context import CoordinatorContext
from bradbury.coordinators.coordinator_effects import PendingAppend
from bradbury.coordinators.rules_effects import Append
from bradbury.groups.coordinator import coordinator
from bradbury.groups.coordinator.coordinator_state import CoordinatorState, entries_of
from bradbury.groups.group_effects import OffsetsStored, TransactionEnded
from bradbury.groups.group_records import LogEntry, TransactionalOffset, TransactionEnd
from bradbury.groups.offsets.group_offsets import GroupOffsets
from bradbury.handlers.records import write_txn_markers
from bradbury.protocol.errors import KafkaError
from bradbury.storage.producers.producer_state import ProducerState

from ..fault_registry import Patch, fault

OFFSETS = {
    "transactional_ids": 2,
    "offsets_in_transactions": True,
    "twins": True,
    "producers": 2,
    "partitions": 1,
    "kinds": ("kill", "pause", "elect", "cut", "kill producer", "pause producer"),
    "fault_every_ms": 150,
    "log_errors": 0.0,
}
SLOW = {**OFFSETS, "delay_ms": 15, "kinds": ("kill", "elect", "cut")}
"""So that a leader may fail before its followers have what it wrote."""


@fault(**OFFSETS)
def an_offset_of_an_aborted_transaction_counts(patch: Patch) -> None:
    """A group goes on behind records whose output was taken back."""
    original = GroupOffsets.end_transaction
    patch(
        GroupOffsets,
        "end_transaction",
        lambda offsets, producer_id, *, is_commit: original(offsets, producer_id, is_commit=True),
    )


@fault(**OFFSETS)
def an_offset_counts_before_its_transaction_does(patch: Patch) -> None:
    """It is taken for a plain commit."""

    def apply_pending(
        offsets: GroupOffsets, producer_id: int, topic: str, partition: int, value: Any
    ) -> None:
        offsets._put(topic, partition, value, next(offsets._numbers))

    patch(GroupOffsets, "apply_pending", apply_pending)


@fault(**{**OFFSETS, "pace_ms": 5})
def a_pending_offset_is_called_stable(patch: Patch) -> None:
    """The next owner of a partition begins before the former one's transaction has ended."""
    patch(GroupOffsets, "is_pending", lambda offsets, topic, partition: False)


@fault(**OFFSETS)
def a_marker_is_written_without_its_coordinator(patch: Patch) -> None:
    """Straight to the log: who coordinates the group does not see it."""
    patch(write_txn_markers, "OFFSETS_TOPIC", "")


@fault(**OFFSETS)
def the_end_of_a_transaction_is_forgotten_at_once(patch: Patch) -> None:
    """It is in the log, and applied only by the next coordinator."""

    def entries(append: Append) -> Any:
        return [] if append.marker is not None else entries_of(append)

    patch(coordinator, "entries_of", entries)


@fault(**OFFSETS)
def pending_offsets_are_not_loaded(patch: Patch) -> None:
    """The next coordinator knows nothing of what the former one had pending."""
    _not_loaded(patch, TransactionalOffset)


@fault(**OFFSETS)
def markers_are_not_loaded(patch: Patch) -> None:
    """For the next coordinator every transaction of the log is open."""
    _not_loaded(patch, TransactionEnd)


def _not_loaded(patch: Patch, kind: type) -> None:
    original = CoordinatorState.apply

    def apply(state: CoordinatorState, entry: LogEntry) -> None:
        if not (state.is_loading and isinstance(entry, kind)):
            original(state, entry)

    patch(CoordinatorState, "apply", apply)


@fault(**SLOW)
def a_marker_counts_before_it_is_replicated(patch: Patch) -> None:
    """After a fail-over the transaction is open again, and nobody ends it."""
    _applied_early(patch, TransactionEnded)


@fault(**SLOW)
def an_offset_is_pending_before_it_is_replicated(patch: Patch) -> None:
    """After a fail-over it is not there, and the transaction is committed without it."""
    _applied_early(patch, OffsetsStored)


def _applied_early(patch: Patch, kind: type) -> None:
    original = CoordinatorContext._append

    def append(context: CoordinatorContext, append: Append, now_ms: int, wall_ms: int) -> None:
        original(context, append, now_ms, wall_ms)
        if isinstance(append.completion, kind):
            context.on_committed(context._pending[-1], now_ms=now_ms, wall_ms=wall_ms)

    refused = CoordinatorContext._on_append_refused

    def _on_append_refused(
        context: CoordinatorContext, pending: PendingAppend, error: KafkaError, **now: int
    ) -> None:
        if pending in context._pending:
            refused(context, pending, error, **now)

    patch(CoordinatorContext, "_append", append)
    patch(CoordinatorContext, "_on_append_refused", _on_append_refused)


@fault(**OFFSETS)
def the_coordinator_of_the_transaction_is_not_asked(patch: Patch) -> None:
    """Nothing adds the group's partition to the transaction, so no marker comes there (KIP-890)."""
    patch(ProducerState, "_check_verified", lambda state, header, guard: None)
    patch(ProducerState, "begin_verification", lambda state, *given, **rest: None)
