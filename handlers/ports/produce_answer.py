"""What Produce answers where that is no message: one batch that is stored, or nothing at all."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from ...protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)


class ProducedBatch(NamedTuple):
    """Where one batch went. `topic_id` is what versions from 13 on answer with, else the name."""

    topic: str
    topic_id: UUID
    partition: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


class CloseConnection(Exception):
    """The peer must notice a failure that has no response in the protocol: acks=0 has none."""


def as_response(stored: ProducedBatch) -> ProduceResponse:
    """The same answer, as one that others can be joined with."""
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
