"""Methods of Admin for delegation tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from ...threads.io_thread import Steps
from ...wire.cluster_client import ClusterClient
from .tokens_admin import (
    DelegationToken,
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)

T = TypeVar("T")


class TokensCalls:
    """Part of Admin. Every call raises ConnectionFailed and RequestTimedOut as Admin's do.

    DelegationTokenAuthDisabled: the brokers have no delegation.token.secret.key.
    DelegationTokenRequestNotAllowed: this client is anonymous, or authenticated by a token.
    """

    def __init__(self, client: ClusterClient, timeout_ms: int) -> None:
        self._client = client
        self._timeout_ms = timeout_ms

    def create_delegation_token(
        self,
        *,
        renewers: Iterable[str] = (),
        owner: str | None = None,
        max_lifetime_ms: int = -1,
    ) -> DelegationToken:
        """Create a token (KIP-48), for this client's user or for `owner`, "User:bob".

        renewers: principals that may renew and expire it, as its owner may.
        max_lifetime_ms: -1 for the brokers' delegation.token.max.lifetime.ms, the maximum.

        Raises:
            DelegationTokenAuthorizationFailed: another owner needs the right CREATE_TOKENS.
            InvalidPrincipalType: a principal of another type than User.
            ValueError: a principal without its type.
        """
        return self._of_tokens(
            create_delegation_token(self._client, renewers, owner, max_lifetime_ms)
        )

    def renew_delegation_token(self, hmac: bytes, *, renew_time_period_ms: int = -1) -> int:
        """Set a token's expiry, relative to now; return it in milliseconds since 1970.

        renew_time_period_ms: -1 for the brokers' delegation.token.expiry.time.ms, the maximum. The
        expiry is never after max_timestamp.

        Raises:
            DelegationTokenNotFound, DelegationTokenExpired
            DelegationTokenOwnerMismatch: this client is neither its owner nor a renewer.
        """
        return self._of_tokens(renew_delegation_token(self._client, hmac, renew_time_period_ms))

    def expire_delegation_token(self, hmac: bytes, *, expiry_time_period_ms: int = -1) -> int:
        """Expire a token at a time from now; return its expiry in milliseconds since 1970.

        expiry_time_period_ms: a negative value expires it at once.

        Raises:
            DelegationTokenNotFound, DelegationTokenExpired
            DelegationTokenOwnerMismatch: this client is neither its owner nor a renewer.
        """
        return self._of_tokens(expire_delegation_token(self._client, hmac, expiry_time_period_ms))

    def describe_delegation_token(
        self, owners: Iterable[str] | None = None
    ) -> list[DelegationToken]:
        """Tokens that this client may describe, with their HMACs; of these owners, or all."""
        return self._of_tokens(describe_delegation_token(self._client, owners))

    def _of_tokens(self, steps: Steps[T]) -> T:
        return self._client.run(steps, self._timeout_ms)
