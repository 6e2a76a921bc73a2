"""Throughput of the Ray-native clients against one broker process.

    python -m bradbury.benchmarks.producer_consumer [--records 2000000] [--size 100]
        [--bootstrap host:port] [--partitions 1] [--codec none]

Without --bootstrap a broker runs in its own process on this machine, so producer or consumer
and broker share its cores. Each figure is the best and the median of five rounds, from the first
call to the last acknowledgement or record: the measurements of `bradbury bench`, and iteration.
"""

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable, Iterator

import bradbury
from bradbury.cli.bench.bench_runs import consume_run, no_progress, produce_run
from bradbury.protocol.columns.columns import warm_up

from .support.contestants import Arena, Bradbury

ROUNDS = 5
KEYS = 1_000
SINGLE = 500_000
"""Most records that are sent or read one by one."""
SAMPLES = 1_000
TIMEOUT_SECONDS = 60.0


@contextlib.contextmanager
def broker(bootstrap: str | None) -> Iterator[str]:
    if bootstrap is not None:
        yield bootstrap
        return
    with Arena(None) as folder, Bradbury(folder) as started:
        yield started.bootstrap_servers


def report(name: str, records: int, size: int, run: Callable[[], float]) -> None:
    """Print the results of ROUNDS rounds. run: runs one round; returns its seconds."""
    seconds = [run() for _ in range(ROUNDS)]
    best, median = records / min(seconds), records / statistics.median(seconds)
    print(
        f"{name:<32} {best / 1e6:6.2f} M records/s best, {median / 1e6:6.2f} median, "
        f"{best * size / 1e6:7.0f} MB/s best"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--size", type=int, default=100, help="size of a value in bytes")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--bootstrap")
    options = parser.parse_args()
    warm_up()
    with broker(options.bootstrap) as bootstrap, bradbury.Admin(bootstrap) as admin:
        run(bootstrap, admin, options)


def run(bootstrap: str, admin: bradbury.Admin, options: argparse.Namespace) -> None:
    count, size = options.records, options.size
    single = min(count, SINGLE)
    topic = f"benchmark-{time.time_ns()}"
    admin.create_topic(topic, options.partitions)
    with bradbury.Producer(bootstrap, compression_type=options.codec) as producer:

        def produce(records: int, columns: bool, key_count: int) -> float:
            return produce_run(
                producer,
                topic,
                records=records,
                size=size,
                throughput=None,
                columns=columns,
                advance=no_progress,
                key_count=key_count,
                most_samples=SAMPLES,
            ).seconds

        produce(min(count, 10_000), True, 0)
        report("send_batch", count, size, lambda: produce(count, True, 0))
        report("send_batch, keys", count, size, lambda: produce(count, True, KEYS))
        report("send", single, size, lambda: produce(single, False, 0))
        report("send, keys", single, size, lambda: produce(single, False, KEYS))

    def consumer() -> bradbury.Consumer:
        return bradbury.Consumer(topic, bootstrap=bootstrap, auto_offset_reset="earliest")

    def poll() -> float:
        with consumer() as polled:
            return consume_run(
                polled, topic, records=count, timeout=TIMEOUT_SECONDS, advance=no_progress
            ).seconds

    def iterate() -> float:
        began = time.perf_counter()
        with consumer() as iterated:
            for number, _ in enumerate(iterated, 1):
                if number == single:
                    break
        return time.perf_counter() - began

    report("poll", count, size, poll)
    report("iterate", single, size, iterate)
    admin.delete_topic(topic)


if __name__ == "__main__":
    main()
