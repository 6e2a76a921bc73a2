"""How fast are the Ray-native clients against one partition of one broker process?

    python -m bradbury.benchmarks.producer_consumer [--records 2000000] [--size 100]
        [--bootstrap host:port] [--partitions 1] [--codec none]

Without --bootstrap a broker runs in a process of its own on this machine, so producer or consumer
and broker share its cores. Each figure is the best and the median of five rounds, from the first
call to the last acknowledgement or record.
"""

import argparse
import contextlib
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator

import pyarrow as pa

import bradbury
from bradbury.protocol.columns.columns import warm_up

ROUNDS = 5


def serve(pipe: "multiprocessing.connection.Connection") -> None:
    with bradbury.local() as cluster:
        pipe.send(cluster.bootstrap_servers)
        pipe.recv()


@contextlib.contextmanager
def broker(bootstrap: str | None) -> Iterator[str]:
    if bootstrap is not None:
        yield bootstrap
        return
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,))
    process.start()
    yield ours.recv()
    ours.send(None)
    process.join()


def measure(name: str, records: int, size: int, work: Callable[[], None]) -> None:
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    best, median = records / min(seconds), records / statistics.median(seconds)
    print(
        f"{name:<32} {best / 1e6:6.2f} M records/s best, {median / 1e6:6.2f} median, "
        f"{best * size / 1e6:7.0f} MB/s best"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--bootstrap")
    options = parser.parse_args()
    warm_up()
    with broker(options.bootstrap) as bootstrap, bradbury.Admin(bootstrap) as admin:
        run(bootstrap, admin, options)


def run(bootstrap: str, admin: bradbury.Admin, options: argparse.Namespace) -> None:
    count, size = options.records, options.size
    topic = f"benchmark-{time.time_ns()}"
    admin.create_topic(topic, options.partitions)
    values = pa.array([b"x" * size]).take(pa.array([0] * count))
    keys = pa.array([b"%d" % (number % 1000) for number in range(count)])
    plain, keyed = pa.table({"value": values}), pa.table({"key": keys, "value": values})
    with bradbury.Producer(bootstrap, compression_type=options.codec) as producer:

        def send_all(records: int, key: bytes | None) -> None:
            value = b"x" * size
            for _ in range(records):
                producer.send(topic, value, key)
            producer.flush()

        single = min(count, 500_000)
        producer.send_batch(topic, plain.slice(0, 10_000)).result()
        measure("send_batch", count, size, lambda: producer.send_batch(topic, plain).result())
        measure("send_batch, keys", count, size, lambda: producer.send_batch(topic, keyed).result())
        measure("send", single, size, lambda: send_all(single, None))
        measure("send, key", single, size, lambda: send_all(single, b"key"))

    def poll_all() -> None:
        with bradbury.Consumer(
            topic, bootstrap=bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            rows = 0
            while rows < count:
                rows += consumer.poll(10_000).num_rows

    def iterate() -> None:
        with bradbury.Consumer(
            topic, bootstrap=bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            for number, _ in enumerate(consumer, 1):
                if number == single:
                    return

    measure("poll", count, size, poll_all)
    measure("iterate", single, size, iterate)
    admin.delete_topic(topic)


if __name__ == "__main__":
    main()
