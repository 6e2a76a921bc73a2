"""UnregisterBroker (API key 64): remove a node that will not come back from the metadata.

Unlike Apache Kafka it is refused while the node is in service, is a metadata voter or still has
replicas: the metadata would refer to an unknown node.
"""

from __future__ import annotations

from ...cluster.control.node_control import UnregisterBroker
from ...protocol.errors import KafkaError
from ...protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from ..authorization.cluster_access import UNREGISTER_BROKER
from ..ports.api import api
from ..ports.context import RequestContext

TIMEOUT_MS = 5_000


async def handle(
    request: UnregisterBrokerRequest, context: RequestContext
) -> UnregisterBrokerResponse:
    try:
        await context.node.controller.change(
            UnregisterBroker(node_id=request.broker_id), timeout_ms=TIMEOUT_MS
        )
    except KafkaError as error:
        return UnregisterBrokerResponse(error_code=error.code, error_message=str(error))
    return UnregisterBrokerResponse(error_message=None)


API = api(0, 0, UnregisterBrokerRequest, handle, access=UNREGISTER_BROKER)
