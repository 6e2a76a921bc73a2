"""Credentials of users, as the SASL mechanisms look them up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ....protocol.security.scram import ScramCredential


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCredential:
    """A delegation token (KIP-48), which logs in as its owner.

    owner: the name of a principal of type User.
    """

    owner: str
    credential: ScramCredential
    expires_at_ms: int


class Credentials(Protocol):
    """Source of credentials, asked in every exchange, so that a removed credential is no longer
    accepted.
    """

    def plain_password(self, user: str) -> str | None:
        """Password of a user for PLAIN; None: unknown user."""
        ...

    def scram(self, user: str, mechanism: str) -> ScramCredential | None: ...

    def delegation_token(self, token_id: str, mechanism: str) -> TokenCredential | None: ...
