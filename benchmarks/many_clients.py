"""Many small clients: what a request costs, beside Apache Kafka 4.1.1 on this machine.

    python -m bradbury.benchmarks.many_clients [--producers 16,64] [--rounds 5] [--only WORD]
        [--json figures.json]

Three brokers take turns, round by round: `local()` in a process of its own, `bradbury up` with its
defaults on an embedded Ray, and Kafka as one KRaft node with 1 GB of heap. Whose turn it is not
stands still. The producers are librdkafka's, in this process; four partitions, records of 200 B:

    one record     linger 0, a request for each record, five in flight: what the request costs
    lz4, snappy    the same, compressed
    linger         librdkafka's own linger of 5 ms
    idle polls     1,000 consumers whose fetches find nothing: the CPU that waiting costs

A ratio is the median of the rounds' ratios to Kafka. Broker and clients share the cores: the
producers' own CPU time a record is shown, as it bounds what any broker can reach here.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import psutil
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from .support.contestants import MAY_STAND_STILL, Arena, Bradbury, Contestant, Kafka, alone
from .support.librdkafka import PRODUCER, Client
from .support.measures import Goal, delete_topic, new_topic

PARTITIONS = 4
SIZE = 200
WARM_UP_ROUNDS = 2
IDLE_POLLS = 1_000
IDLE_SECONDS = 10.0
MAX_WAIT_MS = 500
ONE_RECORD = {
    "acks": "1",
    "linger.ms": "0",
    "batch.num.messages": "1",
    "max.in.flight.requests.per.connection": "5",
}
SETTINGS = {
    "one record": ONE_RECORD,
    "lz4": {**ONE_RECORD, "compression.codec": "lz4"},
    "snappy": {**ONE_RECORD, "compression.codec": "snappy"},
    "linger": {"acks": "1"},
}
GOALS = {
    ("up", "one record", "rate"): Goal(">=", 1.5),
    ("up", "lz4", "rate"): Goal(">=", 1.5),
    ("up", "snappy", "rate"): Goal(">=", 1.5),
    ("up", "linger", "rate"): Goal(">=", 1.2),
    ("local()", "one record", "rate"): Goal(">=", 1.0),
    ("up", "one record", "CPU"): Goal("<=", 0.5),
    ("local()", "one record", "CPU"): Goal("<=", 0.5),
}


class OnRay(Contestant):
    """`bradbury up` with its defaults."""

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


class Found(NamedTuple):
    """rate: records a second. cpu: the broker's, microseconds a record. client_cpu: ours."""

    rate: float
    cpu: float
    client_cpu: float


def produce_all(broker: Contestant, clients: list[Client], count: int) -> Found:
    """`count` records of each client at once, until all are acknowledged."""
    total = count * len(clients)
    threads = [threading.Thread(target=each.produce, args=(count, SIZE)) for each in clients]
    cpu, own, began = broker.cpu_seconds(), time.process_time(), time.perf_counter()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    seconds = time.perf_counter() - began
    spent = broker.cpu_seconds() - cpu
    client = time.process_time() - own
    return Found(total / seconds, spent * 1e6 / total, client * 1e6 / total)


def measure_producers(
    broker: Contestant, topic: str, settings: dict[str, str], producers: int, total: int
) -> Found:
    new_topic(broker, topic, PARTITIONS)
    clients = [
        Client(PRODUCER, broker.bootstrap_servers, topic, settings, partition=each % PARTITIONS)
        for each in range(producers)
    ]
    try:
        produce_all(broker, clients, 20)  # connected
        return produce_all(broker, clients, total // producers)
    finally:
        for each in clients:
            each.close()
        delete_topic(broker, topic)


def fetch_request(topic: str) -> bytes:
    """Fetch v4 of partition 0 from its end on, which waits for MAX_WAIT_MS; framed."""
    name = topic.encode()
    body = struct.pack(">hhih", 1, 4, 7, -1)
    body += struct.pack(">iiiibi", -1, MAX_WAIT_MS, 1, 1_000_000, 0, 1)
    body += struct.pack(">h", len(name)) + name + struct.pack(">iiqi", 1, 0, 0, 1_000_000)
    return struct.pack(">i", len(body)) + body


def leader_of_first(broker: Contestant, topic: str) -> tuple[str, int]:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 4})
    metadata = admin.list_topics(topic, timeout=30)
    leader = metadata.brokers[metadata.topics[topic].partitions[0].leader]
    return leader.host, leader.port


def measure_idle_polls(broker: Contestant, topic: str) -> float:
    """Share of a core that IDLE_POLLS connections cost, each with a fetch that finds nothing."""
    new_topic(broker, topic)
    address, request = leader_of_first(broker, topic), fetch_request(topic)
    sockets = [socket.create_connection(address, timeout=30) for _ in range(IDLE_POLLS)]
    ended = threading.Event()

    def poll(mine: list[socket.socket]) -> None:
        while not ended.is_set():
            for each in mine:
                each.sendall(request)
            for each in mine:
                (size,) = struct.unpack(">i", _receive(each, 4))
                _receive(each, size)

    threads = [threading.Thread(target=poll, args=(sockets[start::4],)) for start in range(4)]
    try:
        for thread in threads:
            thread.start()
        time.sleep(2)
        cpu = broker.cpu_seconds()
        time.sleep(IDLE_SECONDS)
        return (broker.cpu_seconds() - cpu) / IDLE_SECONDS
    finally:
        ended.set()
        for thread in threads:
            thread.join()
        for each in sockets:
            each.close()
        delete_topic(broker, topic)


def _receive(source: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = source.recv(size - len(found))
        if not more:
            raise ConnectionError("the broker has closed the connection")
        found += more
    return found


Rounds = dict[str, dict[str, list[float]]]
"""What was measured, by measure and broker, a figure for each round."""


def run(
    brokers: list[Contestant], producers: list[int], rounds: int, total: int, only: str
) -> Rounds:
    found: Rounds = {}
    measures: list[tuple[str, Callable[[Contestant, str], dict[str, float]]]] = []
    for count in producers:
        for word, settings in SETTINGS.items():

            def produce(
                broker: Contestant,
                topic: str,
                settings: dict[str, str] = settings,
                count: int = count,
            ) -> dict[str, float]:
                records = total * 5 if "batch.num.messages" not in settings else total
                return measure_producers(broker, topic, settings, count, records)._asdict()

            measures.append((f"{count} producers, {word}", produce))
    measures.append(
        ("idle polls", lambda broker, topic: {"cpu": measure_idle_polls(broker, topic)})
    )
    measures = [each for each in measures if only in each[0]]
    with Progress(console=Console(stderr=True), transient=True) as progress:
        steps = len(measures) * (rounds + WARM_UP_ROUNDS) * len(brokers)
        task = progress.add_task("", total=steps)
        for name, measure in measures:
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
    for (name, word, kind), goal in GOALS.items():
        ends = measure.endswith(f"{word}: rate" if kind == "rate" else f"{word}: cpu")
        if name == broker and ends:
            return goal
    return None


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
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=100_000, help="of each round")
    parser.add_argument("--only", default="", help="only measures with this word")
    parser.add_argument("--dir", help="where all keep their data")
    parser.add_argument("--json", type=Path, help="write all figures into this file")
    options = parser.parse_args()
    producers = [int(word) for word in options.producers.split(",")]
    with Arena(options.dir) as folder:
        brokers: list[Any] = [Local(folder), OnRay(folder), Kafka(folder)]
        with brokers[0], brokers[1], brokers[2]:
            found = run(brokers, producers, options.rounds, options.records, options.only)
    show(found, Console())
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
