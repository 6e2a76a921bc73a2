"""One SASL exchange on the server's side: bytes of the client in, bytes for it out.

Source: javax.security.sasl.SaslServer as SaslServerAuthenticator in apache/kafka uses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ....protocol.errors import SaslAuthenticationFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslStep:
    """Result of a token of the client.

    reply: what the client is told; may hold nothing.
    principal_name: who it is, a KafkaPrincipal of type User; None: the exchange continues.
    expires_at_ms: when this authentication is over, with its credential; None: it is not.
    is_token: a delegation token was shown.
    """

    reply: bytes
    principal_name: str | None = None
    expires_at_ms: int | None = None
    is_token: bool = False


class SaslServer(Protocol):
    """Server of one exchange, on one connection. Not reusable after a failure or its end."""

    @property
    def mechanism(self) -> str: ...

    def respond(self, token: bytes, *, now_ms: int) -> SaslStep:
        """Evaluate a token of the client.

        Raises:
            SaslAuthenticationFailed: its text is for the client: it does not say whether there is
                such a user, nor repeats what the client has sent.
            IllegalSaslState: the exchange was over already.
        """
        ...


def invalid_credentials(mechanism: str, *, is_repeated: bool = False) -> SaslAuthenticationFailed:
    """Error in Kafka's words, for failures that are not explained to a client.

    is_repeated: the client was authenticated before, on the same connection (KIP-368).
    """
    what = "re-authentication" if is_repeated else "authentication"
    return SaslAuthenticationFailed(
        f"Authentication failed during {what} due to invalid credentials with SASL mechanism "
        f"{mechanism}"
    )
