"""Three replicas, three nodes: Bradbury and Apache Kafka 4.1.1, side by side. Run by hand:

    python -m bradbury.benchmarks.versus_kafka_replicated [--blocks 2] [--rounds 3]
        [--moves 10] [--kills 5] [--json figures.json]

Both have three nodes on this machine, with their data on the same disk. Throughput is measured in
blocks of rounds, in which each has the machine for itself: three idle nodes of the other would use
part of two cores. Producers wait for all replicas in sync (acks=all,
min.insync.replicas=2). Then both run and take turns: under an idempotent producer the leader is
moved to another node by a planned move (another first replica, ElectLeaders), and finally the
process of the leader is killed (kill -9): the figures are the longest time between two
acknowledgements. The nodes and a client share two cores here, so these are ratios.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, TopicPartition as KafkaPartition
from rich.table import Table

from bradbury.cli.terminal.output import table_console

from .support.contestants import Arena
from .support.librdkafka import drain_library
from .support.measures import BIG_BATCHES, Goal, Turns, consume, new_topic, produce
from .support.replicated_contestants import Replicated, ReplicatedBradbury, ReplicatedKafka
from .support.small_producers import ONE_RECORD, measure_producers

ALL = {**BIG_BATCHES, "acks": "all"}
SMALL = {**ONE_RECORD, "acks": "all"}
SMALL_PRODUCERS = 16
WARM_UP_ROUNDS = 2
TOPIC = {"min.insync.replicas": "2"}
GOALS = {
    "produce 100 B, records/s": Goal(">=", 1.5),
    "produce 1 KB, MB/s": Goal(">=", 2.0),
    "16 producers, one record, records/s": Goal(">=", 1.2),
}


def throughput(broker: Replicated, turns: Turns, name: str) -> dict[str, float]:
    found = {}
    for size, count, label in ((100, 2_000_000, "100 B"), (1_000, 400_000, "1 KB")):
        topic = turns.next(broker, f"{name}-{size}", replicas=3, config=TOPIC)
        sent = produce(broker, topic, size, count, ALL)
        read = consume(broker, topic, size, count)
        by_count = size == 100
        unit = "records/s" if by_count else "MB/s"
        for verb, one in (("produce", sent), ("consume", read)):
            rate = one.records_per_second if by_count else one.megabytes_per_second
            found[f"{verb} {label}, {unit}"] = rate
            found[f"{verb} {label}, CPU s/GB"] = one.broker_cpu
    small = measure_producers(
        broker, f"{name}-small", SMALL, SMALL_PRODUCERS, 40_000, replicas=3, config=TOPIC
    )
    found[f"{SMALL_PRODUCERS} producers, one record, records/s"] = small.rate
    found[f"{SMALL_PRODUCERS} producers, one record, CPU us a record"] = small.cpu
    return found


def block(broker: Replicated, rounds: int) -> list[dict[str, float]]:
    """Figures of the rounds of one broker alone, without the first ones, which warm it up."""
    with broker:
        turns = Turns()
        numbers = range(rounds + WARM_UP_ROUNDS)
        found = [throughput(broker, turns, f"round-{number}") for number in numbers]
    return found[WARM_UP_ROUNDS:]


def longest_gap(
    broker: Replicated,
    topic: str,
    disturb: Callable[[Replicated, str], None],
    *,
    seconds: float,
) -> float:
    """Longest time without an acknowledgement, from `disturb` until `seconds` after it."""
    times: list[float] = []
    stopping = threading.Event()

    def send() -> None:
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": 60_000,
            }
        )
        while not stopping.is_set():
            producer.produce(
                topic,
                b"x" * 100,
                partition=0,
                on_delivery=lambda error, _: error or times.append(time.monotonic()),
            )
            producer.poll(0.005)
        producer.flush(60)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        time.sleep(2)
        began = time.monotonic()
        disturb(broker, topic)
        while time.monotonic() - began < 20:
            time.sleep(0.2)
            if times and times[-1] - began > seconds:
                break
    finally:
        stopping.set()
        thread.join()
    after = [each for each in times if each > began - 0.5]
    broker.settle()
    return max(later - earlier for earlier, later in itertools.pairwise(after))


def kill_the_leader(broker: Replicated, topic: str) -> None:
    broker.kill(replicas_of(broker, topic)[0])


def move_the_leader(broker: Replicated, topic: str) -> None:
    """Move the leader to the second replica, which becomes the first."""
    leader, replicas = replicas_of(broker, topic)
    others = [node for node in replicas if node != leader]
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    admin.alter_partition_reassignments({KafkaPartition(topic, 0): [*others, leader]})
    admin.close()
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    client.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(10)
    while replicas_of(broker, topic)[0] != others[0]:
        time.sleep(0.01)


def replicas_of(broker: Replicated, topic: str) -> tuple[int, list[int]]:
    """Leader of partition 0, and its replicas in their order."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    found = admin.list_topics(topic, timeout=10).topics[topic].partitions[0]
    return found.leader, list(found.replicas)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--moves", type=int, default=10)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--dir")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    console = table_console()
    drain_library()
    pairs: dict[str, list[tuple[float, float]]] = {}
    kinds: list[type[ReplicatedBradbury | ReplicatedKafka]] = [ReplicatedBradbury, ReplicatedKafka]
    for number in range(options.blocks):
        found = {}
        for kind in kinds if number % 2 else reversed(kinds):
            with Arena(options.dir) as folder:
                found[kind.name] = block(kind(folder), options.rounds)
        for mine, other in zip(found["Bradbury"], found["Kafka"], strict=True):
            for name, value in mine.items():
                pairs.setdefault(name, []).append((value, other[name]))
    with (
        Arena(options.dir) as folder,
        ReplicatedBradbury(folder) as ours,
        ReplicatedKafka(folder) as theirs,
    ):
        for each in (ours, theirs):
            new_topic(each, "gaps", replicas=3, config=TOPIC)
        for label, times, disturb, seconds in (
            ("longest gap of a planned move, s", options.moves, move_the_leader, 2.0),
            ("longest gap after kill -9, s", options.kills, kill_the_leader, 8.0),
        ):
            for _ in range(times):
                gaps = [
                    longest_gap(each, "gaps", disturb, seconds=seconds) for each in (ours, theirs)
                ]
                pairs.setdefault(label, []).append((gaps[0], gaps[1]))
        memory = (ours.rss_bytes() / 1e6, theirs.rss_bytes() / 1e6)
        pairs["memory of all nodes, MB"] = [memory]
        pairs["start, s"] = [(ours.start_seconds, theirs.start_seconds)]
    table = Table("measure", "Bradbury", "Kafka", "ratio", "goal", title="median of the rounds")
    for name, values in pairs.items():
        ratio = statistics.median(left / right for left, right in values)
        left, right = (statistics.median(side) for side in zip(*values, strict=True))
        goal = GOALS.get(name)
        table.add_row(
            name, f"{left:,.2f}", f"{right:,.2f}", f"{ratio:.2f}", "" if goal is None else str(goal)
        )
    console.print(table)
    if options.json is not None:
        options.json.write_text(json.dumps(pairs, indent=1))


if __name__ == "__main__":
    main()
