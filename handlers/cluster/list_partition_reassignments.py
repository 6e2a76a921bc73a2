"""ListPartitionReassignments (API key 46): replicas now being added and removed (KIP-455).

Without topics: all partitions. Unknown ones are omitted from the answer, as Apache Kafka does.
"""

from __future__ import annotations

from ...cluster.control.reassignment import ListPartitionReassignments
from ...protocol.errors import KafkaError
from ...protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ..authorization.cluster_access import LIST_PARTITION_REASSIGNMENTS
from ..ports.api import api
from ..ports.context import RequestContext


async def handle(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    asked = ListPartitionReassignments(
        topics=None
        if request.topics is None
        else tuple((topic.name, tuple(topic.partition_indexes)) for topic in request.topics)
    )
    try:
        found = await context.node.controller.change(asked, timeout_ms=request.timeout_ms)
    except KafkaError as error:
        return ListPartitionReassignmentsResponse(error_code=error.code, error_message=str(error))
    topics: dict[str, OngoingTopicReassignment] = {}
    for name, number, partition in found:
        topic = topics.setdefault(name, OngoingTopicReassignment(name=name))
        topic.partitions.append(
            OngoingPartitionReassignment(
                partition_index=number,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding),
                removing_replicas=list(partition.removing),
            )
        )
    return ListPartitionReassignmentsResponse(error_message=None, topics=list(topics.values()))


API = api(0, 0, ListPartitionReassignmentsRequest, handle, access=LIST_PARTITION_REASSIGNMENTS)
