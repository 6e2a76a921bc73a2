"""InitProducerId (API key 22): allocates a producer id, or the next producer epoch.

A producer without a transactional id gets a new producer id, even if it sends its current one, as
in Apache Kafka. With one, the coordinator assigns the next epoch, and fences the previous producer
of that transactional id; a producer that sends its id and epoch recovers from an error (KIP-360).
Source: KafkaApis.handleInitProducerIdRequest, TransactionCoordinator.handleInitProducerId.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ...protocol.error_code import ErrorCode
from ...protocol.errors import InvalidTransactionTimeout, KafkaError
from ...protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ...transactions.transaction_effects import InitializedProducer
from ...transactions.transaction_metadata import NO_EPOCH, NO_PRODUCER_ID
from ..authorization.transaction_access import INIT_PRODUCER_ID
from ..ports.answer_or import answer_or
from ..ports.api import api
from ..ports.context import RequestContext
from .transactional_request import in_words_of, shard_of

FIRST_WITH_FENCED = 4


def handle(
    request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    has_id, has_epoch = request.producer_id != NO_PRODUCER_ID, request.producer_epoch != NO_EPOCH
    if has_id != has_epoch:  # an id without an epoch, or the reverse, is invalid
        return _answer(InitializedProducer(ErrorCode.INVALID_REQUEST), context)
    if request.transactional_id is None:
        return _without_transactions(context)
    answer = answer_or(
        lambda: _ask(request, request.transactional_id or "", context),
        lambda error: InitializedProducer(error.code),
    )
    if isinstance(answer, InitializedProducer):
        return _answer(answer, context)
    return _later(answer, context)


async def _without_transactions(context: RequestContext) -> InitProducerIdResponse:
    try:
        producer_id = await context.node.producer_ids.next()
    except KafkaError as error:
        return _answer(InitializedProducer(error.code), context)
    return _answer(InitializedProducer(ErrorCode.NONE, producer_id, 0), context)


def _ask(
    request: InitProducerIdRequest, transactional_id: str, context: RequestContext
) -> Awaitable[InitializedProducer]:
    """Ask the coordinator. The timeout is checked before the id, as in Kafka."""
    limits = context.node.server_config.transactions
    if transactional_id and not limits.may_time_out_after(request.transaction_timeout_ms):
        raise InvalidTransactionTimeout(
            f"transaction.timeout.ms is at most {limits.transaction_max_timeout_ms} here"
        )
    expected = None
    if request.producer_id != NO_PRODUCER_ID:
        expected = (request.producer_id, request.producer_epoch)
    return shard_of(transactional_id, context).init_producer_id(
        transactional_id, request.transaction_timeout_ms, expected=expected
    )


async def _later(
    answer: Awaitable[InitializedProducer], context: RequestContext
) -> InitProducerIdResponse:
    return _answer(await answer, context)


def _answer(producer: InitializedProducer, context: RequestContext) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=in_words_of(producer.error, context, first_with_fenced=FIRST_WITH_FENCED),
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
    )


API = api(0, 5, InitProducerIdRequest, handle, access=INIT_PRODUCER_ID)
