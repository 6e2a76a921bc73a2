"""What tests of mirrors share: records that tell themselves apart, and a mirror in a thread."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import bradbury
from bradbury.pipelines.mirrors.mirror_settings import MirrorProgress

START_MS = time.time_ns() // 1_000_000 - 3_600_000
COLUMNS = ["partition", "timestamp", "key", "value", "headers"]


def send(bootstrap: str, topic: str, numbers: range, partitions: int = 3, **options: Any) -> None:
    with bradbury.Producer(bootstrap, **options) as producer:
        for partition in range(partitions):
            mine = [number for number in numbers if number % partitions == partition]
            if not mine:
                continue
            table = pa.table(
                {
                    "key": [None if n % 5 == 0 else b"k%d" % n for n in mine],
                    "value": [b"%d" % n for n in mine],
                    "timestamp": [START_MS + n for n in mine],
                    "headers": pa.array(
                        [[{"key": "n", "value": b"%d" % n}] for n in mine],
                        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
                    ),
                }
            )
            producer.send_batch(topic, table, partition=partition).result(60)


def rows(bootstrap: str, topic: str) -> list[tuple[Any, ...]]:
    """What is committed, by partition in the order of the log."""
    found: list[tuple[Any, ...]] = []
    with bradbury.Admin(bootstrap) as admin:
        partitions = range(len(admin.describe_topics([topic])[0].partitions))
        ends = admin.list_offsets([(topic, partition) for partition in partitions])
    with bradbury.Consumer(
        bootstrap=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(list(ends))
        deadline = time.monotonic() + 60
        while any(consumer.position(key) < ends[key].offset for key in ends):
            assert time.monotonic() < deadline
            table = consumer.poll(timeout_ms=500)
            columns = [table.column(name).to_pylist() for name in COLUMNS]
            found += zip(*columns, strict=True)
    return sorted(found, key=lambda row: row[0])


def values(bootstrap: str, topic: str) -> list[int]:
    return sorted(int(row[3]) for row in rows(bootstrap, topic))


class Continuous:
    """A mirror in a thread, until the end of the block. watch: called with its progress."""

    def __init__(
        self,
        topics: str,
        source: str,
        *,
        watch: Callable[[MirrorProgress], None] = lambda progress: None,
        **options: Any,
    ) -> None:
        self._watch = watch
        self._stop = threading.Event()
        self._moved = threading.Condition()
        self._records = 0
        self._has_ended = False
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(topics, source, options))

    def _run(self, topics: str, source: str, options: dict[str, Any]) -> None:
        try:
            bradbury.mirror(
                topics,
                source,
                continuous=True,
                stop=self._stop,
                on_progress=self._on_progress,
                **options,
            )
        except Exception as error:
            self.failure = error
        with self._moved:
            self._has_ended = True
            self._moved.notify_all()

    def _on_progress(self, progress: MirrorProgress) -> None:
        self._watch(progress)
        with self._moved:
            self._records = progress.records
            self._moved.notify_all()

    def wait_for(self, records: int) -> None:
        with self._moved:
            self._moved.wait_for(lambda: self._records >= records or self._has_ended, 60)
            assert self._records >= records, self.failure

    def wait_for_its_end(self) -> None:
        with self._moved:
            assert self._moved.wait_for(lambda: self._has_ended, 60)

    def __enter__(self) -> "Continuous":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
