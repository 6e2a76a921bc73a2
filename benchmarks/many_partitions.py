"""Many partitions on one node: time to create and open them, memory, descriptors and CPU.

    python -m bradbury.benchmarks.many_partitions [--partitions 10000]

storage alone: LogDirectory with a few records in every log; open after a kill (nothing closed, no
clean mark) and after a clean stop. Each start runs in its own process, so that memory is its
own. local(): one CreateTopics over the wire, metadata, CPU of the idle node, and produce to one
partition of the many next to a topic with one partition, in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import bradbury
from bradbury.protocol.records.records import encode_records
from bradbury.storage.directories.log_directory import LogDirectory
from bradbury.storage.disk.file_system import OsFileSystem
from bradbury.storage.log_config import LogConfig

IDLE_SECONDS = 10.0
PRODUCE_SECONDS = 2.0
ROUNDS = 5
MESSAGE = b"x" * 1000


def memory_mb() -> float:
    """Resident memory of this process, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# --- storage alone --------------------------------------------------------------------------------


def make(path: str, partitions: int) -> dict[str, float]:
    """Create the logs, and end the process without closing anything, as a kill does."""
    directory = LogDirectory.open(OsFileSystem(), path, directory_id="d")
    directory.load_logs(lambda topic: LogConfig(), now_ms=1)
    begun = time.perf_counter()
    for number in range(partitions):
        log = directory.make_log("t", number, UUID(int=1), LogConfig())
        directory.logs["t", number] = log
    made = time.perf_counter() - begun
    for log in directory.logs.values():
        log.local.assign_epoch(0)
        for number in range(3):
            batch = encode_records(
                [(1, b"key", b"value", ())], producer_id=1, producer_epoch=0, base_sequence=number
            )
            log.append_as_leader(batch, leader_epoch=0, now_ms=1)
    print(json.dumps({"make seconds": made}), flush=True)
    os._exit(0)


def open_all(path: str, partitions: int) -> dict[str, float]:
    before, files = memory_mb(), descriptors()
    begun = time.perf_counter()
    directory = LogDirectory.open(OsFileSystem(), path, directory_id="d")
    directory.load_logs(lambda topic: LogConfig(), now_ms=1)
    seconds = time.perf_counter() - begun
    assert len(directory.logs) == partitions
    facts = {
        "clean": float(directory.was_clean),
        "open seconds": seconds,
        "MB": memory_mb() - before,
        "descriptors": descriptors() - files,
    }
    begun = time.perf_counter()
    work = directory.checkpoints.begin()
    facts["begin checkpoint ms"] = (time.perf_counter() - begun) * 1e3
    if work is not None:
        begun = time.perf_counter()
        work.run()
        facts["write checkpoint ms"] = (time.perf_counter() - begun) * 1e3
    begun = time.perf_counter()
    directory.checkpoints.begin()
    facts["begin unchanged checkpoint ms"] = (time.perf_counter() - begun) * 1e3
    begun = time.perf_counter()
    directory.close(clean=True)
    facts["close seconds"] = time.perf_counter() - begun
    return facts


# --- through local() ------------------------------------------------------------------------------


def serve(path: str, partitions: int) -> dict[str, float]:
    facts: dict[str, float] = {}
    begun = time.perf_counter()
    with bradbury.local(path) as cluster:
        facts["start seconds"] = time.perf_counter() - begun
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        names = admin.list_topics(timeout=30).topics
        if "many" not in names:
            begun = time.perf_counter()
            new = [NewTopic("many", partitions, 1), NewTopic("one", 1, 1)]
            for future in admin.create_topics(new, operation_timeout=300).values():
                future.result(300)
            facts["create seconds"] = time.perf_counter() - begun
        begun = time.perf_counter()
        found = admin.list_topics(timeout=60).topics["many"]
        facts["metadata ms"] = (time.perf_counter() - begun) * 1e3
        assert len(found.partitions) == partitions
        facts["MB"] = memory_mb()
        facts["descriptors"] = descriptors()
        cpu, begun = time.process_time(), time.perf_counter()
        time.sleep(IDLE_SECONDS)
        idle = (time.process_time() - cpu) / (time.perf_counter() - begun)
        facts["idle CPU, % of a core"] = 100 * idle
        facts |= produce_in_turns(cluster.bootstrap_servers, partitions)
        begun = time.perf_counter()
    facts["stop seconds"] = time.perf_counter() - begun
    return facts


def produce_in_turns(servers: str, partitions: int) -> dict[str, float]:
    rates: dict[str, list[float]] = {"one": [], "many": []}
    for round_number in range(ROUNDS):
        for topic, partition in (("one", 0), ("many", partitions // 2)):
            rate = produce(servers, topic, partition)
            if round_number:
                rates[topic].append(rate)
    one, many = (statistics.median(rates[topic]) for topic in ("one", "many"))
    return {"produce to one of one MB/s": one, "produce to one of many MB/s": many}


def produce(servers: str, topic: str, partition: int) -> float:
    """MB/s of a producer that knows only this topic."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "acks": 1})
    producer.produce(topic, MESSAGE, partition=partition)
    producer.flush(30)
    count = 0
    begun = time.perf_counter()
    while time.perf_counter() - begun < PRODUCE_SECONDS:
        for _ in range(1000):
            try:
                producer.produce(topic, MESSAGE, partition=partition)
            except BufferError:
                producer.poll(0.01)
                continue
            count += 1
        producer.poll(0)
    producer.flush(60)
    return count * len(MESSAGE) / (time.perf_counter() - begun) / 1e6


# --- running --------------------------------------------------------------------------------------

STEPS: dict[str, Callable[[str, int], dict[str, float]]] = {
    "make": make,
    "open": open_all,
    "serve": serve,
}


def run(step: str, path: str, partitions: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "bradbury.benchmarks.many_partitions", "--step", step]
    command += ["--path", path, "--partitions", str(partitions)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    facts: dict[str, Any] = json.loads(said.splitlines()[-1])
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--step", choices=STEPS)
    parser.add_argument("--path")
    parser.add_argument("--only", choices=["storage", "local"])
    arguments = parser.parse_args()
    if arguments.step:
        print(json.dumps(STEPS[arguments.step](arguments.path, arguments.partitions)))
        return
    folder = tempfile.mkdtemp(prefix="bradbury-many-")
    try:
        plan = [("storage", "make"), ("storage", "open"), ("storage", "open")]
        plan += [("local", "serve"), ("local", "serve")]
        for kind, step in plan:
            if arguments.only in (None, kind):
                facts = run(step, f"{folder}/{kind}", arguments.partitions)
                print(f"{kind} {step}")
                for name, value in facts.items():
                    print(f"    {name:32} {value:10.2f}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
