"""Large values read by TopicDataset: copied and as views, from the broker and from its files.

    python -m bradbury.benchmarks.large_values [--rounds 5] [--megabytes 400] [--json figures.json]

A broker in a process of its own, one partition, no compression. The ways take turns, round by
round; the first round only warms up. Medians of GB/s of values and of the reader's CPU. CRCs are
checked, as always, and the first and last byte of every value is read.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

import bradbury
from bradbury.cli.terminal.output import table_console

from .support.contestants import Bradbury

SIZES = (10_000, 100_000, 1_000_000)
WAYS: dict[str, dict[str, Any]] = {
    "from the broker": {},
    "from the broker, views": {"value_views": True},
    "from files": {"local_files": True},
    "from mapped files, views": {"local_files": True, "value_views": True},
}


class Reading(NamedTuple):
    """Result of a read. rate: GB/s. cpu: CPU seconds of the reader for each GB."""

    rate: float
    cpu: float


def fill(servers: str, size: int, count: int) -> str:
    topic = f"values-{size}"
    with bradbury.Admin(servers) as admin:
        admin.create_topic(topic, 1, configs={"max.message.bytes": "16000000"})
    with bradbury.Producer(servers, max_request_size=16_000_000) as producer:
        for number in range(count):
            producer.send(topic, number.to_bytes(4, "big") + bytes(size - 4))
    return topic


def read(servers: str, topic: str, size: int, options: dict[str, Any]) -> Reading:
    dataset = bradbury.TopicDataset(
        topic, bootstrap_servers=servers, columns=["value"], batch_size=8, **options
    )
    started, cpu, count = time.perf_counter(), time.process_time(), 0
    for batch in dataset:
        for value in batch["value"]:
            assert value[0] + value[-1] < 256
            count += 1
    gigabytes = count * size / 1e9
    return Reading(
        gigabytes / (time.perf_counter() - started), (time.process_time() - cpu) / gigabytes
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, dict[int, list[Reading]]] = {way: {} for way in WAYS}
    with (
        tempfile.TemporaryDirectory(prefix="bradbury-values-") as folder,
        Bradbury(Path(folder)) as broker,
    ):
        for size in SIZES:
            topic = fill(broker.bootstrap_servers, size, options.megabytes * 1_000_000 // size)
            for number in range(options.rounds):
                for way, how in WAYS.items():
                    reading = read(broker.bootstrap_servers, topic, size, how)
                    if number or options.rounds == 1:
                        found[way].setdefault(size, []).append(reading)
    table = Table("GB/s (CPU s a GB)", *(f"{size:,} B" for size in SIZES))
    for way, by_size in found.items():
        cells = []
        for size in SIZES:
            rate = statistics.median(one.rate for one in by_size[size])
            cpu = statistics.median(one.cpu for one in by_size[size])
            cells.append(f"{rate:.2f} ({cpu:.2f})")
        table.add_row(way, *cells)
    table_console().print(table)
    if options.json:
        options.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
