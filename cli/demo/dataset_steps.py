"""Step 4: flights as a Ray Dataset, sums of them as records, and a work queue.

Invariants:
    flights --read_topic, map_batches, write_topic--> carriers: a record for each carrier of a
    batch, its key the carrier, its value {"flights": 12, "timed": 11, "delay": -40}.
    carriers --a queue hands each one to one of two tasks--> the sums of all of its records.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import ray

from ...clients.queue.queue import Queue
from ...clients.queue.received_item import Empty
from ...pipelines.ray_data.read_topic import read_topic
from ...pipelines.ray_data.write_topic import write_topic
from ..terminal.failure import CommandFailed
from .delivery_check import Delays, parse_rows
from .log_steps import TOPIC

CARRIERS: Final = "carriers"
WORKERS: Final = 2
RAY_DATA: Final = "ray.data"
QUIET_S: Final = 0.5
"""Seconds without an item after which a task regards the queue as finished."""


def write_carriers(servers: str) -> None:
    """Read the topic as a Dataset, sum up each batch, and write the sums to a topic."""
    _quiet_ray_data()
    flights = read_topic(TOPIC, bootstrap_servers=servers, columns=["value"])
    sums = flights.map_batches(sums_of, batch_format="pyarrow", batch_size=None)
    write_topic(sums, CARRIERS, key="key", bootstrap_servers=servers)


def _quiet_ray_data() -> None:
    """Switch off Ray Data's own output; the demo shows progress (see docs/ray.md)."""
    import ray.data

    ray.data.DataContext.get_current().enable_progress_bars = False
    # Importing Ray Data sets its logger to INFO; it logs a warning that there are no progress bars.
    logging.getLogger(RAY_DATA).setLevel(logging.ERROR)


def sums_of(batch: pa.Table) -> pa.Table:
    """Sum up a batch: a row for each carrier."""
    rows = parse_rows(batch.column("value"))
    grouped = rows.group_by("carrier").aggregate(
        [("row", "count"), ("arr_delay", "count"), ("arr_delay", "sum")]
    )
    columns = ("row_count", "arr_delay_count", "arr_delay_sum")
    values = [
        json.dumps({"flights": flights, "timed": timed, "delay": delay or 0})
        for flights, timed, delay in zip(
            *(grouped.column(name).to_pylist() for name in columns), strict=True
        )
    ]
    return pa.table({"key": grouped.column("carrier"), "value": pa.array(values)})


def add_up_carriers(servers: str) -> dict[str, Delays]:
    """Add up the sums of each carrier in two tasks, which share the work by a queue."""
    sums = read_topic(CARRIERS, bootstrap_servers=servers, columns=["key", "value"]).take_all()
    queue = Queue(bootstrap=servers)
    try:
        for carrier in sorted({row["key"].decode() for row in sums}):
            queue.put(carrier)
        said = ray.put([(row["key"].decode(), json.loads(row["value"])) for row in sums])
        task = ray.remote(_add_up)
        parts = ray.get([task.remote(queue, said) for _ in range(WORKERS)])
    finally:
        queue.shutdown()
    return {carrier: delays for part in parts for carrier, delays in part.items()}


def _add_up(queue: Queue, said: list[tuple[str, dict[str, int]]]) -> dict[str, Delays]:
    done: dict[str, Delays] = {}
    while True:
        try:
            delivery = queue.receive(timeout=QUIET_S)
        except Empty:
            return done
        carrier = delivery.item
        done[carrier] = _total(one for name, one in said if name == carrier)
        delivery.ack()  # if a worker dies before this, another one gets the carrier


def _total(sums: Iterable[dict[str, int]]) -> Delays:
    total = Delays()
    for one in sums:
        total.flights += one["flights"]
        total.timed += one["timed"]
        total.delay += one["delay"]
    return total


def compare_carriers(found: dict[str, Delays], by_carrier: dict[str, Delays]) -> None:
    """Raise CommandFailed if Datasets and actors have different results."""
    wrong: list[Any] = [
        carrier
        for carrier in sorted({*found, *by_carrier})
        if found.get(carrier) != by_carrier.get(carrier)
    ]
    if wrong:
        raise CommandFailed(
            f"topic {CARRIERS!r} differs from the actors' counts for: {', '.join(wrong)}"
        )
