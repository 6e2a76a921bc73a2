"""bradbury.Queue compared with ray.util.queue.Queue, and TopicDataset. Run by hand:

    python -m bradbury.benchmarks.ray_queues [--rounds 5] [--json figures.json]

One Ray with a Bradbury cluster of one node on it; items of 100 B. All take turns, round by
round; the first round only warms up. Ratios are of medians of items a second:

    put, get        one call after another, each awaited, from one process
    batches         put_nowait_batch and get_nowait_batch of 1,000
    put_async       200 coroutines in each of two processes
    TopicDataset    rows a second of one worker, in batches of 4,096 (no peer)
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
import ray.util.queue
from rich.table import Table

import bradbury
from bradbury.cli.terminal.output import table_console

ITEM = b"x" * 100
ONE_BY_ONE = {"ours": 2_000, "peer": 500}
BATCH = 1_000
BATCHES = 50
COROUTINES = 200
PIPELINED = {"ours": 20_000, "peer": 1_000}
ROWS = 1_000_000
GOALS = {"put": 20.0, "get": 20.0, "put batches": 2.0, "get batches": 2.0, "put_async": 100.0}


def timed(count: int, work: Callable[[], object]) -> float:
    """Items a second that `work` handles, for `count` items."""
    begin = time.perf_counter()
    work()
    return count / (time.perf_counter() - begin)


def one_by_one(queue: Any, count: int, latencies: list[float]) -> tuple[float, float]:
    def put_all() -> None:
        for _ in range(count):
            begin = time.perf_counter()
            queue.put(ITEM)
            latencies.append(time.perf_counter() - begin)

    def get_all() -> None:
        for _ in range(count):
            queue.get()

    return timed(count, put_all), timed(count, get_all)


def in_batches(queue: Any) -> tuple[float, float]:
    items = [ITEM] * BATCH

    def put_all() -> None:
        for _ in range(BATCHES):
            queue.put_nowait_batch(items)

    def get_all() -> None:
        for _ in range(BATCHES):
            assert len(queue.get_nowait_batch(BATCH)) == BATCH

    return timed(BATCH * BATCHES, put_all), timed(BATCH * BATCHES, get_all)


@ray.remote(num_cpus=0)
class Putter:
    """Actor with many coroutines that put items."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue

    async def put_all(self, count: int) -> None:
        async def some(number: int) -> None:
            for _ in range(number):
                await self._queue.put_async(ITEM)

        await asyncio.gather(*(some(count // COROUTINES) for _ in range(COROUTINES)))


def pipelined(putters: list[Any], queue: Any, count: int) -> float:
    rate = timed(
        count * len(putters), lambda: ray.get([each.put_all.remote(count) for each in putters])
    )
    for _ in range(count * len(putters) // COROUTINES):
        queue.get_nowait_batch(COROUTINES)
    return rate


def dataset_rate(topic: str) -> float:
    def read() -> None:
        rows = 0
        for batch in bradbury.TopicDataset(topic, columns=["value"], batch_size=4_096):
            rows += len(batch["value"])
        assert rows == ROWS

    return timed(ROWS, read)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, dict[str, list[float]]] = {}
    latencies: dict[str, list[float]] = {"ours": [], "peer": []}
    with tempfile.TemporaryDirectory(prefix="bradbury-queues-") as folder:
        cluster = bradbury.up(f"{folder}/data", address="local", port=0)
        try:
            with cluster.admin() as admin:
                admin.create_topic("rows", 2)
            with bradbury.Producer() as producer:
                for _ in range(ROWS // 100_000):
                    producer.send_batch("rows", [ITEM] * 100_000).result()
            queues = {"ours": bradbury.Queue(), "peer": ray.util.queue.Queue()}
            putters = {
                name: [Putter.remote(queue) for _ in range(2)] for name, queue in queues.items()
            }
            for number in range(options.rounds + 1):
                for name, queue in queues.items():
                    rates: dict[str, float] = {}
                    latencies[name] = [] if number == 0 else latencies[name]
                    rates["put"], rates["get"] = one_by_one(
                        queue, ONE_BY_ONE[name], latencies[name]
                    )
                    rates["put batches"], rates["get batches"] = in_batches(queue)
                    rates["put_async"] = pipelined(putters[name], queue, PIPELINED[name])
                    if name == "ours":
                        rates["TopicDataset"] = dataset_rate("rows")
                    for what, rate in rates.items() if number else ():
                        found.setdefault(what, {}).setdefault(name, []).append(rate)
            queues["ours"].shutdown()
        finally:
            cluster.down()
    show(found, latencies)
    if options.json:
        options.json.write_text(json.dumps({"rates": found, "latencies_s": latencies}))


def show(found: dict[str, dict[str, list[float]]], latencies: dict[str, list[float]]) -> None:
    table = Table()
    for name in ("", "bradbury /s", "Ray /s", "ratio", "goal"):
        table.add_column(name, justify="right")
    for what, rates in found.items():
        medians = {name: statistics.median(each) for name, each in rates.items()}
        ours, peer = medians["ours"], medians.get("peer")
        table.add_row(
            what,
            f"{ours:,.0f}",
            "-" if peer is None else f"{peer:,.0f}",
            "-" if peer is None else f"{ours / peer:.2f}",
            f"{GOALS[what]:.0f}" if what in GOALS else "-",
        )
    console = table_console()
    console.print(table)
    for name, each in latencies.items():
        each.sort()
        console.print(
            f"{name}: p50 of a put {each[len(each) // 2] * 1e3:.3f} ms, "
            f"p99 {each[len(each) * 99 // 100] * 1e3:.3f} ms"
        )


if __name__ == "__main__":
    main()
