"""Duration of a start, and memory of a partition actor under load.

    python -m bradbury.benchmarks.start_and_memory

Starts `local()` seven times in fresh processes, then `up` on a fresh embedded Ray, and sends 3 GB
of records through its one partition actor while its memory is watched.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import psutil

import bradbury

from .support.librdkafka import PRODUCER, Client
from .support.measures import BIG_BATCHES

START = """
import time
begun = time.perf_counter()
import bradbury
imported = time.perf_counter()
cluster = bradbury.local()
print(imported - begun, time.perf_counter() - imported)
cluster.close()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--starts", type=int, default=7, help="number of starts of local(), each in a new process"
    )
    starts = parser.parse_args().starts
    times = []
    for _ in range(starts):
        ran = subprocess.run(
            [sys.executable, "-c", START], capture_output=True, text=True, check=True
        )
        times.append([float(word) for word in ran.stdout.split()])
    print(f"import bradbury   {1000 * statistics.median(t[0] for t in times):6.1f} ms median")
    print(f"local() ready     {1000 * statistics.median(t[1] for t in times):6.0f} ms median")
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        with bradbury.up(f"{folder}/data", address="local", port=0) as cluster:
            print(f"up, fresh Ray     {time.perf_counter() - started:6.1f} s")
            pid = next(
                actor["pid"]
                for actor in cluster.status()["actors"]
                if actor["actor"].startswith("partitions")
            )
            actor = psutil.Process(pid)
            idle = actor.memory_info().rss
            highest = idle
            done = threading.Event()

            def watch() -> None:
                nonlocal highest
                while not done.wait(0.05):
                    highest = max(highest, actor.memory_info().rss)

            watcher = threading.Thread(target=watch)
            watcher.start()
            for size, count in ((100, 10_000_000), (1000, 2_000_000)):
                client = Client(PRODUCER, cluster.bootstrap_servers, "load", BIG_BATCHES)
                client.produce(count, size)
                client.close()
            done.set()
            watcher.join()
            print(f"partition actor   {idle / 1e6:6.0f} MB idle, {highest / 1e6:.0f} MB at most")


if __name__ == "__main__":
    main()
