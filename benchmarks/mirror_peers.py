"""A mirror compared with MirrorMaker 2 of Apache Kafka 4.1.1: speed, CPU, and latency.

    python -m bradbury.benchmarks.mirror_peers [--records 400000] [--seconds 10] [--rounds 3]
        [--exactly-once] [--json figures.json]

The source is an Apache Kafka with a topic of 8 partitions, records of 1 KB; the target is a
Bradbury node for both. Each is a process of its own, and so is each mirror, by its command line:
both continuous, with two workers at most. In each round the two take turns, each on topics of its
own; while one runs there is no process of the other.

First the backlog is copied: MB/s and CPU of the mirror from the first record written to the target
to the last one committed there. Then 1,000 records a second are produced, and the age of each is
measured when a consumer of the target receives it. Both copy at least once, without transactions,
which is MirrorMaker 2's default; with --exactly-once ours uses transactions.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.progress import Progress

from bradbury.cli.bench.bench_figures import percentiles
from bradbury.cli.bench.bench_runs import Pace
from bradbury.cli.terminal.output import table_console
from bradbury.tests.compatibility.support.kafka_jars import CONNECT, java_command

from .support.contestants import Arena, Bradbury, Kafka
from .support.measures import Goal
from .support.rounds import Figures, json_of, show

PARTITIONS = 8
RECORD_BYTES = 1_000
RATE = 1_000
WORKERS = 2
WAIT_SECONDS = 300.0
ALIAS = "near"
# As set by Kafka's own connect-mirror-maker.sh.
JAVA_OPTIONS = ("-Xms256m", "-Xmx2g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
GOALS = {
    "MB/s": Goal(">=", 2),
    "CPU s/GB": Goal("<=", 0.3),
    "age p99, ms": Goal("<=", 1),
}


def fill(servers: str, topic: str, records: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(60)
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 50,
            "batch.size": 500_000,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 400_000,
        }
    )
    value = np.random.default_rng(1).bytes(RECORD_BYTES)
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(WAIT_SECONDS)


@contextmanager
def mirror_of_ours(
    source: str, target: str, topic: str, folder: Path, *options: str
) -> Iterator[psutil.Process]:
    command = [sys.executable, "-m", "bradbury.cli", "mirror", topic, "--from", source]
    command += ["--alias", ALIAS, "--continuous", "--bootstrap", target, *options]
    with _running(command, folder / "ours.out") as process:
        yield process


@contextmanager
def mirror_maker(source: str, target: str, topic: str, folder: Path) -> Iterator[psutil.Process]:
    one_replica = (
        "replication.factor",
        "offset-syncs.topic.replication.factor",
        "offset.storage.replication.factor",
        "status.storage.replication.factor",
        "config.storage.replication.factor",
    )
    settings: dict[str, object] = {
        "clusters": f"{ALIAS},far",
        f"{ALIAS}.bootstrap.servers": source,
        "far.bootstrap.servers": target,
        f"{ALIAS}->far.enabled": "true",
        f"{ALIAS}->far.topics": topic,
        f"{ALIAS}->far.emit.checkpoints.enabled": "false",
        f"{ALIAS}->far.emit.heartbeats.enabled": "false",
        f"far->{ALIAS}.emit.heartbeats.enabled": "false",
        "tasks.max": WORKERS,
        **dict.fromkeys(one_replica, 1),
    }
    file = folder / "mirror-maker.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    command = java_command(main, str(file), options=JAVA_OPTIONS, jars=CONNECT)
    with _running(command, folder / "mirror-maker.out") as process:
        yield process


@contextmanager
def _running(command: list[str], said: Path) -> Iterator[psutil.Process]:
    with open(said, "wb") as output:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield psutil.Process(child.pid)
        if child.poll() is not None:
            raise RuntimeError(f"the mirror has ended: {said.read_text()[-2_000:]}")
    finally:
        child.terminate()
        child.wait(60)


class Target:
    """The mirrored topic, as seen by consumers."""

    def __init__(self, servers: str, topic: str) -> None:
        self._topic = topic
        settings = {
            "bootstrap.servers": servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 500,
        }
        self._consumer = Consumer(settings)
        self._looking = Consumer({**settings, "isolation.level": "read_uncommitted"})

    def wait_until_it_is_there(self, process: psutil.Process) -> None:
        def is_there() -> bool:
            topics = self._consumer.list_topics(timeout=60).topics
            return self._topic in topics and len(topics[self._topic].partitions) == PARTITIONS

        _wait(is_there, process)

    def written(self) -> int:
        """Number of written offsets, including transaction markers and uncommitted records."""
        return self._ends(self._looking)

    def committed(self) -> int:
        return self._ends(self._consumer)

    def _ends(self, consumer: Consumer) -> int:
        places = [TopicPartition(self._topic, number) for number in range(PARTITIONS)]
        return sum(consumer.get_watermark_offsets(place, timeout=60)[1] for place in places)

    def ages(self, count: int, process: psutil.Process) -> list[float]:
        """Ages in seconds of the next `count` records when they are received."""
        places = [TopicPartition(self._topic, number) for number in range(PARTITIONS)]
        ends = [self._consumer.get_watermark_offsets(place, timeout=60)[1] for place in places]
        self._consumer.assign(
            [TopicPartition(self._topic, number, end) for number, end in enumerate(ends)]
        )
        found: list[float] = []

        def has_all() -> bool:
            while (record := self._consumer.poll(0.01)) is not None:
                if record.error() is not None:
                    raise KafkaException(record.error())
                found.append(time.time() - float(record.value()[:20]))
            return len(found) >= count

        _wait(has_all, process, pause=0.0)
        return found

    def close(self) -> None:
        self._consumer.close()
        self._looking.close()


def _wait(condition, process: psutil.Process, pause: float = 0.02) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            raise RuntimeError("the mirror has ended")
        if time.monotonic() > deadline:
            raise RuntimeError(f"the mirror did not finish within {WAIT_SECONDS:g} s")
        time.sleep(pause)


def send_steadily(servers: str, topic: str, seconds: float) -> subprocess.Popen[bytes]:
    """Start a process that sends records, each of which begins with the time."""
    program = (
        "import sys; from bradbury.benchmarks.mirror_peers import send; "
        "send(sys.argv[1], sys.argv[2], float(sys.argv[3]))"
    )
    return subprocess.Popen([sys.executable, "-c", program, servers, topic, str(seconds)])


def send(servers: str, topic: str, seconds: float) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    rest = b"x" * (RECORD_BYTES - 20)
    pace = Pace(RATE)
    for number in range(int(RATE * seconds)):
        pace.wait_for(number)
        producer.produce(topic, b"%20.9f" % time.time() + rest, partition=number % PARTITIONS)
        producer.poll(0)
    producer.flush(WAIT_SECONDS)


def measure(mirror, source: str, target: str, topic: str, arguments, folder: Path) -> dict:
    fill(source, topic, arguments.records)
    with mirror(source, target, topic, folder) as process:
        seen = Target(target, f"{ALIAS}.{topic}")
        try:
            seen.wait_until_it_is_there(process)
            _wait(lambda: seen.written() > 0, process, pause=0.0)
            first, began, cpu = seen.written(), time.perf_counter(), sum(process.cpu_times()[:2])
            _wait(lambda: seen.committed() >= arguments.records, process)
            took = time.perf_counter() - began
            cpu = sum(process.cpu_times()[:2]) - cpu
            copied = (arguments.records - first) * RECORD_BYTES
            time.sleep(2)  # the last transaction, and what follows a backlog
            producer = send_steadily(source, topic, arguments.seconds)
            try:
                ages = seen.ages(int(RATE * arguments.seconds), process)
            finally:
                producer.wait(WAIT_SECONDS)
        finally:
            seen.close()
    age = percentiles(np.array(ages) * 1000)
    return {
        "MB/s": copied / took / 1e6,
        "CPU s/GB": cpu / (copied / 1e9),
        "age p50, ms": age["p50"],
        "age p99, ms": age["p99"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--exactly-once", action="store_true", help="use transactions in the Bradbury mirror"
    )
    parser.add_argument("--folder", help="directory for the data of both")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    figures = Figures()
    options = [] if arguments.exactly_once else ["--at-least-once"]
    mirrors = {
        "Bradbury": lambda *where: mirror_of_ours(*where, *options),
        "Kafka": mirror_maker,
    }
    with (
        Arena(arguments.folder) as folder,
        Kafka(folder) as source,
        Bradbury(folder) as target,
        Progress(console=Console(stderr=True), transient=True) as progress,
    ):
        task = progress.add_task("", total=2 * (arguments.rounds + 1))
        for number in range(arguments.rounds + 1):
            found = {}
            for name in mirrors if number % 2 else reversed(mirrors):
                progress.update(task, description=name, advance=1)
                topic = f"{name.lower()}-{number}"
                servers = source.bootstrap_servers, target.bootstrap_servers
                found[name] = measure(mirrors[name], *servers, topic, arguments, folder)
                for each, written in zip(servers, (topic, f"{ALIAS}.{topic}"), strict=True):
                    admin = AdminClient({"bootstrap.servers": each})
                    admin.delete_topics([written])[written].result(60)
            if number:  # the first round warms both up
                figures.add(found)
    show(figures, GOALS, table_console())
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(json_of(figures, GOALS), indent=1))


if __name__ == "__main__":
    main()
