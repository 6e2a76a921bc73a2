"""Many small clients: cost of requests, compared with Apache Kafka 4.1.1 on this machine.

    python -m bradbury.benchmarks.many_clients [--rounds 5] [--only WORD,WORD]
        [--producers 16,64] [--consumers 64,500] [--json figures.json]

Three brokers take turns, round by round: `local()` in a process of its own, `bradbury up` with its
defaults on an embedded Ray, and Kafka as one KRaft node with 1 GB of heap. The others are suspended
meanwhile. Records have 200 B:

    producers, one record     librdkafka, linger 0, a request for each record, five in flight
    producers, lz4, snappy    the same, compressed
    producers, linger         librdkafka's own linger of 5 ms
    consumers                 fetch sessions over 8 partitions, 10,000 records/s delivered in all
    idle polls                1,000 fetches that find nothing
    connections               2,000 of them, each with 5 produce requests a second

A ratio is the median of the rounds' ratios to Kafka. Broker and clients share the cores: the
producers' own CPU time a record is shown, as it limits every broker here. Three
replicas: versus_kafka_replicated.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bradbury.cli.terminal.output import table_console

from .support.contestants import MAY_STAND_STILL, Arena, Bradbury, Contestant, Kafka, alone
from .support.measures import Goal
from .support.raw_clients import measure_connections, measure_consumers, measure_idle_polls
from .support.small_producers import ONE_RECORD, measure_producers

WARM_UP_ROUNDS = 2
SECONDS = 5.0
IDLE_POLLS = 1_000
CONNECTIONS = 2_000
PER_SECOND = 5.0
SETTINGS = {
    "one record": ONE_RECORD,
    "lz4": {**ONE_RECORD, "compression.codec": "lz4"},
    "snappy": {**ONE_RECORD, "compression.codec": "snappy"},
    "linger": {"acks": "1"},
}
MORE_WITH_LINGER = 5
"""Factor for the number of records, as a request has dozens of them."""
GOALS = {
    ("up", "one record: rate"): Goal(">=", 1.5),
    ("up", "lz4: rate"): Goal(">=", 1.5),
    ("up", "snappy: rate"): Goal(">=", 1.5),
    ("up", "linger: rate"): Goal(">=", 1.2),
    ("up", "one record: cpu"): Goal("<=", 0.5),
    ("up", "consumers: p99"): Goal("<=", 1.0),
    ("up", "consumers: cpu"): Goal("<=", 0.6),
    ("up", "connections: p99"): Goal("<=", 1.0),
    ("local()", "one record: rate"): Goal(">=", 1.0),
}
"""Goals by broker and by the end of the measure's name."""


class OnRay(Contestant):
    """Contestant: `bradbury up` with its defaults."""

    name = "up"

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "up"

    def __enter__(self) -> Self:
        import bradbury

        began = time.perf_counter()
        self._cluster = bradbury.up(
            str(self.folder), address="local", port=0, config=dict(MAY_STAND_STILL)
        )
        self.start_seconds = time.perf_counter() - began
        self.bootstrap_servers = self._cluster.bootstrap_servers
        status = self._cluster.status()
        pids = {each["pid"] for each in status["actors"] if "pid" in each} | {status["pid"]}
        self._processes = [psutil.Process(pid) for pid in pids]
        return self

    def processes(self) -> list[psutil.Process]:
        return self._processes

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.resume()
        self._cluster.down()


class Local(Bradbury):
    name = "local()"


Measure = Callable[[Contestant, str], dict[str, float]]
Rounds = dict[str, dict[str, list[float]]]
"""Measured figures by measure and broker, one for each round."""


def _producers(
    broker: Contestant, topic: str, *, settings: dict[str, str], count: int, total: int
) -> dict[str, float]:
    return measure_producers(broker, topic, settings, count, total)._asdict()


def _consumers(broker: Contestant, topic: str, *, count: int) -> dict[str, float]:
    return measure_consumers(broker, topic, count, SECONDS)._asdict()


def _idle_polls(broker: Contestant, topic: str) -> dict[str, float]:
    return {"cpu": measure_idle_polls(broker, topic, IDLE_POLLS, SECONDS)}


def _connections(broker: Contestant, topic: str) -> dict[str, float]:
    return measure_connections(broker, topic, CONNECTIONS, PER_SECOND, SECONDS)._asdict()


def measures(producers: list[int], consumers: list[int], total: int) -> dict[str, Measure]:
    found: dict[str, Measure] = {}
    for count in producers:
        for word, settings in SETTINGS.items():
            records = total if "batch.num.messages" in settings else total * MORE_WITH_LINGER
            found[f"{count} producers, {word}"] = partial(
                _producers, settings=settings, count=count, total=records
            )
    for count in consumers:
        found[f"{count} consumers"] = partial(_consumers, count=count)
    found[f"{IDLE_POLLS:,} idle polls"] = _idle_polls
    found[f"{CONNECTIONS:,} connections"] = _connections
    return found


def run(brokers: list[Contestant], chosen: dict[str, Measure], rounds: int) -> Rounds:
    found: Rounds = {}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        steps = len(chosen) * (rounds + WARM_UP_ROUNDS) * len(brokers)
        task = progress.add_task("", total=steps)
        for name, measure in chosen.items():
            for number in range(rounds + WARM_UP_ROUNDS):
                for broker in brokers if number % 2 else reversed(brokers):
                    progress.update(task, description=f"{name}: {broker.name}", advance=1)
                    os.sync()
                    with alone(broker, brokers):
                        figures = measure(broker, f"many-{number}")
                    if number < WARM_UP_ROUNDS:
                        continue
                    for kind, figure in figures.items():
                        by_broker = found.setdefault(f"{name}: {kind}", {})
                        by_broker.setdefault(broker.name, []).append(figure)
    return found


def ratio(by_broker: dict[str, list[float]], name: str) -> float:
    pairs = zip(by_broker[name], by_broker["Kafka"], strict=True)
    return statistics.median(ours / theirs for ours, theirs in pairs)


def goal_of(measure: str, broker: str) -> Goal | None:
    found = (
        goal for (name, end), goal in GOALS.items() if name == broker and measure.endswith(end)
    )
    return next(found, None)


def show(found: Rounds, console: Console) -> None:
    table = Table("measure", "Kafka", "local()", "ratio", "up", "ratio", title="medians")
    for measure, by_broker in found.items():
        row = [measure, f"{statistics.median(by_broker['Kafka']):,.2f}"]
        for name in ("local()", "up"):
            value, goal = ratio(by_broker, name), goal_of(measure, name)
            verdict = "" if goal is None else f" {goal} {'met' if goal.is_met(value) else 'missed'}"
            row += [f"{statistics.median(by_broker[name]):,.2f}", f"{value:.2f}{verdict}"]
        table.add_row(*row)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--producers", default="16,64")
    parser.add_argument("--consumers", default="64,500")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=100_000, help="records of each round")
    parser.add_argument(
        "--only", default="", help="run only measures with one of these words, separated by commas"
    )
    parser.add_argument("--dir", help="directory for the data of all brokers")
    parser.add_argument("--json", type=Path, help="file to write all figures to")
    options = parser.parse_args()
    producers, consumers = (
        [int(word) for word in words.split(",")] for words in (options.producers, options.consumers)
    )
    chosen = {
        name: measure
        for name, measure in measures(producers, consumers, options.records).items()
        if any(word in name for word in options.only.split(","))
    }
    with Arena(options.dir) as folder:
        brokers: list[Any] = [Local(folder), OnRay(folder), Kafka(folder)]
        with brokers[0], brokers[1], brokers[2]:
            found = run(brokers, chosen, options.rounds)
    show(found, table_console())
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
