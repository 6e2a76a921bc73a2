"""AlterPartitionReassignments (API key 45): other replicas for partitions (KIP-455).

Rules: cluster/control/reassignment.
"""

from __future__ import annotations

from ...cluster.control.reassignment import AlterPartitionReassignments, PartitionReassignment
from ...protocol.errors import KafkaError
from ...protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ..authorization.cluster_access import ALTER_PARTITION_REASSIGNMENTS
from ..ports.api import api
from ..ports.context import RequestContext


async def handle(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    wanted = tuple(
        (
            topic.name,
            tuple(
                PartitionReassignment(
                    each.partition_index, None if each.replicas is None else tuple(each.replicas)
                )
                for each in topic.partitions
            ),
        )
        for topic in request.topics
    )
    allowed = request.allow_replication_factor_change
    try:
        answer = await context.node.controller.change(
            AlterPartitionReassignments(topics=wanted, allows_other_factor=allowed),
            timeout_ms=request.timeout_ms,
        )
    except KafkaError as error:
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=allowed,
            error_code=error.code,
            error_message=str(error),
        )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=allowed,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=each.partition,
                        error_code=each.outcome.code,
                        error_message=each.outcome.message,
                    )
                    for each in partitions
                ],
            )
            for topic, partitions in answer
        ],
    )


API = api(0, 1, AlterPartitionReassignmentsRequest, handle, access=ALTER_PARTITION_REASSIGNMENTS)
