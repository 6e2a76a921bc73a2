"""What a client says to authenticate, and what it makes of the answers: PLAIN and SCRAM. Pure.

A client of ours, or a node that connects to another one.
"""

from __future__ import annotations

from typing import Final

from ..errors import AuthenticationFailed
from .scram import HASHES
from .scram_client import ScramClient

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, *HASHES)
NONCE_BYTES: Final = 24


class SaslExchange:
    """One authentication: `first`, then `on_challenge` with every answer, until it is None.

    nonce: random printable text without commas, of NONCE_BYTES, anew for each exchange.
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
        """What to say next; None: the broker has said all, and is believed.

        Raises:
            AuthenticationFailed: it is not the one that it should be, or does not know SASL.
        """
        self._steps += 1
        if self._scram is None:
            return None
        if self._steps == 1:
            return self._scram.final(challenge)
        if self._steps > 2:
            raise AuthenticationFailed("the broker goes on with SCRAM after its end")
        self._scram.check(challenge)
        return None
