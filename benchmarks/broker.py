"""One partition actor's throughput with librdkafka as the client. Run by hand:

    python benchmarks/broker.py [--rounds 5]

The broker is a process of its own (a local() cluster), the client is librdkafka called by the batch
(see librdkafka.py). Printed are median and best of the rounds, and what CPU time and memory the
broker took. Both share this machine's cores, so the client's own work is part of every figure.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
from multiprocessing.connection import Connection

import psutil
from librdkafka import CONSUMER, PRODUCER, Client, drain_library

PRODUCER_SETTINGS = {
    "linger.ms": "20",
    "batch.size": "1000000",
    "batch.num.messages": "100000",
    "queue.buffering.max.messages": "500000",
    "queue.buffering.max.kbytes": "1000000",
    "acks": "1",
}
CONSUMER_SETTINGS = {
    "group.id": "benchmark",
    "queued.min.messages": "1000000",
    "queued.max.messages.kbytes": "500000",
    "fetch.message.max.bytes": "4000000",
    "check.crcs": "false",
}


def serve(pipe: Connection) -> None:
    import bradbury

    with bradbury.local() as cluster:
        pipe.send(cluster.bootstrap_servers)
        pipe.recv()


def report(name: str, amounts: list[float], unit: str, cpu: float, gigabytes: float) -> None:
    print(
        f"{name:24} median {statistics.median(amounts):8.2f}  best {max(amounts):8.2f} {unit}"
        f"   broker CPU {cpu / gigabytes:5.2f} s/GB"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    context = multiprocessing.get_context("spawn")
    drain_library()
    pipe, other = context.Pipe()
    process = context.Process(target=serve, args=(other,))
    process.start()
    servers = pipe.recv()
    broker = psutil.Process(process.pid)

    def cpu() -> float:
        times = broker.cpu_times()
        return times.user + times.system

    try:
        for size, count in ((100, 3_000_000), (1000, 500_000)):
            gigabytes = size * count / 1e9
            rates, spent = [], []
            for number in range(rounds):
                client = Client(PRODUCER, servers, f"in-{size}-{number}", PRODUCER_SETTINGS)
                client.produce(1000, size)
                before = cpu()
                seconds = client.produce(count, size)
                spent.append(cpu() - before)
                client.close()
                rates.append(count / seconds / 1e6 if size == 100 else gigabytes * 1e3 / seconds)
            unit = "M records/s" if size == 100 else "MB/s"
            report(f"produce {size} B", rates, unit, statistics.median(spent), gigabytes)
            rates, spent = [], []
            for number in range(rounds):
                client = Client(CONSUMER, servers, f"in-{size}-{number}", CONSUMER_SETTINGS)
                before = cpu()
                seconds = client.consume(count)
                spent.append(cpu() - before)
                client.close()
                rates.append(count / seconds / 1e6 if size == 100 else gigabytes * 1e3 / seconds)
            report(f"consume {size} B", rates, unit, statistics.median(spent), gigabytes)
        print(f"broker memory            {broker.memory_info().rss / 1e6:.0f} MB")
    finally:
        pipe.send(None)
        process.join()


if __name__ == "__main__":
    main()
