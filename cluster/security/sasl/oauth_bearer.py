"""SASL/OAUTHBEARER (RFC 7628), the server's side.

    n,[a=NAME],^Aauth=Bearer TOKEN^A[name=value^A]...^A    -> nothing: authenticated
                                                           -> {"status":"invalid_token"}
    ^A                                                     -> that text once more, as an error

Extensions are ignored. Source: OAuthBearerSaslServer in apache/kafka.
"""

from __future__ import annotations

import re
from typing import Final

from ....protocol.errors import IllegalSaslState, SaslAuthenticationFailed
from ....protocol.security.scram import unescape_name
from .json_web_token import TokenRefused, TokenValidator
from .sasl_server import SaslStep, invalid_credentials

MOST_BYTES: Final = 128 * 1024
REFUSAL: Final = '{"status":"invalid_token"}'
_SEEN: Final = b"\x01"
_FIRST: Final = re.compile(
    r"n,(?:a=(?P<authzid>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,"
    r"\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_BEARER: Final = re.compile(r"bearer +(?P<token>[-_.a-zA-Z0-9]+)", re.IGNORECASE)


class OauthBearerServer:
    mechanism: Final = "OAUTHBEARER"

    def __init__(self, validator: TokenValidator, *, is_repeated: bool = False) -> None:
        self._validator = validator
        self._is_repeated = is_repeated
        self._is_over = False
        self._is_refused = False

    def respond(self, token: bytes, *, now_ms: int) -> SaslStep:
        if self._is_refused:
            self._is_refused = False
            self._is_over = True
            raise SaslAuthenticationFailed(REFUSAL) if token == _SEEN else self._invalid()
        if self._is_over:
            raise IllegalSaslState("SASL/OAUTHBEARER is one message")
        self._is_over = True
        authorization_id, bearer = self._parse(token)
        try:
            access = self._validator.validate(bearer, now_ms=now_ms)
        except TokenRefused:
            self._is_refused = True
            return SaslStep(reply=REFUSAL.encode())
        if authorization_id not in ("", access.principal_name):
            raise SaslAuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from the token's principal name"
            )
        return SaslStep(
            reply=b"",
            principal_name=access.principal_name,
            expires_at_ms=access.expires_at_ms,
        )

    def _parse(self, token: bytes) -> tuple[str, str]:
        try:
            found = _FIRST.fullmatch(token.decode()) if len(token) <= MOST_BYTES else None
            pairs = [] if found is None else found["pairs"].split("\x01")
            auth = dict(pair.split("=", 1) for pair in pairs if pair).get("auth", "")
            bearer = _BEARER.fullmatch(auth)
            if found is None or bearer is None:
                raise self._invalid()
            return unescape_name(found["authzid"] or ""), bearer["token"]
        except ValueError:  # UnicodeDecodeError is one
            raise self._invalid() from None

    def _invalid(self) -> SaslAuthenticationFailed:
        return invalid_credentials(self.mechanism, is_repeated=self._is_repeated)
