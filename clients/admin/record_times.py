"""Timestamps of records by offset, found by a fetch per leader.

ListOffsets finds an offset by a time, and no API does the reverse. So the batch at the offset is
fetched and decoded.

Not here: continuous fetches (fetcher).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Final

from ...protocol.buffer import Buffer
from ...protocol.error_code import ErrorCode
from ...protocol.errors import (
    CorruptMessage,
    InvalidRecord,
    KafkaError,
    RequestTimedOut,
    error_for,
)
from ...protocol.messages.fetch import FetchResponse, PartitionData
from ...protocol.records.record_batch import HEADER_SIZE, MAGIC, read_header, walk_batches
from ...protocol.records.records import iterate_records
from ...protocol.topic_partition import TopicPartition
from ..fetch.fetch_request import PartitionFetch, build_fetch_request
from ..fetch.fetcher import MAX_VERSION
from ..threads.io_thread import Steps, wait
from ..wire.cluster_client import ClusterClient, is_retriable
from ..wire.connection import Address

PARTITION_BYTES: Final = 32 * 1024
REQUEST_BYTES: Final = 8 * 1024 * 1024
LANE: Final = "record-times"


def record_times(
    client: ClusterClient, offsets: Mapping[TopicPartition, int], *, timeout_ms: int
) -> Steps[dict[TopicPartition, int]]:
    """Timestamp (ms since 1970) of the first record at or after each offset.

    Left out: partitions without such a record, those whose offset is not in the log, and those
    whose records cannot be read (a format before 0.11's).

    Costs one fetch per leader, of a batch per partition; a batch over 32 KiB may need another.

    Raises:
        RequestTimedOut: a leader did not answer in time.
        KafkaError: a broker refuses.
    """
    found: dict[TopicPartition, int] = {}
    left = dict(offsets)
    waited_ms = 0
    for topic in sorted({key.topic for key in left}):
        yield from client.topic(topic)
    while left:
        reason: BaseException | None = None
        by_leader: dict[Address, list[TopicPartition]] = defaultdict(list)
        for key in left:
            leader = client.view.leader(*key)
            if leader is not None:
                by_leader[leader.address].append(key)
        sent = [_ask(client, address, keys, left) for address, keys in by_leader.items()]
        went_on = False
        for future in sent:
            try:
                response = yield from wait(future)
                if response.error_code:
                    raise error_for(response.error_code)
                done, reason = _take(response, left, found)
                went_on = went_on or done
            except Exception as error:
                if not is_retriable(error):
                    raise
                reason = error
        if left and not went_on:
            if waited_ms >= timeout_ms:
                raise RequestTimedOut(
                    f"no records within {timeout_ms} ms: {reason or 'a partition has no leader'}"
                )
            waited_ms += client.config.retry_backoff_ms
            yield client.config.retry_backoff_ms / 1000
            yield from wait(client.refresh())
    return found


def _ask(
    client: ClusterClient,
    address: Address,
    keys: list[TopicPartition],
    offsets: Mapping[TopicPartition, int],
) -> Future[FetchResponse]:
    request = build_fetch_request(
        (PartitionFetch(key, offsets[key], PARTITION_BYTES) for key in keys),
        min_bytes=1,
        max_bytes=REQUEST_BYTES,
    )
    return client.send(address, request, FetchResponse, lane=LANE, max_version=MAX_VERSION)


def _take(
    response: FetchResponse,
    left: dict[TopicPartition, int],
    found: dict[TopicPartition, int],
) -> tuple[bool, KafkaError | None]:
    """Store a response's timestamps; return (whether there was progress, last retriable error).

    Every response without errors makes progress: its first partition has a whole batch.
    """
    went_on = False
    reason = None
    for topic in response.responses:
        for answer in topic.partitions:
            key = TopicPartition(topic.topic, answer.partition_index)
            if answer.error_code and answer.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
                reason = error_for(answer.error_code)
                if not reason.retriable:
                    raise reason
                continue
            before = left[key]
            if _find_in_answer(key, answer, left, found) or left[key] != before:
                went_on = True
    return went_on, reason


def _find_in_answer(
    key: TopicPartition,
    answer: PartitionData,
    left: dict[TopicPartition, int],
    found: dict[TopicPartition, int],
) -> bool:
    """Find a partition's timestamp; if False, left[key] may have moved past control batches."""
    records = answer.records
    if not records or answer.error_code or left[key] >= answer.high_watermark:
        is_cut_off = answer.high_watermark > left[key] and not answer.error_code
        if is_cut_off:
            return False  # the response was full before this partition
        del left[key]
        return True
    data = memoryview(records)
    if len(data) >= HEADER_SIZE and read_header(data).magic != MAGIC:
        del left[key]
        return True
    for position, header in walk_batches(data):
        if header.magic != MAGIC:
            del left[key]
            return True
        timestamp = None
        if not header.is_control:
            timestamp = _time(data[position : position + header.size], left[key])
        if timestamp is not None:
            found[key] = timestamp
            del left[key]
            return True
        left[key] = max(left[key], header.next_offset)
    return False


def _time(batch: Buffer, offset: int) -> int | None:
    """Timestamp of the first record at or after `offset`; None if the batch has none left."""
    header = read_header(batch)
    if header.is_log_append_time:
        return header.max_timestamp
    try:
        for record in iterate_records(batch):
            if record.offset >= offset:
                return record.timestamp
    except (CorruptMessage, InvalidRecord):
        return None
    return None
