"""DescribeProducers (API key 61): the producer state of a partition, from its leader.

The answer includes the start of each open transaction: tools that look for hanging transactions
compare it with the coordinators' transactions. Source: ProducerStateManager,
Partition.activeProducerState.
"""

from __future__ import annotations

from ...protocol.errors import KafkaError
from ...protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ...protocol.topic_name import check_topic_name
from ..authorization.record_access import DESCRIBE_PRODUCERS
from ..ports.api import Parts, api
from ..ports.context import RequestContext

NO_TRANSACTION = -1


def handle(request: DescribeProducersRequest, context: RequestContext) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _describe(topic.name, index, context) for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _describe(topic: str, partition: int, context: RequestContext) -> PartitionResponse:
    answer = PartitionResponse(partition_index=partition)
    try:
        check_topic_name(topic)
        producers = context.node.partitions.leader_of(topic, partition).log.local.producers
    except KafkaError as error:
        answer.error_code = error.code
        answer.error_message = str(error)
        return answer
    answer.active_producers = [
        ProducerState(
            producer_id=producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=producers.open_transactions.get(producer_id, NO_TRANSACTION),
        )
        for producer_id, entry in producers.entries.items()
    ]
    return answer


API = api(
    0,
    0,
    DescribeProducersRequest,
    handle,
    Parts("topics", "topics", 100, "partition_indexes", "partitions"),
    access=DESCRIBE_PRODUCERS,
)
