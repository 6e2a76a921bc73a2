"""Members of one group for tests, a listener that notes what it is told, and polls until something.

with group_of(bootstrap) as consumer:
    one, two = consumer("flights"), consumer("flights", group_instance_id="i")
    rows = poll_until(lambda: len(numbers(one)) == len(numbers(two)) == 1, one, two)
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import bradbury

SECONDS = 60.0

Make = Callable[..., bradbury.Consumer]


class RecordingListener(bradbury.RebalanceListener):
    """Notes what it is told, and then does what the test says."""

    def __init__(self, **then: Callable[[], None]) -> None:
        self.events: list[tuple[str, list[int]]] = []
        self._then = then

    def on_partitions_assigned(self, partitions: Sequence[bradbury.TopicPartition]) -> None:
        self._note("assigned", partitions)

    def on_partitions_revoked(self, partitions: Sequence[bradbury.TopicPartition]) -> None:
        self._note("revoked", partitions)

    def on_partitions_lost(self, partitions: Sequence[bradbury.TopicPartition]) -> None:
        self._note("lost", partitions)

    def _note(self, what: str, partitions: Sequence[bradbury.TopicPartition]) -> None:
        self.events.append((what, [one.partition for one in partitions]))
        self._then.get(what, lambda: None)()


@contextmanager
def group_of(bootstrap: str) -> Iterator[Make]:
    """Makes members of one new group, and closes them."""
    group = f"group-{time.time_ns()}"
    with ExitStack() as stack:

        def make(*topics: str, **options: Any) -> bradbury.Consumer:
            settings: dict[str, Any] = {
                "bootstrap": bootstrap,
                "group": group,
                "auto_offset_reset": "earliest",
                "heartbeat_interval_ms": 50,
                **options,
            }
            return stack.enter_context(bradbury.Consumer(*topics, **settings))

        yield make


def fill(bootstrap: str, topic: str, count: int, partition: int = 0) -> None:
    with bradbury.Producer(bootstrap) as producer:
        producer.send_batch(topic, [b"%d" % n for n in range(count)], partition=partition).result(
            20
        )


def numbers(consumer: bradbury.Consumer) -> list[int]:
    return [partition for _, partition in consumer.assignment()]


def poll_until(happened: Callable[[], bool], *consumers: bradbury.Consumer) -> list[Any]:
    """What the consumers hand out until `happened`; polls wait, so nothing sleeps."""
    rows = []
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        for one in consumers:
            rows += one.poll(20).select(["topic", "partition", "offset"]).to_pylist()
    return rows


def all_read(*consumers: bradbury.Consumer) -> bool:
    """Whether what is assigned is read to its end; so also if nothing is assigned."""
    return all(
        set(one.lag()) == set(one.assignment()) and not any(one.lag().values()) for one in consumers
    )
