"""How far a client of a SASL listener has proved who it is. Kafka's SaslServerAuthenticator.

    unknown         ApiVersions, SaslHandshake
    authenticating  ApiVersions, SaslAuthenticate; after SaslHandshake 0 the next frames are tokens
    known           everything, until the session ends; SaslHandshake begins it again (KIP-368)
    refused         nothing: the connection ends with the answer that says so

Whoever is to be nobody longer than a session, or somebody else in its middle, is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from ...cluster.security.sasl.sasl_server import SaslServer
from ...protocol.errors import (
    IllegalSaslState,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)
from ...protocol.header import API_VERSIONS_KEY
from ...protocol.principal import Principal
from ..ports.client_session import ClientSession

HANDSHAKE_KEY: Final = 17
AUTHENTICATE_KEY: Final = 36
MIN_REAUTHENTICATION_MS: Final = 1_000
"""Kafka's: a client that begins again sooner is not taken seriously."""
MIN_REQUEST_BYTES: Final = 1024
"""ApiVersions and a handshake always fit, however small a token may be."""


class Stage(Enum):
    UNKNOWN = auto()
    AUTHENTICATING = auto()
    KNOWN = auto()
    REFUSED = auto()


class SaslAuthentication:
    """One connection's. Implements client_session.SaslState.

    Args:
        session: whose principal it sets.
        mechanisms: those of the listener.
        make_server: one exchange of a mechanism; whether the client was known before.
        max_reauth_ms: connections.max.reauth.ms; 0: no end.
        max_receive_bytes: of one token.
    """

    def __init__(
        self,
        session: ClientSession,
        mechanisms: tuple[str, ...],
        make_server: Callable[[str, bool], SaslServer],
        *,
        max_reauth_ms: int,
        max_receive_bytes: int,
    ) -> None:
        self.mechanisms = mechanisms
        self.stage = Stage.UNKNOWN
        self.max_request_bytes: int | None = max(max_receive_bytes, MIN_REQUEST_BYTES)
        self.takes_raw_tokens = False
        self._session = session
        self._make_server = make_server
        self._max_reauth_ms = max_reauth_ms
        self._max_receive_bytes = max_receive_bytes
        self._server: SaslServer | None = None
        self._mechanism = ""
        self._principal: Principal | None = None
        self._began_at_ms = 0
        self._expires_at_ms: int | None = None

    @property
    def is_repeated(self) -> bool:
        """Whether the client was known before."""
        return self._principal is not None

    def refusal(self, api_key: int, now_ms: int) -> str | None:
        """See SaslState."""
        stage = self.stage
        if stage is Stage.KNOWN:
            if self._expires_at_ms is None or now_ms < self._expires_at_ms:
                return None
            if api_key in (API_VERSIONS_KEY, HANDSHAKE_KEY):
                return None
            return "sent a request after its session had ended: it did not re-authenticate in time"
        if stage is Stage.REFUSED:
            return "went on after its authentication had failed"
        wanted = HANDSHAKE_KEY if stage is Stage.UNKNOWN else AUTHENTICATE_KEY
        if api_key in (API_VERSIONS_KEY, wanted):
            return None
        return f"sent a request of API key {api_key} before it had authenticated with SASL"

    def on_handshake(self, mechanism: str, *, version: int, now_ms: int) -> None:
        """A client names its mechanism.

        Raises:
            UnsupportedSaslMechanism: not one of the listener, or not that of its session.
            IllegalSaslState: in the middle of another exchange, or again too soon.
        """
        if self.stage is Stage.AUTHENTICATING:
            raise IllegalSaslState("SaslHandshake in the middle of an authentication")
        if self.stage is Stage.KNOWN and now_ms - self._began_at_ms < MIN_REAUTHENTICATION_MS:
            raise IllegalSaslState("SaslHandshake again within a second of the last one")
        if mechanism not in self.mechanisms:
            self._refuse(f"asked for SASL mechanism {mechanism[:40]!r}, which is not enabled")
            raise UnsupportedSaslMechanism(
                f"Unsupported SASL mechanism {mechanism[:40]}: enabled are "
                + ", ".join(self.mechanisms)
            )
        if self.is_repeated and mechanism != self._mechanism:
            self._refuse("asked for another SASL mechanism to re-authenticate")
            raise UnsupportedSaslMechanism(
                f"SASL mechanism '{mechanism}' requested by client is not supported for "
                f"reauthentication of mechanism '{self._mechanism}'"
            )
        self._mechanism = mechanism
        self._server = self._make_server(mechanism, self.is_repeated)
        self._began_at_ms = now_ms
        self.stage = Stage.AUTHENTICATING
        self.takes_raw_tokens = version == 0

    def on_token(self, token: bytes, *, now_ms: int) -> tuple[bytes, int]:
        """(what the client is told, how many ms its session lasts; 0: no end).

        Raises:
            SaslAuthenticationFailed: it is not who it says; the text is for the client.
            IllegalSaslState: there was no handshake.
        """
        server = self._server
        if server is None or self.stage is not Stage.AUTHENTICATING:
            raise IllegalSaslState("SaslAuthenticate without SaslHandshake before it")
        try:
            if len(token) > self._max_receive_bytes:
                raise SaslAuthenticationFailed(
                    f"a token has at most {self._max_receive_bytes} bytes"
                )
            step = server.respond(token, now_ms=now_ms)
            if step.principal_name is None:
                return step.reply, 0
            principal = Principal("User", step.principal_name)
            if self._principal not in (None, principal):
                raise SaslAuthenticationFailed(
                    f"Cannot change principals during re-authentication from {self._principal} to "
                    f"{principal}"
                )
            if step.expires_at_ms is not None and step.expires_at_ms <= now_ms:
                raise SaslAuthenticationFailed("the credential has expired")
        except SaslAuthenticationFailed as error:
            self._refuse(f"failed to authenticate with {self._mechanism} ({error})")
            raise
        self._session.is_token = step.is_token
        return step.reply, self._complete(principal, step.expires_at_ms, now_ms)

    def _complete(self, principal: Principal, expires_at_ms: int | None, now_ms: int) -> int:
        ends = [] if expires_at_ms is None else [expires_at_ms]
        if self._max_reauth_ms:
            ends.append(now_ms + self._max_reauth_ms)
        self._expires_at_ms = min(ends, default=None)
        self._principal = self._session.principal = principal
        self._server = None
        self.stage = Stage.KNOWN
        self.takes_raw_tokens = False
        self.max_request_bytes = None
        return 0 if self._expires_at_ms is None else self._expires_at_ms - now_ms

    def _refuse(self, reason: str) -> None:
        self.stage = Stage.REFUSED
        self._server = None
        self._session.ending = reason
