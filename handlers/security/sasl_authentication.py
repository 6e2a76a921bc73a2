"""SASL authentication of one client. Kafka's SaslServerAuthenticator.

    unknown         ApiVersions, SaslHandshake
    authenticating  ApiVersions, SaslAuthenticate; after SaslHandshake 0 the next frames are tokens
    known           everything, until the session ends; SaslHandshake re-authenticates (KIP-368)
    refused         nothing: the connection is closed after the response with the error

A client that does not re-authenticate before its session ends, or re-authenticates as another
principal, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
"""Minimum time between two authentications of a connection, as in Kafka."""
MIN_REQUEST_BYTES: Final = 1024
"""Minimum of the request limit: ApiVersions and a handshake always fit."""


class Stage(Enum):
    UNKNOWN = auto()
    AUTHENTICATING = auto()
    KNOWN = auto()
    REFUSED = auto()


class SaslAuthentication:
    """Authentication of one connection. Implements client_session.SaslState.

    Args:
        session: gets the principal.
        mechanisms: the listener's.
        make_server: begins an exchange of a mechanism; second argument: is it a re-authentication.
        max_reauth_ms: connections.max.reauth.ms of each mechanism; 0: sessions do not end.
        max_receive_bytes: maximum size of a token.
    """

    def __init__(
        self,
        session: ClientSession,
        mechanisms: tuple[str, ...],
        make_server: Callable[[str, bool], SaslServer],
        *,
        max_reauth_ms: Mapping[str, int],
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
        """Whether the client has authenticated before."""
        return self._principal is not None

    def refusal(self, api_key: int, now_ms: int) -> str | None:
        """See SaslState."""
        stage = self.stage
        if stage is Stage.KNOWN:
            if self._expires_at_ms is None or now_ms < self._expires_at_ms:
                return None
            if api_key in (API_VERSIONS_KEY, HANDSHAKE_KEY):
                return None
            return (
                "sent a request after its session had expired: it did not re-authenticate in time"
            )
        if stage is Stage.REFUSED:
            return "sent a request after its authentication had failed"
        wanted = HANDSHAKE_KEY if stage is Stage.UNKNOWN else AUTHENTICATE_KEY
        if api_key in (API_VERSIONS_KEY, wanted):
            return None
        return f"sent a request of API key {api_key} before it had authenticated with SASL"

    def on_handshake(self, mechanism: str, *, version: int, now_ms: int) -> None:
        """Begin an exchange with a mechanism.

        Raises:
            UnsupportedSaslMechanism: not enabled on the listener, or not that of the session.
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
        """Process a token; returns the reply, and the session's lifetime in ms (0: no end).

        Raises:
            SaslAuthenticationFailed: the credentials are wrong; the text is for the client.
            IllegalSaslState: there was no handshake.
        """
        server = self._server
        if server is None or self.stage is not Stage.AUTHENTICATING:
            raise IllegalSaslState("SaslAuthenticate without SaslHandshake before it")
        try:
            if len(token) > self._max_receive_bytes:
                raise SaslAuthenticationFailed(
                    f"a token of {len(token)} bytes; the limit is {self._max_receive_bytes}"
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
        if max_reauth_ms := self._max_reauth_ms[self._mechanism]:
            ends.append(now_ms + max_reauth_ms)
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
