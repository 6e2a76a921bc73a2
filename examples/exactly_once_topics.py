"""Exactly once from topic to topic: what a function returns is committed together with its offsets.

    python examples/exactly_once_topics.py

Readings come in, copies and alarms go out, to two topics. Now and then a consumer actor dies by
kill -9, between two batches or while it writes. In the end each reading is there once for consumers
that read committed records only; those that read all see the aborted records, too.
Starts a small embedded Ray and ends it again.
"""

import os
import random
import signal
import tempfile
import threading
import time

import pyarrow as pa
import pyarrow.compute as pc

import bradbury

RECORDS = 20_000
DEATHS = 4


def judge(table: pa.Table) -> dict[str, pa.Table]:
    """A copy of each reading, and an alarm for each high one."""
    time.sleep(0.02)  # otherwise all would be done before a member has died
    readings = table.select(["key", "value"])
    numbers = pc.cast(pc.cast(readings.column("value"), pa.string()), pa.int64())
    return {"judged": readings, "alarms": readings.filter(pc.greater_equal(numbers, 19_000))}


def disturb(group: bradbury.ConsumerGroup, done: threading.Event) -> int:
    """Kill one member after another; returns how many."""
    deaths = 0
    while deaths < DEATHS and not done.wait(random.uniform(1.0, 2.5)):
        living = [member.pid for member in group.status().members if member.pid]
        if living:
            os.kill(random.choice(living), signal.SIGKILL)
            deaths += 1
    return deaths


def values_in(topic: str, isolation_level: str) -> list[bytes]:
    with bradbury.Consumer(
        topic, auto_offset_reset="earliest", isolation_level=isolation_level
    ) as consumer:
        ends = consumer.end_offsets()
        found: list[bytes] = []
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            found += consumer.poll(100).column("value").to_pylist()
    return found


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        bradbury.up(folder, port=0, address="local") as up,
    ):
        with up.admin() as admin:
            for topic in ("readings", "judged", "alarms"):
                admin.create_topic(topic, partitions=4)
        with bradbury.Producer() as producer:
            numbers = [(f"sensor-{number % 50}", str(number)) for number in range(RECORDS)]
            producer.send_batch("readings", numbers).result()
        with bradbury.ConsumerGroup(
            "readings",
            "judges",
            actors=2,
            exactly_once=True,
            batch_records=100,
            auto_offset_reset="earliest",
        ) as group:
            run = group.for_each(judge, stop_at_end=True)
            done, deaths = threading.Event(), []
            nemesis = threading.Thread(target=lambda: deaths.append(disturb(group, done)))
            nemesis.start()
            run.wait()
            done.set()
            nemesis.join()
        judged = values_in("judged", "read_committed")
        alarms = values_in("alarms", "read_committed")
        written = values_in("judged", "read_uncommitted")
        print(f"actors killed: {deaths[0]}")
        print(f"missing: {RECORDS - len(set(judged))}, twice: {len(judged) - len(set(judged))}")
        print(f"alarms: {len(alarms):,}")
        print(f"rows of transactions that the dead left: {len(written) - len(judged):,}")


if __name__ == "__main__":
    main()
