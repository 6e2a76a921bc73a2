"""Planted faults of records that are converted before they are appended; see planted_faults."""

from __future__ import annotations

from typing import Any

from bradbury.protocol.errors import KafkaError
from bradbury.replication.partition.conversion_queue import Conversion, ConversionQueue
from bradbury.steps.replies import Refuse

from ..fault_registry import Patch, fault

CONVERTING = {"old_producers": 2, "pace_ms": 15, "producers": 1, "careless_producers": 0}
RESIGNING = {
    **CONVERTING,
    "nodes": 4,
    "kinds": ("elect", "reassign", "reassign"),
    "fault_every_ms": 100,
    "session_ms": 300,
}


@fault(**CONVERTING)
def what_is_converted_first_is_appended_first(patch: Patch) -> None:
    """Nothing waits for a slower conversion that began before it."""

    def on_converted(
        queue: ConversionQueue,
        conversion: Conversion,
        failure: Exception | None,
        *,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        conversion.failure = failure
        if not conversion.is_void:
            queue._waiting.remove(conversion)
            queue._append(conversion, now_ms, wall_ms)

    patch(ConversionQueue, "on_converted", on_converted)


@fault(**CONVERTING)
def a_batch_that_needs_no_conversion_waits_for_nobody(patch: Patch) -> None:
    """It is appended at once, whatever was sent before it."""
    original = ConversionQueue.produce

    def produce(queue: ConversionQueue, batch: memoryview, **given: Any) -> Any:
        waiting = queue._waiting
        if not given["is_message_set"]:
            queue._waiting = type(waiting)()
        try:
            return original(queue, batch, **given)
        finally:
            queue._waiting = waiting

    patch(ConversionQueue, "produce", produce)


@fault(**RESIGNING)
def what_was_refused_is_appended_in_the_next_epoch(patch: Patch) -> None:
    """Its producer was told that this node leads no more, and what the node has taken in stays."""

    def abandon(queue: ConversionQueue, error: KafkaError) -> None:
        for conversion in queue._waiting:
            queue._effects.append(Refuse(conversion.ticket, error))

    patch(ConversionQueue, "abandon", abandon)


@fault(**RESIGNING)
def what_is_abandoned_counts_forever(patch: Patch) -> None:
    """A few changes of leaders later the node takes nothing more to convert."""
    original = ConversionQueue.abandon

    def abandon(queue: ConversionQueue, error: KafkaError) -> None:
        for conversion in queue._waiting:
            conversion.size = 0
        original(queue, error)

    patch(ConversionQueue, "abandon", abandon)
