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

    reply: bytes for the client; may be empty.
    principal_name: name of the client's principal, of type User; None: the exchange continues.
    expires_at_ms: when the authentication expires, with its credential; None: never.
    is_token: the client used a delegation token.
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
            SaslAuthenticationFailed: its text is for the client, so it neither reveals whether the
                user exists nor repeats the client's bytes.
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
