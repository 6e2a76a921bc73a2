"""Rights to create delegation tokens for others, and to see them. Source: KafkaApis.scala.

Owners and renewers may see their tokens without further rights.
"""

from __future__ import annotations

from typing import Any

from ...protocol.error_code import ErrorCode
from ...protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ...protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ...protocol.principal import Principal
from ...protocol.security.acl_binding import AclOperation, ResourceType
from ..ports.access import Access, Need, Rights
from ..ports.context import RequestContext
from .guarding import Handle, then

CREATE_TOKENS, DESCRIBE_TOKENS = AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS
DESCRIBE = AclOperation.DESCRIBE
REFUSED = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED


def owner_of(request: CreateDelegationTokenRequest, context: RequestContext) -> Principal:
    """Owner of the token to be created; by default the requesting principal."""
    if not request.owner_principal_name:
        return context.session.principal
    return Principal(request.owner_principal_type or "", request.owner_principal_name)


def _guard_creation(
    request: CreateDelegationTokenRequest, context: RequestContext, rights: Rights, handle: Handle
) -> Any:
    owner, requester = owner_of(request, context), context.session.principal
    if owner == requester or rights.may(CREATE_TOKENS, ResourceType.USER, str(owner)):
        return handle(request, context)
    return CreateDelegationTokenResponse(
        error_code=REFUSED,
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
    )


def _guard_description(
    request: DescribeDelegationTokenRequest, context: RequestContext, rights: Rights, handle: Handle
) -> Any:
    asker = context.session.principal

    def may_see(token: DescribedDelegationToken) -> bool:
        owner = Principal(token.principal_type, token.principal_name)
        renewers = (Principal(each.principal_type, each.principal_name) for each in token.renewers)
        return (
            asker == owner
            or asker in renewers
            or rights.may(DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id, asks=True)
            or rights.may(DESCRIBE_TOKENS, ResourceType.USER, str(owner), asks=True)
        )

    def finish(answer: DescribeDelegationTokenResponse) -> DescribeDelegationTokenResponse:
        answer.tokens = [token for token in answer.tokens if may_see(token)]
        return answer

    return then(handle(request, context), finish)


CREATE_DELEGATION_TOKEN = Access(
    (Need(CREATE_TOKENS, ResourceType.USER, REFUSED.name, "the owner, if another"),),
    _guard_creation,
)
DESCRIBE_DELEGATION_TOKEN = Access(
    (
        Need(DESCRIBE, ResourceType.DELEGATION_TOKEN, what="of others"),
        Need(DESCRIBE_TOKENS, ResourceType.USER, what="or that of the owner"),
    ),
    _guard_description,
)
