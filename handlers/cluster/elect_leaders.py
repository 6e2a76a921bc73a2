"""ElectLeaders (API key 43): preferred or unclean leader election of partitions.

Version 0 has only preferred elections. Rules: cluster/control/partition_control.
"""

from __future__ import annotations

from ...cluster.control.partition_control import ElectLeaders
from ...protocol.errors import KafkaError
from ...protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ..authorization.cluster_access import ELECT_LEADERS
from ..ports.api import api
from ..ports.context import RequestContext


async def handle(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    asked = request.topic_partitions
    wanted = None
    if asked is not None:
        wanted = tuple((topic.topic, tuple(topic.partitions)) for topic in asked)
    try:
        answer = await context.node.controller.change(
            ElectLeaders(election_type=request.election_type, partitions=wanted),
            timeout_ms=request.timeout_ms,
        )
    except KafkaError as error:
        return ElectLeadersResponse(
            error_code=error.code,
            replica_election_results=[
                ReplicaElectionResult(
                    topic=topic,
                    partition_result=[
                        PartitionResult(
                            partition_id=each, error_code=error.code, error_message=str(error)
                        )
                        for each in partitions
                    ],
                )
                for topic, partitions in wanted or ()
            ],
        )
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic,
                partition_result=[
                    PartitionResult(
                        partition_id=each.partition,
                        error_code=each.outcome.code,
                        error_message=each.outcome.message,
                    )
                    for each in partitions
                ],
            )
            for topic, partitions in answer
        ]
    )


API = api(0, 2, ElectLeadersRequest, handle, access=ELECT_LEADERS)
