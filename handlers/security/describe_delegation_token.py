"""DescribeDelegationToken (API key 41): tokens of owners, to those who may see them.

Source: KafkaApis.scala, DelegationTokenManager.filterToken. A client that is neither owner nor
renewer needs rights: see authorization/token_access.
"""

from __future__ import annotations

from ...cluster.metadata.user_records import DelegationTokenRecord
from ...cluster.security.sasl.delegation_token import principal_of, token_hmac
from ...protocol.errors import KafkaError
from ...protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ...protocol.principal import Principal
from ..authorization.token_access import DESCRIBE_DELEGATION_TOKEN
from ..ports.api import api
from ..ports.context import RequestContext
from .token_requests import token_key


def handle(
    request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    try:
        key = token_key(context)
    except KafkaError as error:
        return DescribeDelegationTokenResponse(error_code=error.code)
    owners = None
    if request.owners is not None:
        owners = {
            str(Principal(each.principal_type, each.principal_name)) for each in request.owners
        }
    return DescribeDelegationTokenResponse(
        tokens=[
            _described(token, key)
            for token in context.node.image.delegation_tokens.values()
            if owners is None or not owners.isdisjoint((token.owner, *token.renewers))
        ]
    )


def _described(token: DelegationTokenRecord, key: bytes) -> DescribedDelegationToken:
    owner, requester = principal_of(token.owner), principal_of(token.requester)
    renewers = [principal_of(each) for each in token.renewers]
    return DescribedDelegationToken(
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiry_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=token_hmac(key, token.token_id),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=each.kind, principal_name=each.name)
            for each in renewers
        ],
    )


API = api(1, 3, DescribeDelegationTokenRequest, handle, access=DESCRIBE_DELEGATION_TOKEN)
