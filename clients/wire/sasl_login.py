"""SASL authentication of a connection, before its first request and before its session ends.

Source: SaslClientAuthenticator in apache/kafka (KIP-43, KIP-152, KIP-368).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, Protocol, TypeVar

from ...protocol.errors import AuthenticationFailed, ConnectionFailed, error_for
from ...protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from ...protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ...protocol.schema import Message
from ...protocol.security.sasl_client import ClientExchange
from ..threads.io_thread import IoThread
from .connection_security import ConnectionSecurity

SESSION_PART: Final = 0.85
"""Share of a session's lifetime after which to reauthenticate: Kafka's minimum."""

R = TypeVar("R", bound=Message)


class AuthenticatedConnection(Protocol):
    """Interface of a Connection that SaslLogin uses."""

    failure: ConnectionFailed | None

    def suspend(self) -> None: ...
    def open(self, *, again: bool) -> None: ...
    def close(self, reason: str, failure: type[ConnectionFailed]) -> None: ...
    def ask(
        self,
        message: Message,
        response: type[R],
        on_answer: Callable[[R], None],
        *,
        min_version: int = 0,
    ) -> None: ...


class SaslLogin:
    """SASL authentication of a connection, on the I/O thread."""

    def __init__(
        self, connection: AuthenticatedConnection, security: ConnectionSecurity, io: IoThread
    ) -> None:
        self._connection = connection
        self._security = security
        self._io = io
        self._exchange: ClientExchange | None = None
        self._has_succeeded = False

    def begin(self) -> None:
        """Authenticate, while requests wait; repeated before a session ends."""
        if self._connection.failure is not None:
            return
        self._connection.suspend()
        made = self._security.exchange()
        if made.done():
            self._on_exchange(made)
        else:
            made.add_done_callback(lambda done: self._io.call_soon(lambda: self._on_exchange(done)))

    def _on_exchange(self, made: Future[ClientExchange]) -> None:
        if self._connection.failure is not None:
            return
        error = made.exception()
        if error is not None:
            passes = isinstance(error, ConnectionFailed)
            kind = ConnectionFailed if passes else AuthenticationFailed
            self._connection.close(f"not authenticated: {error}", kind)
            return
        self._exchange = made.result()
        request = SaslHandshakeRequest(mechanism=self._security.mechanism)
        # Version 0 is followed by tokens without headers (Kafka 0.10), which are not supported.
        self._connection.ask(request, SaslHandshakeResponse, self._on_mechanisms, min_version=1)

    def _on_mechanisms(self, response: SaslHandshakeResponse) -> None:
        assert self._exchange is not None
        if response.error_code:
            offered = ", ".join(response.mechanisms) or "no mechanism"
            error = error_for(response.error_code)
            text = (
                f"{error}: sasl_mechanism={self._security.mechanism}, the broker offers {offered}"
            )
            self._connection.close(text, AuthenticationFailed)
            return
        self._say(self._exchange.first())

    def _say(self, token: bytes) -> None:
        request = SaslAuthenticateRequest(auth_bytes=token)
        self._connection.ask(request, SaslAuthenticateResponse, self._on_challenge)

    def _on_challenge(self, response: SaslAuthenticateResponse) -> None:
        assert self._exchange is not None
        if response.error_code:
            text = response.error_message or str(error_for(response.error_code))
            self._connection.close(f"not authenticated: {text}", AuthenticationFailed)
            return
        try:
            token = self._exchange.on_challenge(bytes(response.auth_bytes))
        except AuthenticationFailed as error:
            self._connection.close(f"not authenticated: {error}", AuthenticationFailed)
            return
        if token is not None:
            self._say(token)
            return
        self._exchange = None
        if response.session_lifetime_ms > 0:
            again_s = response.session_lifetime_ms * SESSION_PART / 1000
            self._io.call_later(again_s, self.begin)
        self._connection.open(again=self._has_succeeded)
        self._has_succeeded = True
