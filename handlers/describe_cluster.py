"""DescribeCluster (API key 60)."""

from __future__ import annotations

from ..protocol.error_code import ErrorCode
from ..protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from .context import RequestContext

BROKERS = 1


def handle(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    image = context.node.image
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="controllers have no listener of their own; ask with endpoint type 1",
            cluster_id=image.cluster_id,
        )
    nodes = image.nodes.values() if request.include_fenced_brokers else image.live_nodes()
    return DescribeClusterResponse(
        endpoint_type=BROKERS,
        cluster_id=image.cluster_id,
        controller_id=context.node.node_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=node.node_id,
                host=node.host,
                port=node.port,
                rack=node.rack,
                is_fenced=node.fenced,
            )
            for node in nodes
        ],
    )
