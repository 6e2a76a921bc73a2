"""Records that say of themselves which they are, and what a topic has of them."""

import time
from typing import Any

import bradbury
from bradbury.tests.support.committed_records import committed_records

START_MS = time.time_ns() // 1_000_000 - 3_600_000
"""What retention spares."""


def send(bootstrap: str, topic: str, start: int, end: int, partitions: int) -> None:
    with bradbury.Producer(bootstrap) as producer:
        for number in range(start, end):
            producer.send(
                topic,
                str(number).encode(),
                f"k{number}".encode(),
                partition=number % partitions,
                timestamp_ms=START_MS + number,
                headers=[("number", str(number).encode())],
            )


def seen(bootstrap: str, topic: str) -> list[tuple[Any, ...]]:
    """All of a record but its offset; committed ones, in order."""
    return [
        (each.partition, each.key, each.value, each.timestamp, list(each.headers or ()))
        for each in committed_records(bootstrap, topic)
    ]
