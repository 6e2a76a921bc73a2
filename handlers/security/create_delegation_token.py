"""CreateDelegationToken (API key 38): a temporary secret to log in with, for oneself or others.

Source: ControllerApis.scala, DelegationTokenControlManager.java.
"""

from __future__ import annotations

from ...cluster.control.access.token_control import CreateDelegationToken
from ...cluster.metadata.user_records import DelegationTokenRecord
from ...cluster.security.sasl.delegation_token import token_hmac
from ...protocol.errors import InvalidPrincipalType, KafkaError
from ...protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ...protocol.principal import Principal
from ..authorization.token_access import CREATE_DELEGATION_TOKEN, owner_of
from ..ports.api import api
from ..ports.context import RequestContext
from .token_requests import WAIT_MS, token_key


async def handle(
    request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    requester, owner = context.session.principal, owner_of(request, context)
    response = CreateDelegationTokenResponse(
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
    try:
        key = token_key(context)
        if any(each.principal_type != "User" for each in request.renewers) or owner.kind != "User":
            raise InvalidPrincipalType("owners and renewers must be principals of type User")
        token = _token(request, context, owner)
        change = CreateDelegationToken(token=token, now_ms=token.issue_timestamp)
        await context.node.controller.change(change, timeout_ms=WAIT_MS)
    except KafkaError as error:
        response.error_code = error.code
        return response
    response.issue_timestamp_ms = token.issue_timestamp
    response.expiry_timestamp_ms = token.expiry_timestamp
    response.max_timestamp_ms = token.max_timestamp
    response.token_id = token.token_id
    response.hmac = token_hmac(key, token.token_id)
    return response


def _token(
    request: CreateDelegationTokenRequest, context: RequestContext, owner: Principal
) -> DelegationTokenRecord:
    node, config = context.node, context.node.server_config.security
    now_ms = node.now_ms()
    lifetime_ms = config.delegation_token_max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    renewers = (Principal(each.principal_type, each.principal_name) for each in request.renewers)
    return DelegationTokenRecord(
        token_id=str(node.new_id()),
        owner=str(owner),
        requester=str(context.session.principal),
        renewers=tuple(str(each) for each in renewers),
        issue_timestamp=now_ms,
        max_timestamp=now_ms + lifetime_ms,
        expiry_timestamp=now_ms + min(lifetime_ms, config.delegation_token_expiry_time_ms),
    )


API = api(1, 3, CreateDelegationTokenRequest, handle, access=CREATE_DELEGATION_TOKEN)
