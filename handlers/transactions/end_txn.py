"""EndTxn (API key 26): a producer commits its transaction, or aborts it.

Answered when the decision is in the coordinator's log. From version 5 on the client follows
transaction.version 2, and the answer has the producer id and epoch for its next transaction.
Source: KafkaApis.handleEndTxnRequest.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ...protocol.errors import KafkaError
from ...protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ...transactions.transaction_effects import InitializedProducer
from ..authorization.transaction_access import END_TXN
from ..ports.api import api
from ..ports.context import RequestContext
from .transactional_request import in_words_of, shard_of

FIRST_WITH_FENCED = 2
FIRST_WITH_EPOCH_BUMP = 5


async def handle(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    try:
        ended = await _end(request, context)
    except KafkaError as error:
        ended = InitializedProducer(error.code)
    return EndTxnResponse(
        error_code=in_words_of(ended.error, context, first_with_fenced=FIRST_WITH_FENCED),
        producer_id=ended.producer_id,
        producer_epoch=ended.producer_epoch,
    )


def _end(request: EndTxnRequest, context: RequestContext) -> Awaitable[InitializedProducer]:
    return shard_of(request.transactional_id, context).end(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        is_commit=request.committed,
        client_version=2 if context.api_version >= FIRST_WITH_EPOCH_BUMP else 0,
    )


API = api(0, 5, EndTxnRequest, handle, access=END_TXN)
