"""Throttling: a response has a throttle time, and its connection is muted for it (KIP-219).

The response is sent at once, with throttle_time_ms, the longest throttle time of the client's
quotas; then the connection is not read from for that time. With acks=0 there is no response, but
the connection is muted. Requests that only brokers send are exempt, among them the verification of
transactions: it is made for a producer that has a quota of its own. Fetch is throttled elsewhere,
before its response changes its session: see records/throttled_fetch.
Source: KafkaApis.handleProduceRequest, RequestHandlerHelper in apache/kafka.
"""

from __future__ import annotations

from typing import Any, Final

from ...protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from ...protocol.messages.produce import ProduceRequest
from ...protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from ..ports.api import Api
from ..ports.context import RequestContext
from ..ports.produce_answer import ProducedBatch, as_response
from ..ports.quota_port import Quotas

PRODUCE: Final = ProduceRequest.API_KEY
OF_BROKERS: Final = {WriteTxnMarkersRequest.API_KEY: 0, AddPartitionsToTxnRequest.API_KEY: 4}
"""First version that only brokers send, by API key."""


def throttle(response: Any, api: Api, context: RequestContext, quotas: Quotas) -> Any:
    """Set the throttle time in a response, and mute its client's connection for that time."""
    if api.key in OF_BROKERS and context.api_version >= OF_BROKERS[api.key]:
        return response
    quota = "request"
    throttle_ms = 0
    if api.key == PRODUCE:
        quota, throttle_ms = "produce", quotas.produced(context)
    elif asked := getattr(response, "throttle_time_ms", 0):
        quota, throttle_ms = "controller_mutation", asked
    if response is not None and (handled_ms := quotas.handled(context)) > throttle_ms:
        quota, throttle_ms = "request", handled_ms
    if not throttle_ms:
        return response
    quotas.hold(context, quota, throttle_ms)
    if isinstance(response, ProducedBatch):
        response = as_response(response)
    if hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = throttle_ms
    return response
