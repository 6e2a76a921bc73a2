"""ListConfigResources (API key 74): the resources that can have settings (KIP-1142).

Version 0 asks for client metrics subscriptions. Each node is listed as broker and as broker logger;
a group is listed if it has settings of its own.
"""

from __future__ import annotations

from ...cluster.control.config_control import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
)
from ...protocol.error_code import ErrorCode
from ...protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ..authorization.config_access import LIST_CONFIG_RESOURCES
from ..ports.api import api
from ..ports.context import RequestContext

SUPPORTED = frozenset({TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP})


def handle(
    request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    types = set(request.resource_types) or SUPPORTED
    if context.api_version == 0:
        types = frozenset({CLIENT_METRICS})
    if not types <= SUPPORTED:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    image = context.node.image
    resources: list[tuple[str, int]] = []
    if TOPIC in types:
        resources += [(name, TOPIC) for name in sorted(image.topics)]
    for kind in (BROKER, BROKER_LOGGER):
        if kind in types:
            resources += [(str(node.node_id), kind) for node in image.live_nodes()]
    for kind, names in ((CLIENT_METRICS, image.client_metrics), (GROUP, image.group_configs)):
        if kind in types:
            resources += [(name, kind) for name in sorted(names)]
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind) for name, kind in resources
        ]
    )


API = api(0, 1, ListConfigResourcesRequest, handle, access=LIST_CONFIG_RESOURCES)
