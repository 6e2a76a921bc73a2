"""Throughput of one partition actor with librdkafka as the client.

    python -m bradbury.benchmarks.broker [--rounds 5]

The broker is a separate process (a local() cluster), the client is librdkafka's batch calls (see
librdkafka.py). It prints median and best of the rounds, and CPU time and memory of the broker. Both
share this machine's cores, so the client's own work is part of every figure.
"""

from __future__ import annotations

import argparse
import statistics

from .support.contestants import Arena, Bradbury
from .support.librdkafka import drain_library
from .support.measures import BIG_BATCHES, Throughput, consume, produce


def report(name: str, size: int, rounds: list[Throughput]) -> None:
    small = size < 1000
    rates = [one.records_per_second / 1e6 if small else one.megabytes_per_second for one in rounds]
    unit = "M records/s" if small else "MB/s"
    cpu = statistics.median(one.broker_cpu for one in rounds)
    print(
        f"{name:24} median {statistics.median(rates):8.2f}  best {max(rates):8.2f} {unit}"
        f"   broker CPU {cpu:5.2f} s/GB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    drain_library()
    with Arena(None) as folder, Bradbury(folder) as broker:
        for size, count in ((100, 3_000_000), (1000, 500_000)):
            topics = [f"in-{size}-{number}" for number in range(rounds)]
            produced = [produce(broker, topic, size, count, BIG_BATCHES) for topic in topics]
            report(f"produce {size} B", size, produced)
            consumed = [consume(broker, topic, size, count) for topic in topics]
            report(f"consume {size} B", size, consumed)
        print(f"broker memory            {broker.rss_bytes() / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
