"""Tokens without headers, as clients send them after SaslHandshake 0 (Kafka 0.10)."""

from __future__ import annotations

from struct import Struct
from typing import Final

from ...protocol.errors import SaslAuthenticationFailed
from ...protocol.records.fetch_response import Chunk
from ..ports.client_session import ClientSession
from .sasl_authentication import SaslAuthentication

_SIZE: Final = Struct(">i")


def take_raw_token(frame: memoryview, session: ClientSession, now_ms: int) -> list[Chunk] | None:
    """Handle a raw token; returns the framed reply, or None after a failure, which has no reply."""
    authentication = session.sasl
    assert isinstance(authentication, SaslAuthentication)
    try:
        reply, _ = authentication.on_token(bytes(frame), now_ms=now_ms)
    except SaslAuthenticationFailed:
        return None
    return [_SIZE.pack(len(reply)) + reply]
