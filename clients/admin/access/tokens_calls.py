"""What Admin has of delegation tokens."""

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
    """Mixed into Admin. Every call raises ConnectionFailed and RequestTimedOut as Admin's do.

    DelegationTokenAuthDisabled: the brokers have no delegation.token.secret.key.
    DelegationTokenRequestNotAllowed: it is not known who asks, or by a token alone.
    """

    _client: ClusterClient
    _timeout_ms: int

    def create_delegation_token(
        self,
        *,
        renewers: Iterable[str] = (),
        owner: str | None = None,
        max_lifetime_ms: int = -1,
    ) -> DelegationToken:
        """Have a token made (KIP-48), for oneself or `owner`, "User:bob".

        renewers: principals who may renew and end it, as its owner may.
        max_lifetime_ms: -1 for the brokers' delegation.token.max.lifetime.ms, which is the most.

        Raises:
            DelegationTokenAuthorizationFailed: for another needs the right CREATE_TOKENS.
            InvalidPrincipalType: another than User.
            ValueError: a principal without its type.
        """
        return self._of_tokens(
            create_delegation_token(self._client, renewers, owner, max_lifetime_ms)
        )

    def renew_delegation_token(self, hmac: bytes, *, renew_time_period_ms: int = -1) -> int:
        """Say how long a token is good from now on; returns its expiry, milliseconds since 1970.

        renew_time_period_ms: -1 for the brokers' delegation.token.expiry.time.ms, the most. Never
        beyond its max_timestamp.

        Raises:
            DelegationTokenNotFound, DelegationTokenExpired
            DelegationTokenOwnerMismatch: neither its owner nor a renewer asks.
        """
        return self._of_tokens(renew_delegation_token(self._client, hmac, renew_time_period_ms))

    def expire_delegation_token(self, hmac: bytes, *, expiry_time_period_ms: int = -1) -> int:
        """Say when a token is over, from now; returns its expiry, milliseconds since 1970.

        expiry_time_period_ms: negative for at once.

        Raises:
            DelegationTokenNotFound, DelegationTokenExpired
            DelegationTokenOwnerMismatch: neither its owner nor a renewer asks.
        """
        return self._of_tokens(expire_delegation_token(self._client, hmac, expiry_time_period_ms))

    def describe_delegation_token(
        self, owners: Iterable[str] | None = None
    ) -> list[DelegationToken]:
        """The tokens that this client may see, with their HMACs; of these owners, or all."""
        return self._of_tokens(describe_delegation_token(self._client, owners))

    def _of_tokens(self, steps: Steps[T]) -> T:
        return self._client.run(steps, self._timeout_ms)
