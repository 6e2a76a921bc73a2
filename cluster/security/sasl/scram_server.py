"""SCRAM, the server's side: it has no passwords, and proves that it has the user's credential.

    CLIENT_FIRST   the name and a nonce of the client -> salt, iterations, a nonce of both
    CLIENT_FINAL   the proof -> our signature
    OVER           authenticated, or failed

An unknown user fails at CLIENT_FIRST, as in Kafka, with the same error text as a wrong password,
but earlier, which reveals that the name is unknown. The proof is compared in constant time.
Source: ScramSaslServer in apache/kafka.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from ....protocol.errors import IllegalSaslState, MalformedRequest, SaslAuthenticationFailed
from ....protocol.security.scram import (
    MIN_ITERATIONS,
    ScramCredential,
    is_proof_of,
    signature,
)
from ....protocol.security.scram_messages import (
    ClientFinal,
    ClientFirst,
    ServerFirst,
    auth_message,
    server_final,
)
from .credentials import Credentials
from .sasl_server import SaslStep, invalid_credentials

MOST_BYTES: Final = 16 * 1024


class _State(Enum):
    CLIENT_FIRST = auto()
    CLIENT_FINAL = auto()
    OVER = auto()


class ScramServer:
    """SCRAM exchange. nonce: random printable text without commas, new for each exchange."""

    def __init__(
        self, mechanism: str, credentials: Credentials, *, nonce: str, is_repeated: bool = False
    ) -> None:
        self.mechanism: Final = mechanism
        self._credentials = credentials
        self._nonce = nonce
        self._is_repeated = is_repeated
        self._state = _State.CLIENT_FIRST

    def respond(self, token: bytes, *, now_ms: int) -> SaslStep:
        state, self._state = self._state, _State.OVER
        if state is _State.OVER:
            raise IllegalSaslState("the SCRAM exchange is over")
        try:
            if len(token) > MOST_BYTES:
                raise self._invalid()
            if state is _State.CLIENT_FIRST:
                return self._challenge(ClientFirst.parse(token), now_ms)
            return self._verify(ClientFinal.parse(token))
        except MalformedRequest:
            raise self._invalid() from None

    def _challenge(self, first: ClientFirst, now_ms: int) -> SaslStep:
        credential = self._find(first, now_ms)
        if credential is None or credential.iterations < MIN_ITERATIONS:
            raise self._invalid()
        if first.authorization_id not in ("", first.name):
            raise SaslAuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        self._first = first
        self._credential = credential
        self._both = first.nonce + self._nonce
        self._reply = ServerFirst(
            nonce=self._both, salt=credential.salt, iterations=credential.iterations
        ).encode()
        self._state = _State.CLIENT_FINAL
        return SaslStep(reply=self._reply)

    def _find(self, first: ClientFirst, now_ms: int) -> ScramCredential | None:
        self._principal_name, self._expires_at_ms = first.name, None
        if not first.is_token:
            return self._credentials.scram(first.name, self.mechanism)
        token = self._credentials.delegation_token(first.name, self.mechanism)
        if token is None or token.expires_at_ms <= now_ms:
            return None
        self._principal_name, self._expires_at_ms = token.owner, token.expires_at_ms
        return token.credential

    def _verify(self, final: ClientFinal) -> SaslStep:
        message = auth_message(self._first, self._reply, final)
        if (
            final.nonce != self._both
            or final.binding != self._first.header.encode()
            or not is_proof_of(self.mechanism, self._credential, final.proof, message)
        ):
            raise self._invalid()
        return SaslStep(
            reply=server_final(signature(self.mechanism, self._credential.server_key, message)),
            principal_name=self._principal_name,
            expires_at_ms=self._expires_at_ms,
            is_token=self._first.is_token,
        )

    def _invalid(self) -> SaslAuthenticationFailed:
        return invalid_credentials(self.mechanism, is_repeated=self._is_repeated)
