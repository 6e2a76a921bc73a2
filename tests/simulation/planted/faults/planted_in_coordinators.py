"""Planted faults for the coordinator's own world; see coordinator_world."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bradbury.coordinators.rules_effects import Append, Respond
from bradbury.transactions import end_decision, transaction_metadata, transaction_records
from bradbury.transactions.transaction_coordinator import TransactionCoordinator
from bradbury.transactions.transaction_metadata import MAX_EPOCH, TransactionMetadata
from bradbury.transactions.transaction_records import TransactionRecord

from ..fault_registry import Patch, PlantedFault, fault

COORDINATOR_FAULTS: dict[str, PlantedFault] = {}


@fault(COORDINATOR_FAULTS)
def a_fenced_producer_is_taken_for_one_that_repeats_its_request(patch: Patch) -> None:
    """Where the one that has begun since speaks version 1, whose end does not raise the epoch."""
    patch(TransactionMetadata, "bumps_epoch", property(lambda metadata: True))


@fault(COORDINATOR_FAULTS)
def no_epoch_is_left_to_fence_with(patch: Patch) -> None:
    """A producer may use the last one, too."""
    patch(transaction_metadata, "is_exhausted", lambda epoch: epoch >= MAX_EPOCH)


@fault(COORDINATOR_FAULTS)
def the_next_producer_id_is_not_found_again(patch: Patch) -> None:
    """A successor completes with the one whose epochs are used up."""
    original = transaction_records._metadata

    def metadata(value: Any) -> TransactionMetadata:
        return replace(original(value), next_producer_id=-1)

    patch(transaction_records, "_metadata", metadata)


@fault(COORDINATOR_FAULTS)
def an_expired_id_comes_back(patch: Patch) -> None:
    """A successor overlooks tombstones."""
    original = TransactionCoordinator.apply

    def apply(coordinator: TransactionCoordinator, record: TransactionRecord) -> None:
        if record.metadata is not None or len(coordinator) > 2:
            original(coordinator, record)

    patch(TransactionCoordinator, "apply", apply)


@fault(COORDINATOR_FAULTS)
def who_has_waited_for_too_long_is_told_that_it_is_done(patch: Patch) -> None:
    """The record may never be committed."""

    def on_late(coordinator: Any, append: Append, *, now_ms: int) -> tuple[list[Any], Append]:
        written = append.completion
        if written is None or written.request_id is None:
            return [], append
        done = Respond(written.request_id, written.answer)
        return [done], replace(append, completion=written._replace(request_id=None))

    patch(TransactionCoordinator, "on_late", on_late)


@fault(COORDINATOR_FAULTS)
def any_end_of_an_id_counts_as_a_repeated_one(patch: Patch) -> None:
    """A commit after an abort is answered as if it were that abort."""
    original = end_decision._END
    patch(end_decision, "_END", {True: {**original[False]}, False: {**original[True]}})
