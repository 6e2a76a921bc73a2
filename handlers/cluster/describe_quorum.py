"""DescribeQuorum (API key 55): voters and observers of the metadata log, with their log end offsets
(KIP-595, KIP-836).

The controller is not a Kafka node here, and tools look for the leader among the voters: it is
reported as the voter with the highest log end offset (of several the lowest node id), or lags would
be computed from a voter that has fallen behind. A voter is shown as the node whose directory it is;
observers are the other nodes, which apply the metadata.
A node's last fetch is its last poll of the controller, at most about two seconds apart; as in Kafka
the leader's timestamps are the time of the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from ...cluster.control.poll_times import PollTime
from ...cluster.metadata.metadata_image import NodeImage
from ...controller.controller_calls import DescribeQuorum, QuorumState
from ...protocol.errors import KafkaError, UnknownTopicOrPartition
from ...protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionDataResponse,
    ReplicaState,
    TopicDataResponse,
)
from ...protocol.schema import ZERO_UUID
from ...protocol.topic_name import METADATA_TOPIC
from ..authorization.cluster_access import DESCRIBE_QUORUM
from ..ports.api import api
from ..ports.context import RequestContext

NOBODY = -1
"""Node id of a voter whose directory belongs to no node, as its disk was replaced."""


async def handle(request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
    asked = [
        (topic.topic_name, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    ]
    if len(request.topics) != 1 or asked != [(METADATA_TOPIC, 0)]:
        return _refused(request)
    try:
        state = await context.node.controller.ask(DescribeQuorum())
    except KafkaError as error:
        return DescribeQuorumResponse(error_code=error.code, error_message=str(error))
    return DescribeQuorumResponse(
        error_message=None,
        topics=[
            TopicDataResponse(
                topic_name=topic.topic_name,
                partitions=[_answer(state, context)],
            )
            for topic in request.topics
        ],
        nodes=[
            Node(node_id=node.node_id, listeners=_listeners(node, context))
            for node in context.node.image.nodes.values()
            if node.metadata_directory_id in state.voters
        ],
    )


def _listeners(node: NodeImage, context: RequestContext) -> list[Listener]:
    endpoint = context.endpoint_of(node)
    return [] if endpoint is None else [Listener(*endpoint)]


def _refused(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Refuse the whole request, as in Kafka, if it asks about any other topic or partition."""
    error = UnknownTopicOrPartition("only partition 0 of __cluster_metadata can be described")
    return DescribeQuorumResponse(
        error_message=None,
        topics=[
            TopicDataResponse(
                topic_name=topic.topic_name,
                partitions=[
                    PartitionDataResponse(
                        partition_index=each.partition_index,
                        error_code=error.code,
                        error_message=str(error),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _answer(state: QuorumState, context: RequestContext) -> PartitionDataResponse:
    nodes = context.node.image.nodes.values()
    voting = {node.node_id: node for node in nodes if node.metadata_directory_id in state.voters}
    owners = {node.metadata_directory_id: node_id for node_id, node in voting.items()}
    leader_id, now_ms = _leader(owners, state), context.node.now_ms()

    def replica(node_id: int, directory_id: str, log_end_offset: int) -> ReplicaState:
        last_ms, caught_up_ms = state.polls.get(node_id, PollTime())
        if node_id == leader_id != NOBODY:
            last_ms = caught_up_ms = now_ms
        return ReplicaState(
            replica_id=node_id,
            replica_directory_id=_uuid(directory_id),
            log_end_offset=log_end_offset,
            last_fetch_timestamp=last_ms,
            last_caught_up_timestamp=caught_up_ms,
        )

    return PartitionDataResponse(
        partition_index=0,
        error_message=None,
        leader_id=leader_id,
        leader_epoch=state.epoch,
        high_watermark=state.high_watermark,
        current_voters=[
            replica(node_id, directory_id, state.voters[directory_id])
            for node_id, directory_id in sorted(
                (owners.get(directory_id, NOBODY), directory_id) for directory_id in state.voters
            )
        ],
        observers=[
            replica(node.node_id, node.metadata_directory_id, state.applied.get(node.node_id, -1))
            for node in nodes
            if node.node_id not in voting and not node.fenced
        ],
    )


def _leader(owners: Mapping[str, int], state: QuorumState) -> int:
    ends = ((state.voters[directory], -node_id) for directory, node_id in owners.items())
    return -max(ends, default=(0, 1))[1]


def _uuid(directory_id: str) -> UUID:
    try:
        return UUID(directory_id)
    except ValueError:
        return ZERO_UUID


API = api(0, 2, DescribeQuorumRequest, handle, access=DESCRIBE_QUORUM)
