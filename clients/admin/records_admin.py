"""DeleteRecords for many partitions: grouped by leader, retried until each is answered."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from ...protocol.errors import KafkaError, RequestTimedOut, UnknownTopicOrPartition, error_for
from ...protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ...protocol.topic_partition import TopicPartition
from ..threads.io_thread import Steps, wait
from ..wire.cluster_client import CONTROL, ClusterClient, is_retriable
from ..wire.connection import Address

HIGH_WATERMARK: Final = -1


def delete_records(
    client: ClusterClient, before: Mapping[TopicPartition, int], *, timeout_ms: int
) -> Steps[dict[TopicPartition, int]]:
    """Delete the records below an offset (HIGH_WATERMARK: all committed records). Idempotent.

    Returns the log start offset after that, for each partition.

    Raises:
        UnknownTopicOrPartition: there is no such partition.
        OffsetOutOfRange: an offset is above the high watermark.
        PolicyViolation: the topic is only compacted.
        RequestTimedOut: a leader did not answer in time.
    """
    low: dict[TopicPartition, int] = {}
    waited_ms = 0
    reason: BaseException | None = None
    for topic, partition in before:
        view = yield from client.topic(topic, partition=partition)
        if partition >= len(view.partitions):
            raise UnknownTopicOrPartition(
                f"topic {topic!r} has partitions 0 to {len(view.partitions) - 1}, not {partition}"
            )
    while len(low) < len(before):
        by_leader: dict[Address, dict[TopicPartition, int]] = defaultdict(dict)
        for key, offset in before.items():
            leader = client.view.leader(*key)
            if key not in low and leader is not None:
                by_leader[leader.address][key] = offset
        for address, part in by_leader.items():
            request = _request(part, timeout_ms)
            try:
                response = yield from wait(
                    client.send(address, request, DeleteRecordsResponse, lane=CONTROL)
                )
                reason = _take(response, low) or reason
            except Exception as error:
                if not is_retriable(error):
                    raise
                reason = error
        if len(low) < len(before):
            if waited_ms >= timeout_ms:
                raise RequestTimedOut(
                    f"not all records were deleted within {timeout_ms} ms: {reason or 'no leader'}"
                )
            waited_ms += client.config.retry_backoff_ms
            yield client.config.retry_backoff_ms / 1000
            yield from wait(client.refresh())
    return low


def _request(before: Mapping[TopicPartition, int], timeout_ms: int) -> DeleteRecordsRequest:
    topics: dict[str, DeleteRecordsTopic] = {}
    for (topic, partition), offset in before.items():
        topics.setdefault(topic, DeleteRecordsTopic(name=topic)).partitions.append(
            DeleteRecordsPartition(partition_index=partition, offset=offset)
        )
    return DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=timeout_ms)


def _take(response: DeleteRecordsResponse, low: dict[TopicPartition, int]) -> KafkaError | None:
    """Store the answers; return the last retriable error, if any."""
    reason = None
    for topic in response.topics:
        for answer in topic.partitions:
            if not answer.error_code:
                key = TopicPartition(topic.name, answer.partition_index)
                low[key] = answer.low_watermark
                continue
            error = error_for(answer.error_code)
            if not error.retriable:
                where = f"{topic.name}-{answer.partition_index}"
                raise error_for(answer.error_code, f"{where}: {error}")
            reason = error
    return reason
