"""OAuth 2 access tokens: JWTs signed with one of the issuer's keys.

The requirements are those of BrokerJwtValidator in apache/kafka: a signature by a public key of the
key set (not by a shared secret), `exp` and `iat`, a subject; the issuer and one of the audiences,
if they are set; and no audience if none is set, as the token would be for another service.

PyJWT, of the extra [oauth], verifies the signature alone. The claims are checked here, with the
time as an argument.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ....protocol.errors import InvalidConfig

MOST_KEYS: Final = 1_000
MOST_TOKEN_BYTES: Final = 64 * 1024
LAST_SECOND: Final = 2**42
"""Largest accepted `exp` in seconds: 140,000 years, and milliseconds are still exact."""
ALGORITHMS: Final[Mapping[str, frozenset[str]]] = {
    "RSA": frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
    "EC": frozenset({"ES256", "ES384", "ES512"}),
    "OKP": frozenset({"EdDSA"}),
}
"""Algorithms by key type, so that a token cannot choose how its key is used. No shared secrets."""


class TokenRefused(Exception):
    """A token was refused. The text is for the broker's log only."""


class KeyUnknown(TokenRefused):
    """The token's key is not in the key set; a newer set may have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OauthRules:
    """Requirements for a token; the names are those of sasl.oauthbearer.*."""

    sub_claim_name: str = "sub"
    scope_claim_name: str = "scope"
    expected_audience: tuple[str, ...] = ()
    expected_issuer: str = ""
    clock_skew_seconds: int = 30


@dataclass(frozen=True, slots=True)
class AccessToken:
    principal_name: str
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key. algorithms: those it may be used with; key: as PyJWT takes it."""

    key_id: object
    algorithms: frozenset[str]
    key: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeySet:
    """Usable public keys of an issuer (RFC 7517)."""

    keys: tuple[SigningKey, ...] = ()

    @classmethod
    def parse(cls, text: str | bytes) -> KeySet:
        """Parse a JSON Web Key Set; keys for other uses, and shared secrets, are left out.

        Raises:
            InvalidConfig: it is no key set, or has no such key, or [oauth] is not installed.
        """
        jwt = _library()
        try:
            given = json.loads(text)["keys"]
            described = [dict(each) for each in given[:MOST_KEYS]]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise InvalidConfig("not a JSON Web Key Set") from None
        keys = []
        for each in described:
            algorithms = ALGORITHMS.get(str(each.get("kty")), frozenset())
            if "alg" in each:
                algorithms &= {str(each["alg"])}
            if not algorithms or each.get("use", "sig") != "sig":
                continue
            try:
                keys.append(SigningKey(each.get("kid"), algorithms, jwt.PyJWK(each).key))
            except (jwt.PyJWTError, ValueError, TypeError, KeyError):
                continue  # of a kind that this library does not know
        if not keys:
            raise InvalidConfig("there is no public key for signatures in the JSON Web Key Set")
        return cls(tuple(keys))

    def find(self, key_id: object, algorithm: object) -> SigningKey:
        """Find the key of a token. Raises KeyUnknown: no key matches, or several do."""
        fitting = [
            key
            for key in self.keys
            if algorithm in key.algorithms and (key_id is None or key.key_id == key_id)
        ]
        if len(fitting) != 1:
            raise KeyUnknown(f"{len(fitting)} keys fit {key_id!r:.80} with {algorithm!r:.20}")
        return fitting[0]


class TokenValidator:
    """Validator of tokens. keys: returns the newest set. on_unknown_key: called when a token's key
    is not in it.
    """

    def __init__(
        self,
        rules: OauthRules,
        keys: Callable[[], KeySet],
        on_unknown_key: Callable[[], None] = lambda: None,
    ) -> None:
        _library()
        self._rules = rules
        self._keys = keys
        self._on_unknown_key = on_unknown_key

    def validate(self, token: str, *, now_ms: int) -> AccessToken:
        """Validate a token. Raises TokenRefused."""
        if len(token) > MOST_TOKEN_BYTES:
            raise TokenRefused("the token is too long")
        claims = self._signed_claims(token)
        rules, now = self._rules, now_ms / 1000
        expires_at = _moment(claims, "exp")
        _moment(claims, "iat")
        if now - rules.clock_skew_seconds >= expires_at:
            raise TokenRefused("the token has expired")
        if "nbf" in claims and now + rules.clock_skew_seconds < _moment(claims, "nbf"):
            raise TokenRefused("the token is not valid yet")
        if rules.expected_issuer and claims.get("iss") != rules.expected_issuer:
            raise TokenRefused(
                f"issuer {claims.get('iss')!r:.200} does not match {rules.expected_issuer!r}"
            )
        self._check_audience(claims.get("aud"))
        _check_scopes(claims.get(rules.scope_claim_name))
        subject = claims.get(rules.sub_claim_name)
        if not isinstance(subject, str) or not subject.strip():
            raise TokenRefused(f"the token has no {rules.sub_claim_name}")
        return AccessToken(subject.strip(), int(expires_at * 1000))

    def _signed_claims(self, token: str) -> dict[str, Any]:
        jwt = _library()
        try:
            header = jwt.get_unverified_header(token)
            key = self._keys().find(header.get("kid"), header.get("alg"))
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[header["alg"]],
                options={
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_aud": False,
                    "verify_iss": False,
                    "verify_sub": False,
                    "verify_jti": False,
                },
            )
        except KeyUnknown:
            self._on_unknown_key()
            raise
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise TokenRefused(f"the token cannot be verified: {error!s:.200}") from None
        return claims

    def _check_audience(self, given: object) -> None:
        audiences = [given] if isinstance(given, str) else given
        expected = self._rules.expected_audience
        if audiences is None and not expected:
            return
        if not isinstance(audiences, list) or not any(each in expected for each in audiences):
            raise TokenRefused(f"audience {audiences!r:.200} does not match {sorted(expected)}")


def _moment(claims: Mapping[str, Any], name: str) -> float:
    """Numeric date of a claim, in seconds since 1970."""
    value = claims.get(name)
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or not 0 <= value <= LAST_SECOND
    ):
        raise TokenRefused(f"the token has no valid {name}")
    return float(value)


def _check_scopes(given: object) -> None:
    scopes = given if isinstance(given, list) else [given] if isinstance(given, str) else []
    if not all(isinstance(each, str) and each.strip() for each in scopes):
        raise TokenRefused("the token has an empty scope")
    if len({each.strip() for each in scopes}) != len(scopes):
        raise TokenRefused("the token has a scope twice")


def _library() -> Any:
    try:
        import cryptography
        import jwt
    except ImportError:
        raise InvalidConfig(
            "SASL OAUTHBEARER needs PyJWT with cryptography: install bradbury[oauth]"
        ) from None
    del cryptography
    return jwt
