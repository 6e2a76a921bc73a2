"""Resolution of given offsets, times and edges to ranges with fixed ends.

Offsets are given as for ray.data.read_kafka:

    1500                                    this offset, in every partition
    datetime(2026, 1, 1)                    the first record not before it; UTC if without a zone
    "earliest", "latest"                    the edges of the log
    {"flights": {0: 1500, 1: "earliest"}}   by partition; the others have the default edge
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from ...clients.threads.io_thread import Steps, wait
from ...clients.wire.cluster_client import ClusterClient
from ...clients.wire.offset_lookup import EARLIEST, LATEST, OffsetAt, list_offsets, timestamp_of
from ...protocol.errors import UnknownTopicOrPartition
from ...protocol.topic_partition import TopicPartition
from .partition_range import DataLoss, PartitionRange, ReadLimits

logger = logging.getLogger(__name__)

One = int | str | datetime
Offset = One | Mapping[str, Mapping[int, One]]

_TIMEOUT_MS: Final = 65_000


def resolve_ranges(
    client: ClusterClient,
    topics: Sequence[str],
    start_offset: Offset,
    end_offset: Offset,
    limits: ReadLimits,
    *,
    keep_empty: bool = False,
    committed: Mapping[TopicPartition, int] | None = None,
) -> list[PartitionRange]:
    """Ranges of the topics' partitions, in order, without empty ones unless `keep_empty`.

    committed: starts that override `start_offset`; those of other partitions are ignored.

    Raises:
        UnknownTopicOrPartition: one does not exist.
        ValueError: an offset is invalid, or above the log end offset.
        DataLoss: the log start offset is above a start, and `fail_on_data_loss` is true.
    """
    steps = _resolve(client, topics, start_offset, end_offset, limits, committed or {})
    ranges = client.run(steps, _TIMEOUT_MS)
    return ranges if keep_empty else [one for one in ranges if one.size]


def _resolve(
    client: ClusterClient,
    topics: Sequence[str],
    start_offset: Offset,
    end_offset: Offset,
    limits: ReadLimits,
    committed: Mapping[TopicPartition, int],
) -> Steps[list[PartitionRange]]:
    client.want(topics)
    yield from wait(client.refresh())
    partitions: list[TopicPartition] = []
    for topic in topics:
        try:
            view = yield from client.topic(topic)
        except UnknownTopicOrPartition:
            raise UnknownTopicOrPartition(
                f"topic {topic!r} does not exist; create it with `bradbury topics create {topic}`"
            ) from None
        partitions += [TopicPartition(topic, one.partition) for one in view.partitions]
    partitions.sort()
    first = yield from list_offsets(client, dict.fromkeys(partitions, EARLIEST))
    last = yield from list_offsets(
        client,
        dict.fromkeys(partitions, LATEST),
        isolation_level=limits.fetch.isolation_level,
    )
    edges = _Edges(first, last)
    given_start = _by_partition(start_offset, partitions, "start_offset", "earliest")
    for key in given_start.keys() & committed.keys():
        given_start[key] = _within_log(key, committed[key], last[key].offset, limits)
    given_end = _by_partition(end_offset, partitions, "end_offset", "latest")
    starts = yield from _offsets(client, given_start, edges)
    ends = yield from _offsets(client, given_end, edges)
    return [
        _range(key, starts[key], ends[key], first[key].offset, last[key].offset, limits)
        for key in partitions
    ]


def _within_log(key: TopicPartition, committed: int, last: int, limits: ReadLimits) -> int:
    """The committed offset, or the log end offset if that is lower."""
    if committed <= last:
        return committed
    text = f"the committed offset {committed} of {key} is above the log end offset {last}"
    if limits.fail_on_data_loss:
        raise DataLoss(f"{text}. {limits.data_loss_remedy}")
    logger.warning("%s; reading starts there", text)
    return last


class _Edges(NamedTuple):
    first: Mapping[TopicPartition, OffsetAt]
    last: Mapping[TopicPartition, OffsetAt]


def _offsets(
    client: ClusterClient, given: Mapping[TopicPartition, One], edges: _Edges
) -> Steps[dict[TopicPartition, int]]:
    """Resolved offsets; for a time after the last record, the log end offset."""
    times = {key: timestamp_of(one) for key, one in given.items() if isinstance(one, datetime)}
    found: Mapping[TopicPartition, OffsetAt] = {}
    if times:
        found = yield from list_offsets(client, times)
    offsets = {}
    for key, one in given.items():
        last = edges.last[key].offset
        if isinstance(one, int):
            offsets[key] = one
        elif isinstance(one, str):
            offsets[key] = edges.first[key].offset if one == "earliest" else last
        else:
            offset = found[key].offset
            offsets[key] = last if offset < 0 else min(offset, last)
    return offsets


def _range(
    key: TopicPartition, start: int, end: int, first: int, last: int, limits: ReadLimits
) -> PartitionRange:
    if end > last:
        raise ValueError(f"end_offset {end} of {key} is above the log end offset {last}")
    if start > end:
        raise ValueError(f"start_offset {start} of {key} is greater than its end_offset {end}")
    if start < first and start < end:
        text = f"offset {start} of {key} was deleted: the log begins at {first}"
        if limits.fail_on_data_loss:
            raise DataLoss(f"{text}. {limits.data_loss_remedy}")
        logger.warning("%s; reading starts there", text)
    return PartitionRange(*key, min(max(start, first), end), end)


def _by_partition(
    given: Offset, partitions: Sequence[TopicPartition], name: str, usual: str
) -> dict[TopicPartition, One]:
    if not isinstance(given, Mapping):
        _check_one(given, name, usual)
        return dict.fromkeys(partitions, given)
    named: dict[TopicPartition, One] = {}
    for topic, offsets in given.items():
        if not isinstance(offsets, Mapping):
            raise TypeError(f"{name}[{topic!r}] must map partitions to offsets")
        for partition, one in offsets.items():
            where = f"{name}[{topic!r}][{partition!r}]"
            if not isinstance(partition, int):
                raise TypeError(f"{where}: partitions are integers")
            _check_one(one, where, usual)
            named[TopicPartition(topic, partition)] = one
    unknown = sorted(set(named) - set(partitions))
    if unknown:
        raise UnknownTopicOrPartition(f"{name} names {unknown[0]}, which is not read")
    return {key: named.get(key, usual) for key in partitions}


def _check_one(given: object, name: str, usual: str) -> None:
    if given == usual or isinstance(given, datetime):
        return
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return
    raise ValueError(f"{name} is {given!r}; use an offset, a datetime or {usual!r}")


def ranges_since(
    client: ClusterClient, ranges: Sequence[PartitionRange], timestamp: int
) -> list[PartitionRange]:
    """What is left of ranges from the first record of its partition with this timestamp, or a later
    one, on.

    Raises KafkaError, ConnectionFailed.
    """
    wanted = {one.topic_partition: timestamp for one in ranges}
    found = client.run(list_offsets(client, wanted), _TIMEOUT_MS)
    left = []
    for one in ranges:
        first = found[one.topic_partition].offset
        if 0 <= first < one.end:
            left.append(one._replace(start=max(one.start, first)))
    return left


def split_ranges(ranges: Sequence[PartitionRange], count: int) -> list[PartitionRange]:
    """Split ranges into about `count` ranges of about equal size; ranges are never joined.

    >>> split_ranges([PartitionRange("t", 0, 0, 30), PartitionRange("t", 1, 5, 15)], 4)
    [... t-0 [0, 10), [10, 20), [20, 30), t-1 [5, 15)]
    """
    total = sum(one.size for one in ranges)
    pieces = []
    for one in ranges:
        share = min(one.size, max(1, round(count * one.size / total)))
        start = one.start
        for left in range(share, 0, -1):
            end = start + (one.end - start) // left
            pieces.append(one._replace(start=start, end=end))
            start = end
    return pieces
