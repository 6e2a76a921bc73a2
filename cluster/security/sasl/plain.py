"""SASL/PLAIN (RFC 4616): a name and a password in plain text. Source: PlainSaslServer."""

from __future__ import annotations

import hmac
from typing import Final

from ....protocol.errors import IllegalSaslState, SaslAuthenticationFailed
from .credentials import Credentials
from .sasl_server import SaslStep, invalid_credentials

MOST_BYTES: Final = 16 * 1024
_UNKNOWN_USER: Final = "\0"
"""Value that no password equals, as passwords end at a zero byte."""


class PlainServer:
    mechanism: Final = "PLAIN"

    def __init__(self, credentials: Credentials, *, is_repeated: bool = False) -> None:
        self._credentials = credentials
        self._is_repeated = is_repeated
        self._is_over = False

    def respond(self, token: bytes, *, now_ms: int) -> SaslStep:
        del now_ms  # passwords do not expire
        if self._is_over:
            raise IllegalSaslState("SASL/PLAIN is one message")
        self._is_over = True
        try:
            authorization_id, name, password = token.decode().split("\0")
        except ValueError:  # UnicodeDecodeError is one
            raise invalid_credentials(self.mechanism, is_repeated=self._is_repeated) from None
        if not name or not password or len(token) > MOST_BYTES:
            raise invalid_credentials(self.mechanism, is_repeated=self._is_repeated)
        expected = self._credentials.plain_password(name)
        # Compared for an unknown user, too, or the response time would reveal that it is unknown.
        known = _UNKNOWN_USER if expected is None else expected
        if not hmac.compare_digest(password.encode(), known.encode()):
            raise SaslAuthenticationFailed("Authentication failed: Invalid username or password")
        if authorization_id not in ("", name):
            raise SaslAuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        return SaslStep(reply=b"", principal_name=name)
