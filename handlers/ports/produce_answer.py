"""Answers of Produce that are no message: one stored batch, or a closed connection."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from ...protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)


class ProducedBatch(NamedTuple):
    """Position of a stored batch. Versions from 13 on answer with `topic_id`, others with name."""

    topic: str
    topic_id: UUID
    partition: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


class CloseConnection(Exception):
    """Failure that closes the connection, since the request has no response (acks=0)."""


def as_response(stored: ProducedBatch) -> ProduceResponse:
    """Convert the answer to a ProduceResponse, which can be merged with others."""
    answer = PartitionProduceResponse(
        index=stored.partition,
        base_offset=stored.base_offset,
        log_append_time_ms=stored.log_append_time_ms,
        log_start_offset=stored.log_start_offset,
    )
    topic = TopicProduceResponse(
        name=stored.topic, topic_id=stored.topic_id, partition_responses=[answer]
    )
    return ProduceResponse(responses=[topic])
