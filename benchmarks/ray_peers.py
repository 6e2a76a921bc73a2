"""Ray Data's connectors for Kafka compared with Bradbury's. Run by hand:

    python -m bradbury.benchmarks.ray_peers [--rows 2000000] [--peer-rows 100000] [--rounds 5]
        [--json figures.json]

One broker (bradbury.local) and one Ray, both on this machine; records have 100 B, in 2 partitions.
All take turns, round by round; the first only warms up. Ratios are of medians of rows a second:

    read     read_topic of all columns and of `value` alone, from the broker and from its files, and
             ray.data.read_kafka of fewer rows
    source   a Dataset of Arrow blocks in memory: the upper limit of Ray Data
    write    write_topic exactly once and at least once, and Dataset.write_kafka of fewer rows
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import ray
import ray.data
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask
from rich.table import Table

import bradbury
from bradbury.cli.terminal.output import table_console

SIZE = 100
PARTITIONS = 2
BLOCK_ROWS = 40_000
TASKS = 4
GOALS = {"read_topic": ("read_kafka", 20.0), "write_topic": ("write_kafka", 10.0)}


class InMemory(Datasource):
    """Datasource of read_topic's columns, built beforehand in memory."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self._rows = rows

    def estimate_inmemory_data_size(self) -> int:
        return self._rows * SIZE

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        blocks = self._rows // BLOCK_ROWS // TASKS

        def read() -> Any:
            table = _columns(BLOCK_ROWS)
            for _ in range(blocks):
                yield table

        metadata = BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None)
        return [ReadTask(read, metadata) for _ in range(TASKS)]


def _columns(rows: int) -> pa.Table:
    return pa.table(
        {
            "offset": np.arange(rows),
            "key": pa.nulls(rows, pa.binary()),
            "value": pa.repeat(b"x" * SIZE, rows),
            "topic": pa.repeat("benchmark", rows),
            "partition": np.zeros(rows, np.int32),
            "timestamp": np.zeros(rows, np.int64),
            "timestamp_type": np.ones(rows, np.int32),
            "headers": pa.MapArray.from_arrays(
                np.zeros(rows + 1, np.int32), pa.nulls(0, pa.string()), pa.nulls(0, pa.binary())
            ),
        }
    )


def drained(dataset: ray.data.Dataset) -> int:
    """Number of rows of a Dataset, all fetched to this process as Arrow blocks."""
    batches = dataset.iter_batches(batch_size=None, batch_format="pyarrow")
    return sum(len(batch) for batch in batches)


def rate(run: Callable[[], int]) -> float:
    began = time.perf_counter()
    return run() / (time.perf_counter() - began)


def contests(servers: str, rows: int, peer_rows: int) -> dict[str, Callable[[], int]]:
    values = pa.table({"value": pa.array([b"x" * SIZE] * BLOCK_ROWS)})
    given = ray.data.from_arrow([values] * (rows // BLOCK_ROWS // 2)).materialize()
    count = given.count()
    few = ray.data.from_arrow([values.slice(0, peer_rows // TASKS)] * TASKS).materialize()

    def write(**settings: Any) -> int:
        bradbury.write_topic(given, "written", bootstrap_servers=servers, **settings)
        return count

    def write_kafka() -> int:
        few.write_kafka("written", servers, value_serializer="bytes")
        return TASKS * (peer_rows // TASKS)

    def read(**settings: Any) -> int:
        return drained(bradbury.read_topic("big", bootstrap_servers=servers, **settings))

    def read_kafka() -> int:
        end = peer_rows // PARTITIONS
        return drained(ray.data.read_kafka("big", bootstrap_servers=servers, end_offset=end))

    return {
        "read_topic": read,
        "read_topic, value": lambda: read(columns=["value"]),
        "read_topic, local files": lambda: read(local_files=True),
        "read_topic, local files, value": lambda: read(local_files=True, columns=["value"]),
        "read_kafka": read_kafka,
        "in memory": lambda: drained(
            ray.data.read_datasource(InMemory(rows), override_num_blocks=TASKS)
        ),
        "write_topic": write,
        "write_topic, at least once": lambda: write(delivery_guarantee="at-least-once"),
        "write_kafka": write_kafka,
    }


def compare(rows: int, peer_rows: int, rounds: int, folder: Path) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {}
    with bradbury.local(data_dir=str(folder)) as cluster, cluster.admin() as admin:
        admin.create_topic("big", PARTITIONS)
        admin.create_topic("written", PARTITIONS)
        values = pa.table({"value": pa.array([b"x" * SIZE] * BLOCK_ROWS)})
        with bradbury.Producer(cluster.bootstrap_servers) as producer:
            for number in range(rows // BLOCK_ROWS):
                producer.send_batch("big", values, partition=number % PARTITIONS)
        runs = contests(cluster.bootstrap_servers, rows, peer_rows)
        for number in range(rounds + 1):
            for name, run in runs.items():
                found = rate(run)
                if number:
                    rates.setdefault(name, []).append(found)
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--peer-rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="file to write all figures to")
    options = parser.parse_args()
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    with tempfile.TemporaryDirectory(prefix="ray-peers-") as folder:
        rates = compare(options.rows, options.peer_rows, options.rounds, Path(folder))
    ray.shutdown()
    medians = {name: statistics.median(each) for name, each in rates.items()}
    table = Table("what", "rows/s", "from", "to", "of its peer", "goal")
    for name, median in medians.items():
        peer, goal = GOALS.get(name, (None, None))
        ratio = "" if peer is None else f"{median / medians[peer]:.0f}x {peer}"
        table.add_row(
            name,
            f"{median:,.0f}",
            f"{min(rates[name]):,.0f}",
            f"{max(rates[name]):,.0f}",
            ratio,
            "" if goal is None else f"{goal:.0f}x",
        )
    for name in ("read_topic", "read_topic, local files"):
        share = medians[name] / medians["in memory"]
        table.add_row(f"{name} / in memory", f"{share:.0%}", "", "", "", "60 %")
    table_console().print(table)
    if options.json is not None:
        options.json.write_text(json.dumps(rates, indent=1))


if __name__ == "__main__":
    main()
