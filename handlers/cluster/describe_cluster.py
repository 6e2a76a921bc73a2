"""DescribeCluster (API key 60): brokers, controller id, and authorized operations on the cluster.

The controller id is that of the answering node, which forwards admin requests. Controllers have no
listener, so a request for their endpoints is answered with MISMATCHED_ENDPOINT_TYPE, as a broker of
Apache Kafka does. Source: AuthHelper, KafkaApis.
"""

from __future__ import annotations

from ...protocol.error_code import ErrorCode
from ...protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ..authorization.cluster_access import DESCRIBE_CLUSTER
from ..ports.api import api
from ..ports.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED
from ..ports.context import RequestContext

BROKERS = 1
CONTROLLERS = 2


def handle(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    image = context.node.image
    if request.endpoint_type != BROKERS:
        is_known = request.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            error_code=(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE
                if is_known
                else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            ),
            error_message="this is a broker; use endpoint type 1",
            endpoint_type=BROKERS,
        )
    nodes = image.nodes.values() if request.include_fenced_brokers else image.live_nodes()
    return DescribeClusterResponse(
        error_message=None,
        endpoint_type=BROKERS,
        cluster_id=image.cluster_id,
        controller_id=context.node.node_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=node.node_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=node.rack,
                is_fenced=node.fenced,
            )
            for node in nodes
            if (endpoint := context.endpoint_of(node)) is not None
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


API = api(0, 2, DescribeClusterRequest, handle, access=DESCRIBE_CLUSTER)
