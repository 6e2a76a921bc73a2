"""RenewDelegationToken (API key 39): its owner or a renewer extends its lifetime.

Source: ControllerApis.scala, DelegationTokenControlManager.java.
"""

from __future__ import annotations

from ...cluster.control.access.token_control import ExtendDelegationToken
from ...cluster.security.sasl.delegation_token import find_token
from ...protocol.errors import DelegationTokenNotFound, KafkaError
from ...protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from ..ports.access import EVERYBODY
from ..ports.api import api
from ..ports.context import RequestContext
from .token_requests import WAIT_MS, token_key


async def handle(
    request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    node = context.node
    period_ms = node.server_config.security.delegation_token_expiry_time_ms
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    try:
        token = find_token(node.image, token_key(context), bytes(request.hmac))
        if token is None:
            raise DelegationTokenNotFound
        change = ExtendDelegationToken(
            token_id=token.token_id,
            principal=str(context.session.principal),
            period_ms=period_ms,
            now_ms=node.now_ms(),
        )
        expiry_timestamp_ms = await node.controller.change(change, timeout_ms=WAIT_MS)
    except KafkaError as error:
        return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expiry_timestamp_ms)


API = api(1, 2, RenewDelegationTokenRequest, handle, access=EVERYBODY)
