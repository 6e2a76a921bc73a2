"""DescribeProducers (API key 61): the idempotent producers a partition's leader remembers."""

from __future__ import annotations

from ...cluster.topic_name import check_topic_name
from ...protocol.errors import KafkaError
from ...protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ..ports.api import Parts, api
from ..ports.context import RequestContext

NO_COORDINATOR = -1


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
        producers = context.node.partitions.leader_of(topic, partition).active_producers()
    except KafkaError as error:
        answer.error_code = error.code
        answer.error_message = str(error)
        return answer
    answer.active_producers = [
        ProducerState(
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            last_sequence=each.last_sequence,
            last_timestamp=each.last_timestamp,
            coordinator_epoch=NO_COORDINATOR,
            current_txn_start_offset=-1,
        )
        for each in producers
    ]
    return answer


API = api(
    0,
    0,
    DescribeProducersRequest,
    handle,
    Parts("topics", "topics", 100, "partition_indexes", "partitions"),
)
