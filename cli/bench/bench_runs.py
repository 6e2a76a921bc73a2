"""The three measurements with Bradbury's clients: produce, consume, round trip.

`bradbury bench` and the programs in benchmarks/ call them. A record's time begins when it should
have been sent, not when it was sent: a stall counts for every record that waited because of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, Final

from ..terminal.failure import CommandFailed
from .bench_figures import Measurement

if TYPE_CHECKING:
    from ...clients.consumer.consumer import Consumer
    from ...clients.producer.producer import Producer

MAX_SAMPLES: Final = 200_000
CHUNK: Final = 10_000
"""Records per send_batch call."""
RATE_SECONDS: Final = 0.1
POLL_MS: Final = 200
JOIN_SECONDS: Final = 30.0

Advance = Callable[[int], None]


def no_progress(count: int) -> None:
    """Ignore progress: the `advance` of a measurement that shows none."""


class Pace:
    """Time at which each record is due: at once, or at a rate of `per_second`."""

    def __init__(self, per_second: float | None) -> None:
        self._per_second = per_second
        self.is_limited = per_second is not None
        self.began = time.perf_counter()

    def wait_for(self, number: int) -> float:
        """Sleep until record `number` is due; return that time (time.perf_counter)."""
        if self._per_second is None:
            return time.perf_counter()
        due = self.began + number / self._per_second
        left = due - time.perf_counter()
        if left > 0:
            time.sleep(left)
        return due


class _Rates:
    """Samples of (seconds, records so far), taken a few times a second; usable from any thread."""

    def __init__(self) -> None:
        self.points: list[tuple[float, int]] = []
        self._began = time.perf_counter()
        self._count = 0
        self._next = RATE_SECONDS
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self._count += count
            seconds = time.perf_counter() - self._began
            if seconds >= self._next:
                self.points.append((seconds, self._count))
                self._next = seconds + RATE_SECONDS


def produce_run(
    producer: Producer,
    topic: str,
    *,
    records: int,
    size: int,
    throughput: float | None,
    columns: bool,
    advance: Advance,
    key_count: int = 0,
    most_samples: int = MAX_SAMPLES,
) -> Measurement:
    """Send `records` of `size` bytes, timed from the first call to the last acknowledgement.

    key_count: number of different keys, used in turn; 0: records have no keys.
    most_samples: maximum number of single records that are timed, at 5 us each.
    """
    import numpy as np

    times: list[float] = []
    failures: list[Exception] = []
    rates = _Rates()
    send = _send_columns if columns else partial(_send_records, max(1, records // most_samples))
    keys = [b"%d" % number for number in range(key_count)]
    producer.partitions_for(topic)  # so that no record waits for the first metadata request
    pace = Pace(throughput)
    send(producer, topic, records, size, keys, pace, times, failures, rates, advance)
    producer.flush()
    seconds = time.perf_counter() - pace.began
    if failures:
        raise failures[0]
    return Measurement(
        f"produce {records:,} records of {size} bytes to {topic}",
        records,
        records * size,
        seconds,
        {"latency": np.array(times) * 1000},
        rates.points,
    )


def _send_records(
    step: int,
    producer: Producer,
    topic: str,
    records: int,
    size: int,
    keys: list[bytes],
    pace: Pace,
    times: list[float],
    failures: list[Exception],
    rates: _Rates,
    advance: Advance,
) -> None:
    value = bytes(size)
    shown = max(1, min(CHUNK, records // 100))

    def on_done(due: float, future: Any) -> None:
        now = time.perf_counter()
        error = future.exception(0)
        if error is not None:
            failures.append(error)
        times.append(now - due)

    due = 0.0
    for number, key in zip(range(records), cycle(keys or [None]), strict=False):
        is_sample = number % step == 0
        if is_sample or pace.is_limited:
            due = pace.wait_for(number)
        future = producer.send(topic, value, key)
        if is_sample:
            future.add_done_callback(partial(on_done, due))
        if (number + 1) % shown == 0:
            rates.add(shown)
            advance(shown)
            if failures:
                return


def _send_columns(
    producer: Producer,
    topic: str,
    records: int,
    size: int,
    keys: list[bytes],
    pace: Pace,
    times: list[float],
    failures: list[Exception],
    rates: _Rates,
    advance: Advance,
) -> None:
    import pyarrow as pa

    rows = min(CHUNK, records)
    columns = {"value": pa.array([bytes(size)], pa.binary()).take(pa.array([0] * rows))}
    if keys:
        columns["key"] = pa.array(list(islice(cycle(keys), rows)), pa.binary())
    table = pa.table(columns)

    def on_done(due: float, count: int, future: Any) -> None:
        error = future.exception()
        if error is not None:
            failures.append(error)
        else:
            rates.add(count)
        times.append(time.perf_counter() - due)

    for start in range(0, records, CHUNK):
        count = min(CHUNK, records - start)
        due = pace.wait_for(start)
        future = producer.send_batch(topic, table.slice(0, count))
        future.add_done_callback(partial(on_done, due, count))
        advance(count)
        if failures:
            return


def consume_run(
    consumer: Consumer, topic: str, *, records: int, timeout: float, advance: Advance
) -> Measurement:
    """Poll until `records` have been read, or none has been for `timeout` seconds."""
    import numpy as np
    import pyarrow.compute as pc

    rates = _Rates()
    polls: list[float] = []
    count = size = 0
    first = 0.0
    began = last = time.perf_counter()
    while count < records and time.perf_counter() - last < timeout:
        before = time.perf_counter()
        table = consumer.poll(POLL_MS)
        now = time.perf_counter()
        if not table.num_rows:
            continue
        first = first or now - began
        last = now
        polls.append(now - before)
        count += table.num_rows
        for name in ("key", "value"):
            size += pc.sum(pc.binary_length(table.column(name))).as_py() or 0
        rates.add(table.num_rows)
        advance(table.num_rows)
    if not count:
        raise CommandFailed(f"no record came from {topic!r} within {timeout:g} s")
    return Measurement(
        f"consume {topic}",
        count,
        size,
        last - began,
        {"poll": np.array(polls) * 1000},
        rates.points,
        {"first records after": first * 1000},
    )


def latency_run(
    producer: Producer,
    consumer: Consumer,
    topic: str,
    *,
    records: int,
    size: int,
    throughput: float,
    advance: Advance,
) -> Measurement:
    """Send records at a steady rate; time each until it is acknowledged, and until it is polled.

    The position of `consumer` is the end of partition 0 of `topic`; no other producer writes there.
    """
    import numpy as np

    rates = _Rates()
    due = np.zeros(records)
    acknowledged, received = np.zeros(records), np.zeros(records)
    failures: list[Exception] = []
    done = threading.Event()

    def on_ack(number: int, future: Any) -> None:
        acknowledged[number] = time.perf_counter()
        error = future.exception(0)
        if error is not None:
            failures.append(error)

    def send_all() -> None:
        try:
            pace = Pace(throughput)
            for number in range(records):
                due[number] = pace.wait_for(number)
                value = b"%0*d" % (size, number)
                producer.send(topic, value, partition=0).add_done_callback(partial(on_ack, number))
            producer.flush()
        except Exception as error:  # noqa: BLE001 -- raised again on the caller's thread
            failures.append(error)
        finally:
            done.set()

    began = time.perf_counter()
    sender = threading.Thread(target=send_all, name="bench-sender", daemon=True)
    sender.start()
    count, last = 0, began
    while count < records and not failures:
        table = consumer.poll(POLL_MS)
        last = now = time.perf_counter() if table.num_rows else last
        for value in table.column("value").to_pylist():
            received[int(value)] = now
        count += table.num_rows
        rates.add(table.num_rows)
        advance(table.num_rows)
        if done.is_set() and time.perf_counter() - last > JOIN_SECONDS:
            raise CommandFailed(f"{records - count} of {records} records were not read back")
    sender.join(JOIN_SECONDS)
    if failures:
        raise failures[0]
    return Measurement(
        f"{records:,} records of {size} bytes, {throughput:g} a second, through {topic}",
        records,
        records * size,
        last - began,
        {"produce": (acknowledged - due) * 1000, "round trip": (received - due) * 1000},
        rates.points,
    )
