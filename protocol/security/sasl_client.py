"""Client side of SASL: messages to authenticate, and checks of the answers. Pure.

Used by our clients, and by nodes that connect to other nodes.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

from ..errors import AuthenticationFailed, InvalidConfig
from .scram import HASHES
from .scram_client import ScramClient

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, *HASHES, OAUTHBEARER)
NONCE_BYTES: Final = 24
_BEARER: Final = re.compile(r"[-_.~+/a-zA-Z0-9]+=*")
_SEEN: Final = b"\x01"


class ClientExchange(Protocol):
    """One authentication: `first`, then `on_challenge` with each answer, until it returns None."""

    def first(self) -> bytes: ...

    def on_challenge(self, challenge: bytes) -> bytes | None:
        """Next message; None: the exchange is complete, and the broker is authentic.

        Raises:
            AuthenticationFailed: the broker does not prove that it knows the password, or its
                message is invalid.
        """


class OauthBearerExchange:
    """OAUTHBEARER (RFC 7628): sends the token; if it is refused, the broker expects one more byte.

    Source: OAuthBearerSaslClient in apache/kafka. Raises InvalidConfig: the token is malformed.
    """

    def __init__(self, token: str) -> None:
        if not _BEARER.fullmatch(token):
            raise InvalidConfig("the OAUTHBEARER token is malformed")
        self._first = f"n,,\x01auth=Bearer {token}\x01\x01".encode()

    def first(self) -> bytes:
        return self._first

    def on_challenge(self, challenge: bytes) -> bytes | None:
        return _SEEN if challenge else None


class SaslExchange:
    """A ClientExchange by name and password: PLAIN and SCRAM.

    nonce: random printable text without commas, of NONCE_BYTES, new for each exchange.
    """

    def __init__(
        self,
        mechanism: str,
        username: str,
        password: str,
        *,
        nonce: str,
        is_token: bool = False,
    ) -> None:
        self._scram: ScramClient | None = None
        self._steps = 0
        if mechanism == PLAIN:
            self._first = b"\0".join((b"", username.encode(), password.encode()))
        else:
            self._scram = ScramClient(mechanism, username, password, nonce=nonce, is_token=is_token)
            self._first = self._scram.first()

    def first(self) -> bytes:
        return self._first

    def on_challenge(self, challenge: bytes) -> bytes | None:
        self._steps += 1
        if self._scram is None:
            return None
        if self._steps == 1:
            return self._scram.final(challenge)
        if self._steps > 2:
            raise AuthenticationFailed("the broker sent another SCRAM message after the last one")
        self._scram.check(challenge)
        return None
