"""Copy of a topic's records into another topic: keys, values, headers, timestamps, order are kept.

Invariants:
    A batch is copied as it is, still compressed, if it is wholly within the range, has no gaps, and
    is neither transactional nor of LogAppendTime. Other batches are decoded to columns and encoded
    again, as are all batches if partitions are chosen by key.
    Records of aborted transactions and control batches are not copied.
    The target's producer is idempotent: a batch that is sent twice is written once.

Offsets are new, and so are timestamps if the target has LogAppendTime.

Not here: the choice of offsets and partitions (the caller's).
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ...protocol.columns.columns import decode_batches
from ...protocol.errors import RequestTimedOut
from ...protocol.records.record_batch import RecordBatchHeader, walk_batches
from ...protocol.topic_partition import TopicPartition
from ..fetch.batch_reader import BatchReader
from ..fetch.fetch_state import FetchedRecords
from ..producer.producer import Producer
from ..security.security_options import ClientSecurity
from ..wire.cluster_client import ClusterClient
from ..wire.record_metadata import BatchMetadata

MAX_OPEN_SENDS: Final = 64


class PlacedRecords(NamedTuple):
    """Target offsets [start, end) of a source partition's records, possibly among others."""

    start: int
    end: int
    records: int


@dataclass(slots=True)
class ReplayReport:
    """Result of a copy. batches: number copied as they are; recoded: number decoded first.

    placed: target offsets by source partition, if each has its own target partition.
    """

    records: int = 0
    batches: int = 0
    recoded: int = 0
    bytes: int = 0
    placed: dict[TopicPartition, PlacedRecords] = field(default_factory=dict)

    def on_acknowledged(self, source: TopicPartition, records: BatchMetadata) -> None:
        for _, start, end in records.ranges:
            known = self.placed.get(source, PlacedRecords(start, end, 0))
            self.placed[source] = PlacedRecords(
                min(known.start, start), max(known.end, end), known.records + end - start
            )


def replay(
    ranges: Mapping[TopicPartition, tuple[int, int]],
    target: str,
    producer: Producer,
    *,
    bootstrap: str | None = None,
    partitions: Mapping[int, int] | None,
    poll_timeout_ms: float = math.inf,
    security: ClientSecurity | None = None,
    client: ClusterClient | None = None,
    on_progress: Callable[[int], None] = lambda offsets: None,
) -> ReplayReport:
    """Copy `ranges` to the topic `target`; return when all records are acknowledged.

    Args:
        ranges: offsets [start, end) by source partition.
        partitions: target partition by source partition; None: `producer` partitions each record.
        poll_timeout_ms: milliseconds without a batch after which it fails.
        security: settings for the source's brokers; None: the settings found for them.
        client: client of the source, instead of one created for this call.
        on_progress: called with the number of offsets that were copied since the last call.

    Raises:
        RequestTimedOut: the source did not answer for `poll_timeout_ms`.
        OffsetOutOfRange: a range is not, or no longer, in the source.
        KafkaError: a broker refuses. Records that were acknowledged before stay.
    """
    report = ReplayReport()
    sent: deque[tuple[TopicPartition, Future[BatchMetadata]]] = deque()

    def wait_for_next() -> None:
        key, acknowledged = sent.popleft()
        records = acknowledged.result()
        if partitions is not None:
            report.on_acknowledged(key, records)

    with BatchReader(ranges, bootstrap=bootstrap, security=security, client=client) as reader:
        fetched_at = time.monotonic()
        while not reader.is_done:
            fetched = reader.read()
            if fetched is None:
                if (time.monotonic() - fetched_at) * 1000 > poll_timeout_ms:
                    raise RequestTimedOut(
                        f"no records of {', '.join(sorted({key.topic for key in ranges}))} came "
                        f"for {poll_timeout_ms:.0f} ms; are the source's brokers up? "
                        "poll_timeout_ms says how long to try"
                    )
                continue
            fetched_at = time.monotonic()
            start, end = ranges[fetched.state.topic_partition]
            position = max(start, fetched.fetch_offset)
            key = fetched.state.topic_partition
            for one in _send(fetched, (start, end), target, producer, partitions, report):
                sent.append((key, one))
            on_progress(min(end, fetched.next_offset) - position)
            while len(sent) > MAX_OPEN_SENDS:
                wait_for_next()
    while sent:
        wait_for_next()
    return report


def replay_fetched(
    fetched: Sequence[FetchedRecords], targets: Mapping[str, str], producer: Producer
) -> ReplayReport:
    """Copy records of a BatchReader, each partition to the same number; return when acknowledged.

    targets: target topic by source topic.
    """
    report = ReplayReport()
    sent: list[tuple[TopicPartition, Future[BatchMetadata]]] = []
    for one in fetched:
        key = one.state.topic_partition
        limits = one.fetch_offset, one.next_offset
        partitions = {key.partition: key.partition}
        futures = _send(one, limits, targets[key.topic], producer, partitions, report)
        sent += [(key, acknowledged) for acknowledged in futures]
    for key, acknowledged in sent:
        report.on_acknowledged(key, acknowledged.result())
    return report


def _send(
    fetched: FetchedRecords,
    limits: tuple[int, int],
    target: str,
    producer: Producer,
    partitions: Mapping[int, int] | None,
    report: ReplayReport,
) -> list[Future[BatchMetadata]]:
    """Send fetched batches; adjacent batches that need no decoding are sent together."""
    source = fetched.state.topic_partition
    partition = None if partitions is None else partitions[source.partition]
    sent: list[Future[BatchMetadata]] = []
    ready: list[memoryview] = []
    records = fetched.records
    start = max(limits[0], fetched.fetch_offset)

    def flush() -> None:
        if ready and partition is not None:
            sent.append(producer.send_encoded(target, list(ready), partition=partition))
            ready.clear()

    def recode(content: memoryview) -> None:
        flush()
        while len(content):
            decoded = decode_batches(
                content,
                topic=source.topic,
                partition=source.partition,
                fetch_offset=start,
                end_offset=limits[1],
                aborted=fetched.aborted,
            )
            if len(decoded):
                table = decoded.table
                sent.append(producer.send_batch(target, table, partition=partition))
            report.records += len(decoded)
            if not decoded.consumed_bytes:
                return
            content = content[decoded.consumed_bytes :]

    headers = list(walk_batches(records))
    report.bytes += sum(
        header.size
        for _, header in headers
        if start < header.next_offset and header.base_offset < limits[1]
    )
    if partition is None or any(header.is_transactional for _, header in headers):
        report.recoded += len(headers)
        recode(records)
        return sent
    for position, header in headers:
        batch = records[position : position + header.size]
        if header.next_offset <= start:
            continue
        if header.base_offset >= limits[1]:
            break
        if _can_be_copied_as_it_is(header, limits):
            ready.append(batch)
            report.batches += 1
            report.records += header.record_count
        elif not header.is_control:
            report.recoded += 1
            recode(batch)
    flush()
    return sent


def _can_be_copied_as_it_is(header: RecordBatchHeader, limits: tuple[int, int]) -> bool:
    return (
        limits[0] <= header.base_offset
        and header.next_offset <= limits[1]
        and header.record_count == header.last_offset_delta + 1
        and not header.is_control
        and not header.is_log_append_time
    )
