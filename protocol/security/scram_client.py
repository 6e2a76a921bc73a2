"""SCRAM-SHA-256 and SCRAM-SHA-512, the client's side (RFC 5802, RFC 7677): pure.

The password is never sent, and the server proves with its signature that it knows the credential:
without a valid one the authentication fails. Source: ScramSaslClient in apache/kafka.
"""

from __future__ import annotations

import hmac
from typing import Final

from ..errors import AuthenticationFailed, MalformedRequest
from .scram import (
    MIN_ITERATIONS,
    client_proof,
    salted_password,
    server_key,
    signature,
)
from .scram_messages import (
    ClientFinal,
    ClientFirst,
    ServerFirst,
    auth_message,
    parse_server_final,
)

MOST_ITERATIONS: Final = 1_000_000
"""Maximum accepted iterations, half a second of work: more would let a server block its clients."""


class ScramClient:
    """One exchange. `nonce` is random printable text, without commas.

    is_token: username and password are a delegation token's id and HMAC (KIP-48).
    """

    def __init__(
        self, mechanism: str, username: str, password: str, *, nonce: str, is_token: bool = False
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        self._first = ClientFirst.of(username, nonce, is_token=is_token)
        self._signature = b""

    def first(self) -> bytes:
        return self._first.encode()

    def final(self, challenge: bytes) -> bytes:
        """Client-final message with the proof, for the server's answer to `first`.

        Raises:
            AuthenticationFailed: the answer is malformed, or its nonce or iterations are unsafe.
        """
        try:
            asked = ServerFirst.parse(challenge)
        except MalformedRequest:
            raise AuthenticationFailed("the broker's SCRAM challenge is malformed") from None
        own = self._first.nonce
        if not asked.nonce.startswith(own) or len(asked.nonce) == len(own):
            raise AuthenticationFailed("the broker's SCRAM nonce does not continue the client's")
        if not MIN_ITERATIONS <= asked.iterations <= MOST_ITERATIONS:
            raise AuthenticationFailed(
                f"the broker asks for {asked.iterations} SCRAM iterations; "
                f"{MIN_ITERATIONS} to {MOST_ITERATIONS} are accepted"
            )
        salted = salted_password(self._mechanism, self._password, asked.salt, asked.iterations)
        final = ClientFinal.of(self._first.header, asked.nonce)
        message = auth_message(self._first, challenge, final)
        key = server_key(self._mechanism, salted)
        self._signature = signature(self._mechanism, key, message)
        return final.encode(client_proof(self._mechanism, salted, message))

    def check(self, outcome: bytes) -> None:
        """Check the server's signature. Raises AuthenticationFailed: the server does not know the
        password.
        """
        try:
            shown, words = parse_server_final(outcome)
        except MalformedRequest:
            raise AuthenticationFailed("the broker's last SCRAM message is malformed") from None
        if words:
            raise AuthenticationFailed(f"SCRAM: {words}")
        if not hmac.compare_digest(shown, self._signature):
            raise AuthenticationFailed(
                "invalid SCRAM server signature: the broker does not know the password"
            )
