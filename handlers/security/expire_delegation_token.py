"""ExpireDelegationToken (API key 40): its owner or a renewer sets the expiry time.

With a negative period the token expires at once.

Source: ControllerApis.scala, DelegationTokenControlManager.java.
"""

from __future__ import annotations

from ...cluster.control.access.token_control import ExtendDelegationToken
from ...cluster.security.sasl.delegation_token import find_token
from ...protocol.errors import DelegationTokenNotFound, KafkaError
from ...protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from ..ports.access import EVERYBODY
from ..ports.api import api
from ..ports.context import RequestContext
from .token_requests import WAIT_MS, token_key


async def handle(
    request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    node = context.node
    try:
        token = find_token(node.image, token_key(context), bytes(request.hmac))
        if token is None:
            raise DelegationTokenNotFound
        change = ExtendDelegationToken(
            token_id=token.token_id,
            principal=str(context.session.principal),
            period_ms=request.expiry_time_period_ms,
            now_ms=node.now_ms(),
        )
        expiry_timestamp_ms = await node.controller.change(change, timeout_ms=WAIT_MS)
    except KafkaError as error:
        return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry_timestamp_ms)


API = api(1, 2, ExpireDelegationTokenRequest, handle, access=EVERYBODY)
