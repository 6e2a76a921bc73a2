"""What mechanisms know of users."""

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
    """Asked anew in every exchange: what was removed meanwhile is not accepted."""

    def plain_password(self, user: str) -> str | None:
        """None: PLAIN does not know the user."""
        ...

    def scram(self, user: str, mechanism: str) -> ScramCredential | None: ...

    def delegation_token(self, token_id: str, mechanism: str) -> TokenCredential | None: ...
