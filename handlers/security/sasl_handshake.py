"""SaslHandshake (API key 17): a client chooses the mechanism for its authentication.

Old clients infer a broker's version from its APIs; this one exists since Kafka 0.10. On a listener
without SASL it is answered ILLEGAL_SASL_STATE. After version 0 tokens are sent without headers.
"""

from __future__ import annotations

from ...protocol.error_code import ErrorCode
from ...protocol.errors import KafkaError
from ...protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ..ports.access import EVERYBODY
from ..ports.api import api
from ..ports.context import RequestContext
from .sasl_authentication import SaslAuthentication


def handle(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    authentication = context.session.sasl
    if not isinstance(authentication, SaslAuthentication):
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    try:
        authentication.on_handshake(
            request.mechanism, version=context.api_version, now_ms=context.node.now_ms()
        )
    except KafkaError as error:
        return SaslHandshakeResponse(
            error_code=error.code, mechanisms=list(authentication.mechanisms)
        )
    return SaslHandshakeResponse(mechanisms=list(authentication.mechanisms))


API = api(0, 1, SaslHandshakeRequest, handle, access=EVERYBODY)
