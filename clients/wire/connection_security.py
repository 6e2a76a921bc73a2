"""Security of one client's connections: settings, and the TLS context."""

from __future__ import annotations

import socket
import ssl
import threading
from concurrent.futures import Future
from typing import Final

from ...protocol.errors import AuthenticationFailed, ConnectionFailed
from ...protocol.security.sasl_client import ClientExchange, OauthBearerExchange
from ..security.oauth_tokens import OauthTokens
from ..security.security_options import ClientSecurity
from ..security.tls_transport import TlsTransport


class ConnectionSecurity:
    """Raises InvalidConfig: a file of the settings, or what they refer to, cannot be used."""

    def __init__(self, settings: ClientSecurity) -> None:
        self._settings = settings
        self._context = settings.tls_context()
        oauth = settings.oauth() if settings.is_sasl else None
        self._tokens = None if oauth is None else OauthTokens(oauth)
        # A missing file or reference raises here, not while connecting.
        if self._tokens is not None:
            self._tokens.check()
        elif settings.is_sasl:
            settings.exchange()

    @property
    def is_tls(self) -> bool:
        return self._settings.is_tls

    @property
    def is_sasl(self) -> bool:
        return self._settings.is_sasl

    @property
    def mechanism(self) -> str:
        return self._settings.mechanism

    def exchange(self) -> Future[ClientExchange]:
        """Future of a SASL exchange: done at once, or by a thread that gets a token.

        Failures of the future: InvalidConfig, as the constructor's, if a file or reference is
        missing by now; those of OauthTokens.get.
        """
        made: Future[ClientExchange] = Future()
        if self._tokens is None:
            self._make(made)
        else:  # a daemon: a function that hangs does not delay exit
            threading.Thread(target=self._make, args=(made,), name="oauth", daemon=True).start()
        return made

    def _make(self, made: Future[ClientExchange]) -> None:
        try:
            made.set_result(
                self._settings.exchange()
                if self._tokens is None
                else OauthBearerExchange(self._tokens.get())
            )
        except Exception as error:  # noqa: BLE001 -- of a user's function: it closes the connection
            made.set_exception(error)

    def secure(self, sock: socket.socket, host: str) -> TlsTransport:
        """Wrap `sock`, which the result owns, in TLS. Only with `is_tls`."""
        assert self._context is not None
        return TlsTransport(sock, self._context, host)

    def hint(self) -> str:
        """Hint for a connection that the broker closed without an answer."""
        return f"does its listener speak {self._settings.protocol}, as security_protocol says here?"


NO_SECURITY: Final = ConnectionSecurity(ClientSecurity())


def handshake_failure(error: OSError) -> tuple[str, type[ConnectionFailed]]:
    """Reason of a failed TLS handshake, and the exception type (retriable or not)."""
    if isinstance(error, ssl.SSLCertVerificationError):
        text = (
            f"the broker's certificate is not accepted: {error.verify_message}; "
            "ssl_truststore_location names whom to trust"
        )
        return text, AuthenticationFailed
    if isinstance(error, ssl.SSLEOFError) or not isinstance(error, ssl.SSLError):
        return f"connection lost in the TLS handshake: {error}", ConnectionFailed
    if error.reason == "WRONG_VERSION_NUMBER":
        return "the broker does not speak TLS; is its listener PLAINTEXT?", AuthenticationFailed
    cause = error.reason or str(error)
    text = f"the TLS handshake failed ({cause}); does the broker ask for a certificate?"
    return text, AuthenticationFailed
