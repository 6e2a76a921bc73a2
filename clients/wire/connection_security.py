"""What the connections of one client have in common: security settings, and the TLS context."""

from __future__ import annotations

import socket
import ssl
from typing import Final

from ...protocol.errors import AuthenticationFailed, ConnectionFailed
from ...protocol.security.sasl_client import SaslExchange
from ..security.security_options import ClientSecurity
from ..security.tls_transport import TlsTransport


class ConnectionSecurity:
    """Raises InvalidConfig: a file of the settings, or what they refer to, cannot be used."""

    def __init__(self, settings: ClientSecurity) -> None:
        self._settings = settings
        self._context = settings.tls_context()
        if settings.is_sasl:
            settings.exchange()  # what it refers to is missed here, not while connecting

    @property
    def is_tls(self) -> bool:
        return self._settings.is_tls

    @property
    def is_sasl(self) -> bool:
        return self._settings.is_sasl

    @property
    def mechanism(self) -> str:
        return self._settings.mechanism

    def exchange(self) -> SaslExchange:
        """Raises InvalidConfig, as the constructor does, if it has gone meanwhile."""
        return self._settings.exchange()

    def secure(self, sock: socket.socket, host: str) -> TlsTransport:
        """`sock` belongs to what is returned. Only with `is_tls`."""
        assert self._context is not None
        return TlsTransport(sock, self._context, host)

    def hint(self) -> str:
        """For who is hung up on without a word."""
        return f"does its listener speak {self._settings.protocol}, as security_protocol says here?"


NO_SECURITY: Final = ConnectionSecurity(ClientSecurity())


def handshake_failure(error: OSError) -> tuple[str, type[ConnectionFailed]]:
    """What to say of a TLS handshake that failed, and whether to try again."""
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
