"""Fetch versions 0-3: for consumers before Kafka 0.11, which read message sets of magic 0 or 1.

    versions 0, 1   magic 0
    versions 2, 3   magic 1

The slices are read and converted in the node's conversion threads, one partition after another, and
the sets are held in memory: so one response covers at most MOST_BYTES of log. Control batches are
dropped; if a slice has nothing else, the next one is read, because a consumer that receives no
records would fetch from the same offset forever.

Unlike Kafka: a first batch larger than the partition's limit is returned whole to these versions,
too, where Kafka returns its beginning and the consumer fails.
Source: KafkaApis.maybeDownConvert (3.9), RecordsUtil.downConvert.
"""

from __future__ import annotations

from typing import Final

from ...protocol.errors import KafkaError
from ...protocol.messages.fetch import FetchPartition, FetchRequest
from ...protocol.records.fetch_response import FetchedPartition, FetchedTopic
from ..ports.context import RequestContext
from ..ports.replica_port import FoundSlice

FIRST_WITH_BATCHES: Final = 4
FIRST_WITH_MAGIC_1: Final = 2
MOST_BYTES: Final = 8 * 1024**2
"""Maximum bytes of log converted per request; versions 0-2 have only limits per partition."""


async def as_message_sets(
    topics: list[FetchedTopic], request: FetchRequest, context: RequestContext
) -> list[FetchedTopic]:
    """Replace the slices of an answer by message sets, in request order."""
    converted = []
    for asked, found in zip(request.topics, topics, strict=True):
        partitions = [
            await _convert(found.name, wanted, partition, context)
            for wanted, partition in zip(asked.partitions, found.partitions, strict=True)
        ]
        converted.append(FetchedTopic(found.name, found.topic_id, partitions))
    return converted


async def _convert(
    topic: str, wanted: FetchPartition, found: FetchedPartition, context: RequestContext
) -> FetchedPartition:
    if not found.records_size:
        return found
    magic = 1 if context.api_version >= FIRST_WITH_MAGIC_1 else 0
    max_bytes = max(0, min(wanted.partition_max_bytes, MOST_BYTES))
    piece: FoundSlice = found.records  # type: ignore[assignment]  # as handlers/records/fetch made it
    try:
        while True:
            replica = context.node.partitions.leader_of(topic, wanted.partition)
            records = await replica.read_message_set(
                piece, fetch_offset=wanted.fetch_offset, magic=magic, max_bytes=max_bytes
            )
            if records:
                return found._replace(records=records)
            piece = replica.log.read(
                piece.next_offset,
                max_bytes=max_bytes,
                up_to=found.high_watermark,
                min_one_batch=True,
            )
            if not piece.size:
                return found._replace(records=b"")
    except KafkaError as error:
        return FetchedPartition(found.partition, error.code)
