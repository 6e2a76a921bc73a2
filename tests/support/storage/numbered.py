"""Topics of numbered records: what went in is range(count), so what came out can be counted."""

from collections.abc import Iterable

import pyarrow as pa

import bradbury


def fill(topic: str, count: int, *, start: int = 0, keys: int = 10) -> None:
    """Send the numbers [start, start + count) as values; number modulo `keys` is the key."""
    numbers = range(start, start + count)
    table = pa.table(
        {
            "key": [b"%d" % (number % keys) for number in numbers],
            "value": [b"%d" % number for number in numbers],
        }
    )
    with bradbury.Producer() as producer:
        producer.send_batch(topic, table).result(60)


def numbers_in(table: pa.Table) -> list[int]:
    return [int(value) for value in table.column("value").to_pylist()]


def duplicates(numbers: Iterable[int]) -> list[int]:
    numbers = sorted(numbers)
    return [one for one, other in zip(numbers, numbers[1:], strict=False) if one == other]
