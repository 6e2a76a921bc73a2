"""ListConfigResources (API key 74): the resources that can have settings (KIP-1142).

Version 0 asks for client metrics subscriptions, of which there are none.
"""

from __future__ import annotations

from ..cluster.config_control import BROKER, TOPIC
from ..protocol.error_code import ErrorCode
from ..protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from .context import RequestContext

BROKER_LOGGER = 8
CLIENT_METRICS = 16
GROUP = 32
SUPPORTED = frozenset({TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP})


def handle(
    request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    if context.api_version == 0:
        return ListConfigResourcesResponse()
    types = set(request.resource_types) or SUPPORTED
    if not types <= SUPPORTED:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    image = context.node.image
    resources = []
    if TOPIC in types:
        resources += [(name, TOPIC) for name in sorted(image.topics)]
    if BROKER in types:
        resources += [(str(node.node_id), BROKER) for node in image.live_nodes()]
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind) for name, kind in resources
        ]
    )
