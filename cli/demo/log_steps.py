"""Steps 2 and 3: Ray tasks produce the flights, consumer actors read them back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import ray

from ...clients.consumer_group.worker_actors import ConsumerActor
from ...clients.producer.producer import Producer
from ..terminal.failure import CommandFailed
from .delivery_check import DeliveryCheck
from .flights import Flights

if TYPE_CHECKING:
    from ...clients.admin.admin import Admin

TOPIC = "flights"
PARTITIONS = 4
ROWS_PER_CALL = 10_000
ROWS_PER_POLL = 50_000
POLL_MS = 500
CONSUMERS = 2
STALLED_SECONDS = 120.0

Progress = Callable[[int], None]
"""Callback with the number of rows done so far."""


def produce_shard(records: pa.Table, topic: str, namespace: str) -> int:
    """Produce a shard in a Ray task, which finds the brokers itself; return acknowledged rows."""
    with Producer(namespace=namespace) as producer:
        sent = [
            producer.send_batch(topic, records.slice(start, ROWS_PER_CALL))
            for start in range(0, records.num_rows, ROWS_PER_CALL)
        ]
        return sum(batch.result().count for batch in sent)


def produce_flights(
    flights: Flights, admin: Admin, namespace: str, task_count: int, on_progress: Progress
) -> int:
    """Produce all flights from `task_count` concurrent Ray tasks; return the rows acknowledged."""
    task = ray.remote(produce_shard)
    running = [task.remote(shard, TOPIC, namespace) for shard in flights.shards(task_count)]
    waiting = list(running)
    while waiting:
        done, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=0.2)
        ray.get(done)  # raises the error of a failed task at once
        on_progress(sum(_end_offsets(admin)))
    return sum(ray.get(running))


def consume_flights(
    check: DeliveryCheck, admin: Admin, namespace: str, on_progress: Progress
) -> int:
    """Read the whole topic with consumer actors into `check`; return the number of records read.

    Raises:
        CommandFailed: no record was read for STALLED_SECONDS, before the end of the topic.
    """
    ends = _end_offsets(admin)
    positions = [0] * PARTITIONS
    actors = [
        ConsumerActor.remote(namespace=namespace, auto_offset_reset="earliest")
        for _ in range(CONSUMERS)
    ]
    assigned = {
        actor: [partition for partition in range(PARTITIONS) if partition % CONSUMERS == number]
        for number, actor in enumerate(actors)
    }
    try:
        ray.get(
            [
                actor.assign.remote([(TOPIC, partition) for partition in partitions])
                for actor, partitions in assigned.items()
            ]
        )
        polls: dict[Any, Any] = {_poll(actor): actor for actor in actors}
        last = time.monotonic()
        while polls:
            ready, _ = ray.wait(list(polls), timeout=1.0)
            for poll in ready:
                actor = polls.pop(poll)
                table = ray.get(poll)
                if table.num_rows:
                    last = time.monotonic()
                    check.add(table)
                    _advance(positions, table)
                    on_progress(check.record_count)
                if any(positions[one] < ends[one] for one in assigned[actor]):
                    polls[_poll(actor)] = actor
            if time.monotonic() - last > STALLED_SECONDS:
                raise CommandFailed(
                    f"no record came for {STALLED_SECONDS:.0f} s, at {sum(positions)} of "
                    f"{sum(ends)}; run it again with --keep and look at `bradbury status`"
                )
        ray.get([actor.close.remote() for actor in actors])
    finally:
        for actor in actors:
            ray.kill(actor)
    return check.record_count


def _poll(actor: Any) -> Any:
    return actor.poll.remote(max_records=ROWS_PER_POLL, timeout_ms=POLL_MS)


def _advance(positions: list[int], table: pa.Table) -> None:
    grouped = table.group_by("partition").aggregate([("offset", "max")])
    for partition, last in zip(
        grouped.column("partition").to_pylist(),
        grouped.column("offset_max").to_pylist(),
        strict=True,
    ):
        positions[partition] = last + 1


def _end_offsets(admin: Admin) -> list[int]:
    offsets = admin.list_offsets([(TOPIC, number) for number in range(PARTITIONS)], "latest")
    return [offsets[key].offset for key in sorted(offsets)]
