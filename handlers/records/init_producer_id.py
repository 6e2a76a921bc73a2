"""InitProducerId (API key 22): a fresh producer id for an idempotent producer.

A producer that names the id it had gets a new one, as in Apache Kafka. Ids come in blocks from the
controller, which never gives one out twice. Transactions are not there yet: a transactional id is
refused with a code that clients report as it is.
"""

from __future__ import annotations

from ...protocol.error_code import ErrorCode
from ...protocol.errors import KafkaError
from ...protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ..ports.api import api
from ..ports.context import RequestContext


async def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    refused = InitProducerIdResponse(producer_id=-1, producer_epoch=-1)
    if request.transactional_id is not None:
        refused.error_code = (
            ErrorCode.INVALID_REQUEST
            if not request.transactional_id
            else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        )
        return refused
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        refused.error_code = ErrorCode.INVALID_REQUEST  # one without the other says nothing
        return refused
    try:
        producer_id = await context.node.producer_ids.next()
    except KafkaError as error:
        refused.error_code = error.code
        return refused
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


API = api(0, 5, InitProducerIdRequest, handle)
