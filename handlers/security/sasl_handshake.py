"""SaslHandshake (API key 17): ILLEGAL_SASL_STATE, as on every listener in plain text.

Clients guess a broker's age from the APIs that it has; this one came with Kafka 0.10.
"""

from __future__ import annotations

from ...protocol.error_code import ErrorCode
from ...protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ..ports.access import EVERYBODY
from ..ports.api import api
from ..ports.context import RequestContext


def handle(_request: SaslHandshakeRequest, _context: RequestContext) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


API = api(0, 1, SaslHandshakeRequest, handle, access=EVERYBODY)
