"""Offsets of a query: as JSON, under limits, and as ranges for tasks. Pure.

    {"topicA": {"0": 23, "1": 345}, "topicB": {"0": 7}}                 next offset to read
    {"topicA": {"0": 30}, "@initial": {"topicA": {"0": 20}}}            end of the first batch
    {"topicA": {"0": 30}, "@topics": {"topicA": "0b2e..."}}             ids of the topics read from
    {"topicA": {"0": 4}, "@recreated": {"topicA": {"0": 0}}}            starts in a recreated topic

Invariants:
    Equal offsets have equal JSON text: Spark compares offsets as text, and another order of keys
    would be a new batch, forever.
    Ranges of tasks depend on start, end and options alone, never on cluster size, leaders or time:
    a replayed batch reads the same ranges.
    A rate-limited end is never past the available end, and each partition with records gets at
    least one.

`@topics` distinguishes a topic that was deleted and recreated from the former one, whatever its
offsets are. With failOnDataLoss false, the batch that detects it starts there at `@recreated`.

`@initial` ('@' cannot be in a topic's name) exists because Spark does not store the initial offset
of a Python source: after a failed first batch it would be looked up again, and "latest" would then
skip the records of that batch.

Sources: KafkaMicroBatchStream.rateLimit and KafkaOffsetRangeCalculator in apache/spark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ....protocol.topic_partition import TopicPartition
from ...ranges.partition_range import PartitionRange

Offsets = dict[TopicPartition, int]

INITIAL: Final = "@initial"
TOPICS: Final = "@topics"
RECREATED: Final = "@recreated"


def to_json(
    offsets: Mapping[TopicPartition, int],
    initial: Offsets | None = None,
    topic_ids: Mapping[str, str] | None = None,
    recreated: Offsets | None = None,
) -> dict[str, Any]:
    """Offsets as a sorted dict, so that json.dumps gives equal text for equal offsets."""
    nested: dict[str, Any] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(partition)] = offset
    if topic_ids:
        nested[TOPICS] = dict(sorted(topic_ids.items()))
    if recreated:
        nested[RECREATED] = to_json(recreated)
    if initial is not None:
        nested[INITIAL] = to_json(initial)
    return nested


def from_json(nested: Mapping[str, Any]) -> Offsets:
    """Offsets of a checkpoint, without `@initial`; also of one written by Spark's Kafka source.

    Raises:
        ValueError: they are not offsets.
    """
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partitions in nested.items()
            if not topic.startswith("@")
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise ValueError(f"the checkpoint's offsets are invalid: {nested!r}") from None


def initial_of(nested: Mapping[str, Any]) -> Offsets | None:
    """Start offsets of the first batch, if these are its end offsets; otherwise None."""
    return from_json(nested[INITIAL]) if INITIAL in nested else None


def recreated_of(nested: Mapping[str, Any]) -> Offsets:
    """Start offsets in topics that were found to be recreated when this end was planned."""
    return from_json(nested.get(RECREATED, {}))


def topic_ids_of(nested: Mapping[str, Any]) -> dict[str, str]:
    """Ids of the topics that were read from; those of older checkpoints are not known."""
    return dict(nested.get(TOPICS, {}))


def begin_again(start: Offsets, recreated: Offsets) -> Offsets:
    """`start`, with these starts in place of all partitions of their topics."""
    topics = {key.topic for key in recreated}
    return {key: offset for key, offset in start.items() if key.topic not in topics} | recreated


def rate_limit(start: Mapping[TopicPartition, int], end: Offsets, limit: int) -> Offsets:
    """End offsets at most about `limit` records after `start`, in proportion to the backlogs.

    A partition that `start` does not know begins at 0. A share below one record is one, so the sum
    may exceed the limit by one for each partition.
    """
    sizes = {key: last - start.get(key, 0) for key, last in end.items()}
    total = sum(size for size in sizes.values() if size > 0)
    if total <= limit:
        return dict(end)
    limited = {}
    for key, last in end.items():
        if sizes[key] <= 0:
            limited[key] = last
            continue
        share = limit * sizes[key] / total
        count = math.ceil(share) if share < 1 else math.floor(share)
        limited[key] = min(last, start.get(key, 0) + count)
    return limited


def backlog(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """Number of offsets from `start` to `end`."""
    return sum(max(0, last - start.get(key, 0)) for key, last in end.items())


def must_wait(
    new_count: int,
    min_count: int | None,
    *,
    since_last_trigger_ms: int | None,
    max_delay_ms: int,
) -> bool:
    """Whether a batch is delayed until more records arrive.

    since_last_trigger_ms: None before the first batch, which never waits.
    """
    if min_count is None or new_count >= min_count or since_last_trigger_ms is None:
        return False
    return since_last_trigger_ms < max_delay_ms


def ranges_between(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> list[PartitionRange]:
    """Ranges from `start` to `end`, ordered. A partition that is new in `end` is read from 0."""
    return [
        PartitionRange(*key, start.get(key, 0), last)
        for key, last in sorted(end.items())
        if last > start.get(key, 0)
    ]


def plan_tasks(
    ranges: Sequence[PartitionRange],
    *,
    min_partitions: int | None,
    max_records: int | None,
    pack_rows: int,
) -> list[tuple[PartitionRange, ...]]:
    """Ranges of each task, in order.

    Args:
        min_partitions: least number of tasks, about; big ranges are split in proportion to size.
        max_records: most records of a range.
        pack_rows: without min_partitions, neighbouring small ranges share a task of at most this
            many records: a task costs more than reading a few records.
    """
    pieces = [
        piece
        for one in ranges
        for piece in _split(one, math.ceil(one.size / max_records) if max_records else 1)
    ]
    if min_partitions is None:
        return _pack(pieces, min(pack_rows, max_records or pack_rows))
    total = sum(one.size for one in pieces)
    if len(pieces) < min_partitions and total:
        pieces = [
            piece
            for one in pieces
            for piece in _split(one, max(1, round(one.size / total * min_partitions)))
        ]
    return [(one,) for one in pieces]


def _split(one: PartitionRange, count: int) -> Iterable[PartitionRange]:
    start = one.start
    for left in range(min(count, one.size), 0, -1):
        end = start + (one.end - start) // left
        yield one._replace(start=start, end=end)
        start = end


def _pack(pieces: Sequence[PartitionRange], most: int) -> list[tuple[PartitionRange, ...]]:
    tasks: list[list[PartitionRange]] = []
    room = 0
    for one in pieces:
        if not tasks or one.size > room:
            tasks.append([])
            room = most
        tasks[-1].append(one)
        room -= one.size
    return [tuple(task) for task in tasks]
