"""ListTransactions (API key 66): the transactional ids that this node coordinates (KIP-664).

A client sends it to every node and concatenates the lists. Filters are by state, by producer id, by
how long a transaction has been open (v1, KIP-994), and by a pattern of the whole id (v2, KIP-1152).
An unknown state is listed in the answer, and matches nothing.
Source: TransactionStateManager.listTransactionStates.
"""

from __future__ import annotations

import asyncio

from ...protocol.error_code import ErrorCode
from ...protocol.errors import KafkaError
from ...protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState as ListedTransaction,
)
from ...transactions.transaction_metadata import TransactionMetadata
from ...transactions.transaction_state import TransactionState
from ..authorization.transaction_access import LIST_TRANSACTIONS
from ..ports.api import api
from ..ports.context import RequestContext
from .linear_pattern import InvalidPattern, LinearPattern

IDS_AT_A_TIME = 200
_STATES = {state.title: state for state in TransactionState}


async def handle(
    request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    transactions = context.node.transactions
    if transactions is None:
        return ListTransactionsResponse()
    try:
        shards = transactions.shards()
        pattern = _pattern(request)
    except InvalidPattern:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.code)
    response = ListTransactionsResponse(
        unknown_state_filters=[each for each in request.state_filters if each not in _STATES]
    )
    now_ms = context.node.now_ms()
    for shard in shards:
        known = list(shard.transactions())
        for start in range(0, len(known), IDS_AT_A_TIME):
            response.transaction_states += [
                ListedTransaction(
                    transactional_id=name,
                    producer_id=metadata.producer_id,
                    transaction_state=metadata.state.title,
                )
                for name, metadata in known[start : start + IDS_AT_A_TIME]
                if _passes(request, metadata, now_ms) and (pattern is None or pattern.matches(name))
            ]
            await asyncio.sleep(0)  # there may be thousands: other requests run in between
    return response


def _pattern(request: ListTransactionsRequest) -> LinearPattern | None:
    """Compile the pattern of the request; None without one. Raises InvalidPattern."""
    text = request.transactional_id_pattern
    return LinearPattern(text) if text else None


def _passes(request: ListTransactionsRequest, metadata: TransactionMetadata, now_ms: int) -> bool:
    if request.producer_id_filters and metadata.producer_id not in request.producer_id_filters:
        return False
    if request.state_filters and metadata.state.title not in request.state_filters:
        return False
    return request.duration_filter < 0 or now_ms - metadata.start_ms > request.duration_filter


API = api(0, 2, ListTransactionsRequest, handle, access=LIST_TRANSACTIONS)
