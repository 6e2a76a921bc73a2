"""Delegation tokens (KIP-48): create, renew, expire and describe, as steps for Admin.

Source: KafkaAdminClient (createDelegationToken, ...), TokenInformation in apache/kafka.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from ....protocol.error_code import ErrorCode
from ....protocol.errors import KafkaError, error_for
from ....protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ....protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ....protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from ....protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from ....protocol.principal import Principal
from ...threads.io_thread import Steps
from ...wire.cluster_client import ClusterClient

REASONS: Final[Mapping[int, str]] = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: (
        "delegation tokens are disabled: the brokers have no delegation.token.secret.key"
    ),
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "only a client that has logged in by a password or certificate, not by a token, can use "
        "delegation tokens: give its settings (`bradbury --client-config FILE`), to a cluster "
        "whose listener asks for them (`bradbury up --secure`)"
    ),
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "use the token as its owner or a renewer",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "there is no token with this HMAC; it may have expired",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "the token has expired; create another one",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: (
        "creating a token for another user needs the right CREATE_TOKENS on that user"
    ),
    ErrorCode.INVALID_PRINCIPAL_TYPE: "use owners and renewers of type User, as in User:alice",
}


@dataclass(frozen=True, slots=True)
class TokenInformation:
    """Delegation token without its HMAC. Principals as "User:alice"; times in ms since 1970."""

    token_id: str
    owner: str
    token_requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """Delegation token with its HMAC: SCRAM credentials, the token's id and the HMAC in base64."""

    token_info: TokenInformation
    hmac: bytes = field(repr=False)

    @property
    def hmac_as_base64_string(self) -> str:
        return base64.b64encode(self.hmac).decode()


class _Names(Protocol):
    """Common fields of the two responses that describe a token."""

    principal_type: str
    principal_name: str
    token_requester_principal_type: str
    token_requester_principal_name: str


def create_delegation_token(
    client: ClusterClient, renewers: Iterable[str], owner: str | None, max_lifetime_ms: int
) -> Steps[DelegationToken]:
    """See Admin.create_delegation_token. Not retried: it would create another token."""
    who = [_principal(each) for each in renewers]
    whose = _principal(owner) if owner else Principal("", "")
    request = CreateDelegationTokenRequest(
        owner_principal_type=whose.kind,
        owner_principal_name=whose.name,
        renewers=[
            CreatableRenewers(principal_type=each.kind, principal_name=each.name) for each in who
        ],
        max_lifetime_ms=max_lifetime_ms,
    )
    made = yield from client.send_to_any(request, CreateDelegationTokenResponse, repeatable=False)
    if made.error_code:
        raise _refusal(made.error_code)
    owner_of_it, requester = _owner_and_requester(made)
    information = TokenInformation(
        made.token_id,
        owner_of_it,
        requester,
        tuple(str(each) for each in who),
        made.issue_timestamp_ms,
        made.expiry_timestamp_ms,
        made.max_timestamp_ms,
    )
    return DelegationToken(information, bytes(made.hmac))


def renew_delegation_token(client: ClusterClient, hmac: bytes, period_ms: int) -> Steps[int]:
    """See Admin.renew_delegation_token. Retried, as it is idempotent."""
    request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    response = yield from client.send_to_any(request, RenewDelegationTokenResponse)
    if response.error_code:
        raise _refusal(response.error_code)
    return response.expiry_timestamp_ms


def expire_delegation_token(client: ClusterClient, hmac: bytes, period_ms: int) -> Steps[int]:
    """See Admin.expire_delegation_token. Not retried: an expired token cannot be found again."""
    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    response = yield from client.send_to_any(
        request, ExpireDelegationTokenResponse, repeatable=False
    )
    if response.error_code:
        raise _refusal(response.error_code)
    return response.expiry_timestamp_ms


def describe_delegation_token(
    client: ClusterClient, owners: Iterable[str] | None
) -> Steps[list[DelegationToken]]:
    """See Admin.describe_delegation_token."""
    who = None if owners is None else [_principal(each) for each in owners]
    request = DescribeDelegationTokenRequest(
        owners=None
        if who is None
        else [
            DescribeDelegationTokenOwner(principal_type=each.kind, principal_name=each.name)
            for each in who
        ]
    )
    response = yield from client.send_to_any(request, DescribeDelegationTokenResponse)
    if response.error_code:
        raise _refusal(response.error_code)
    found = []
    for each in response.tokens:
        owner, requester = _owner_and_requester(each)
        information = TokenInformation(
            each.token_id,
            owner,
            requester,
            tuple(str(Principal(one.principal_type, one.principal_name)) for one in each.renewers),
            each.issue_timestamp,
            each.expiry_timestamp,
            each.max_timestamp,
        )
        found.append(DelegationToken(information, bytes(each.hmac)))
    return sorted(found, key=lambda each: (each.token_info.owner, each.token_info.issue_timestamp))


def _refusal(code: int) -> KafkaError:
    """Error with a message: the responses of these APIs have none."""
    return error_for(code, REASONS.get(code))


def _owner_and_requester(answer: _Names) -> tuple[str, str]:
    """Return owner and requester; for brokers before Kafka 3.3 the owner is the requester."""
    owner = Principal(answer.principal_type, answer.principal_name)
    requester = Principal(
        answer.token_requester_principal_type, answer.token_requester_principal_name
    )
    return str(owner), str(requester if requester.name else owner)


def _principal(text: str) -> Principal:
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise ValueError(f"principal {text!r}: use User:{text}")
    return Principal(kind, name)
