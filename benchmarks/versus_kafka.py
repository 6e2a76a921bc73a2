"""Bradbury and Apache Kafka 4.1.1, side by side on this machine. Run by hand:

    python -m bradbury.benchmarks.versus_kafka [--quick] [--rounds 5] [--only WORD]
        [--json figures.json]
        [--partitions 1,100,1000,10000]     one of this many partitions
        [--actors 1,2,4]                    Bradbury alone, on Ray

Both are started and ended here, with their data on the same disk (--dir), Kafka as one KRaft node
with 1 GB of heap and otherwise its defaults. They take turns, round by round, each first as often
as the other; the other one is suspended, as an idle JVM wakes up all the time. A ratio is the
median of the ratios of the rounds, so that a disk or a neighbour that is slow for a minute slows
both; before each measurement the disk is idle (sync). The client is the same, with the same
settings. Broker and client share this machine's cores: a note is printed if the client uses a whole
core.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bradbury.cli.terminal.output import table_console

from .support.contestants import Arena, Bradbury, Contestant, Kafka, alone
from .support.librdkafka import drain_library
from .support.measures import (
    BIG_BATCHES,
    SMALL_BATCHES,
    Goal,
    Throughput,
    consume,
    delete_topic,
    new_topic,
    produce,
    produce_by_several,
    produce_in_parallel,
    produce_latency,
    round_trip,
)
from .support.rounds import Figures, Measure, compare, json_of, show

GOALS = {
    "produce 100 B, records/s": Goal(">=", 1.5),
    "produce 100 B by two, records/s": Goal(">=", 1.5),
    "produce 1 KB, MB/s": Goal(">=", 2.5),
    "produce 1 KB, linger 0, MB/s": Goal(">=", 1.5),
    "consume 100 B, records/s": Goal(">=", 1.0),
    "consume 1 KB, MB/s": Goal(">=", 1.0),
    "produce 100 B, broker CPU s/GB": Goal("<=", 0.5),
    "produce 100 B by two, broker CPU s/GB": Goal("<=", 0.5),
    "produce 1 KB, broker CPU s/GB": Goal("<=", 0.5),
    "produce 1 KB, linger 0, broker CPU s/GB": Goal("<=", 0.5),
    "consume 100 B, broker CPU s/GB": Goal("<=", 1.0),
    "consume 1 KB, broker CPU s/GB": Goal("<=", 1.0),
    "produce latency p50, ms": Goal("<=", 1.0),
    "produce latency p99, ms": Goal("<=", 0.5),
    "round trip p50, ms": Goal("<=", 1.0),
    "round trip p99, ms": Goal("<=", 0.5),
    "memory after all, MB": Goal("<=", 0.5),
    "start, s": Goal("<=", 0.5),
}


def measures(*, quick: bool) -> dict[str, Measure]:
    """Measures by name; each is called with a new topic."""
    scale = 0.2 if quick else 1.0
    small, large = int(2_000_000 * scale), int(400_000 * scale)
    seconds = 2.0 if quick else 8.0

    def throughput(
        figures: Figures, name: str, found: Throughput, *, by_count: bool
    ) -> dict[str, float]:
        figures.client_cpu.setdefault(name, []).append(found.client_cpu)
        rate = found.records_per_second if by_count else found.megabytes_per_second
        unit = "records/s" if by_count else "MB/s"
        return {f"{name}, {unit}": rate, f"{name}, broker CPU s/GB": found.broker_cpu}

    def in_and_out(size: int, count: int, label: str) -> Measure:
        def run(broker: Contestant, topic: str, figures: Figures) -> dict[str, float]:
            by_count = size == 100
            sent = produce(broker, topic, size, count, BIG_BATCHES)
            read = consume(broker, topic, size, count)
            return {
                **throughput(figures, f"produce {label}", sent, by_count=by_count),
                **throughput(figures, f"consume {label}", read, by_count=by_count),
            }

        return run

    def two_clients(broker: Contestant, topic: str, figures: Figures) -> dict[str, float]:
        sent = produce_by_several(broker, topic, 100, 2 * small, BIG_BATCHES, clients=2)
        return throughput(figures, "produce 100 B by two", sent, by_count=True)

    def small_batches(broker: Contestant, topic: str, figures: Figures) -> dict[str, float]:
        sent = produce(broker, topic, 1_000, large // 2, SMALL_BATCHES)
        return throughput(figures, "produce 1 KB, linger 0", sent, by_count=False)

    def latency(broker: Contestant, topic: str, figures: Figures) -> dict[str, float]:
        found = produce_latency(broker, topic, seconds)
        return {"produce latency p50, ms": found.p50, "produce latency p99, ms": found.p99}

    def trip(broker: Contestant, topic: str, figures: Figures) -> dict[str, float]:
        found = round_trip(broker, topic, seconds)
        return {"round trip p50, ms": found.p50, "round trip p99, ms": found.p99}

    return {
        "100 B": in_and_out(100, small, "100 B"),
        "100 B by two clients": two_clients,
        "1 KB": in_and_out(1_000, large, "1 KB"),
        "linger 0": small_batches,
        "latency": latency,
        "round trip": trip,
    }


def compare_partitions(brokers: list[Contestant], counts: list[int], figures: Figures) -> None:
    """Compare the throughput to one partition of a topic with many."""
    for count in counts:
        for number in range(4):
            found: dict[str, dict[str, float]] = {}
            for broker in brokers if number % 2 else reversed(brokers):
                topic = f"partitions-{count}"
                with alone(broker, brokers):
                    if not number:
                        new_topic(broker, topic, count)
                    os.sync()
                    sent = produce(broker, topic, 100, 1_000_000, BIG_BATCHES)
                name = f"produce 100 B, one of {count} partitions, records/s"
                found[broker.name] = {name: sent.records_per_second}
            if number:
                figures.add(found)
        name = f"memory with {count} partitions, MB"
        figures.add({broker.name: {name: broker.rss_bytes() / 1e6} for broker in brokers})
        for broker in brokers:
            with alone(broker, brokers):
                delete_topic(broker, f"partitions-{count}")


def scale_actors(folder: Path, counts: list[int], console: Console) -> None:
    """Measure Bradbury alone, on an embedded Ray, with as many partition actors as clients."""
    import bradbury

    table = Table("partition actors", "clients", "records/s of 100 B", "MB/s")
    for count in counts:
        config = {"bradbury.partition.actors": str(count)}
        data = str(folder / f"actors-{count}")
        with bradbury.up(data, address="local", port=0, config=config) as cluster:
            with bradbury.Admin(cluster.bootstrap_servers) as admin:
                admin.create_topic("scale", count)
            rates = [
                produce_in_parallel(cluster.bootstrap_servers, "scale", count, 1_000_000)
                for _ in range(3)
            ]
        rate = statistics.median(rates)
        table.add_row(str(count), str(count), f"{rate:,.0f}", f"{rate / 1e4:,.0f}")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="run small measurements, one minute in all"
    )
    parser.add_argument("--rounds", type=int)
    parser.add_argument(
        "--only", action="append", help="run only measures with this word; repeatable"
    )
    parser.add_argument(
        "--partitions", help="measure these partition counts instead, as 1,100,1000"
    )
    parser.add_argument(
        "--actors", help="measure these numbers of partition actors instead, as 1,2,4"
    )
    parser.add_argument("--dir", help="directory for the data of both; a temporary one by default")
    parser.add_argument("--json", type=Path, help="file to write all figures to")
    options = parser.parse_args()
    console, figures = table_console(), Figures()
    drain_library()
    with Arena(options.dir) as folder:
        if options.actors:
            scale_actors(folder, [int(word) for word in options.actors.split(",")], console)
            return
        with Bradbury(folder) as ours, Kafka(folder) as theirs:
            brokers: list[Contestant] = [ours, theirs]
            if options.partitions:
                compare_partitions(
                    brokers, [int(word) for word in options.partitions.split(",")], figures
                )
            else:
                chosen = {
                    name: measure
                    for name, measure in measures(quick=options.quick).items()
                    if not options.only or any(word in name for word in options.only)
                }
                rounds = options.rounds or (2 if options.quick else 5)
                compare(brokers, chosen, rounds, figures)
            figures.add(
                {
                    one.name: {
                        "memory after all, MB": one.rss_bytes() / 1e6,
                        "start, s": one.start_seconds,
                    }
                    for one in brokers
                }
            )
    show(figures, GOALS, console)
    if options.json is not None:
        options.json.write_text(json.dumps(json_of(figures, GOALS), indent=1))


if __name__ == "__main__":
    main()
